"""The state of a cluster (running jobs, waiting jobs, idle resources) and the choice of starts.

The state is updated incrementally: after a change, only jobs that the change may affect are looked
at again. The starts and victims chosen are the same as with a state built from scratch. Pure: no
I/O and no clock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from typing import NamedTuple

from slurm_tiresias.core.features.protection import Protected, Shield, shield_now
from slurm_tiresias.core.features.victim_rate import VictimRate
from slurm_tiresias.core.placement.candidate_index import CandidateIndex
from slurm_tiresias.core.placement.candidate_matrix import Candidate, Preemptor
from slurm_tiresias.core.placement.choose import goes_by_count, place_on_any
from slurm_tiresias.core.placement.free_resources import FreeResources
from slurm_tiresias.core.placement.node_index import NodeIndex
from slurm_tiresias.core.placement.node_set import NodeSet
from slurm_tiresias.core.placement.victims import PreemptionPlan, find_victims
from slurm_tiresias.core.rank import Key, UniqueRank, level_above_victims
from slurm_tiresias.model import (
    ANY_TYPE,
    Allocation,
    Amount,
    Node,
    PlacementStyle,
    RecentVictims,
    Request,
    WorkAtStake,
)


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """Waiting jobs of one level with equal requests: if the first does not fit, none does."""

    number: int
    request: Request
    style: PlacementStyle
    sets: tuple[NodeSet, ...]
    """The nodes that its jobs may use, one set per partition."""
    only_idle: bool
    """This class may use idle resources only; it never preempts."""
    nodes: NodeSet = 0
    gpus: int = 0
    whole: Amount | None = None
    """Per-node demand if the whole job fits one node and only the GPU count matters; else None."""
    waiting: list[UniqueRank] = field(default_factory=list)
    """Heap of ranks; outdated ranks stay in it until they reach the top."""
    refused: Key | None = None
    """Level of the first waiting job when it was last refused; None if not refused."""
    refused_in: int = -1
    """Value of ``ClusterState._growth`` at the last refusal, which stands until it increases."""
    told_in: int = -1
    """Version of the state for which ``refused`` was last called back for this class."""

    def __post_init__(self) -> None:
        for nodes in self.sets:
            self.nodes |= nodes
        self.gpus = self.request.chunks * self.request.chunk.gpu_count


class Start(NamedTuple):
    """A job that starts now, its allocation, and the ids of its victims."""

    job_id: str
    allocation: Allocation
    victims: tuple[str, ...] = ()


Refused = Callable[[EquivalenceClass, UniqueRank, PreemptionPlan | None], None]


class ClusterState:
    """The state of a cluster between decisions.

    ``last_resort`` names nodes that are used only if no others suffice. ``choose`` updates the
    state as if its starts and preemptions had taken place; its caller carries them out.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        last_resort: Iterable[str] = (),
        victim_rate: VictimRate = VictimRate(),  # noqa: B008 - frozen
        has_tiers: bool = False,
    ) -> None:
        everywhere = sorted(nodes, key=lambda node: node.name)
        self.node_index = NodeIndex(everywhere)
        self.free = FreeResources(everywhere)
        self._last_resort = self.free.nodes(last_resort)
        self.victim_rate = victim_rate
        self._has_tiers = has_tiers
        self.recent_victims = RecentVictims()
        self._now_s = -math.inf
        """The time of the present pass."""
        self._candidates = CandidateIndex(self.free)
        self._running: dict[str, Candidate] = {}
        self._protections: dict[str, tuple[Protected, ...]] = {}
        """Of running jobs that are or will be protected."""
        self._next_change_s: dict[str, float] = {}
        """When a protection of such a job begins or ends next."""
        self._protection_changes: list[tuple[float, int, str]] = []
        """Heap of (time, serial number, job id); the number breaks ties. Some are outdated."""
        self._change_numbers = count()
        self._classes: dict[Hashable, EquivalenceClass] = {}
        self._waiting: dict[str, tuple[UniqueRank, EquivalenceClass]] = {}
        self._to_try: set[EquivalenceClass] = set()
        self._room_grew = False
        self._room_grew_s = -math.inf
        """When to choose again because room grew: at once, unless only the limit of victims keeps
        jobs from starting."""
        self._growth = 0
        """Number of times that idle or preemptible resources have increased."""
        self._version = 0
        """Number of changes that a refusal, or the reason for it, may depend on."""

    # Changes

    def class_of(
        self, key: Hashable, request: Request, style: PlacementStyle, *, only_idle: bool = False
    ) -> EquivalenceClass:
        """Return the equivalence class with this key, creating it if needed. The key must
        determine the other arguments and the level."""
        job_class = self._classes.get(key)
        if job_class is None:
            sets = self.node_index.sets_for(request, self.node_index.usable)
            job_class = self._classes[key] = EquivalenceClass(
                len(self._classes), request, style, sets, only_idle
            )
            job_class.whole = self._whole(job_class)
        return job_class

    def _whole(self, job_class: EquivalenceClass) -> Amount | None:
        together = job_class.style is PlacementStyle.CONSOLIDATE or (
            job_class.style is PlacementStyle.SPREAD and job_class.request.chunks == 1
        )
        blocks = self.free.topology.base_blocks
        one_set = (
            not blocks
            and not self._last_resort
            and not self.free.has_types
            and len(job_class.sets) == 1
        )
        any_node_will_do = together and one_set and goes_by_count(job_class.request)
        return Amount({ANY_TYPE: job_class.gpus}) if any_node_will_do else None

    def wait(self, rank: UniqueRank, job_class: EquivalenceClass) -> None:
        """Add a waiting job to its class, or change its rank or class."""
        self._waiting[rank.job_id] = (rank, job_class)
        heapq.heappush(job_class.waiting, rank)
        outdated = job_class.refused_in != self._growth
        if outdated or job_class.refused is None or rank.level < job_class.refused:
            self._to_try.add(job_class)

    def withdraw(self, job_id: str) -> None:
        """Remove a waiting job that has not been started."""
        del self._waiting[job_id]

    def book(self, allocation: Allocation) -> None:
        """Mark resources as taken."""
        self.free.take(allocation)
        self._version += 1

    def give_back(self, allocation: Allocation) -> None:
        """Mark resources as idle that ``book`` had marked as taken."""
        self.free.give(allocation)
        self.note_growth()

    @property
    def last_resort(self) -> NodeSet:
        """The nodes that are used only if no others suffice."""
        return self._last_resort

    @last_resort.setter
    def last_resort(self, nodes: NodeSet) -> None:
        if nodes == self._last_resort:
            return
        self._last_resort = nodes
        for job_class in self._classes.values():
            job_class.whole = self._whole(job_class)
        self.note_growth()

    def run(
        self,
        rank: UniqueRank,
        allocation: Allocation,
        gpus: int,
        now_s: float = -math.inf,
        protections: Iterable[Protected] = (),
        at_stake: WorkAtStake | None = None,
    ) -> None:
        """Add a running job, whose resources are booked already, to the preemption candidates."""
        self._version += 1
        candidate = Candidate(
            rank, allocation, self.free.nodes(allocation), gpus, at_stake=at_stake
        )
        candidate.shield = self._shield_at(rank.job_id, now_s, tuple(protections))
        self._running[rank.job_id] = candidate
        self._candidates.enter(candidate)

    def restake(
        self,
        job_id: str,
        now_s: float,
        protections: Iterable[Protected],
        at_stake: WorkAtStake | None,
    ) -> None:
        """Change what is at stake for a running job, and when it is protected."""
        candidate = self._running[job_id]
        if candidate.at_stake != at_stake:
            self._candidates.restake(candidate, at_stake)
        protections = tuple(protections)
        if protections != self._protections.get(job_id, ()):
            self._version += 1
            self._set_shield(candidate, self._shield_at(job_id, now_s, protections))

    def _shield_at(self, job_id: str, now_s: float, protections: tuple[Protected, ...]) -> Shield:
        """Note when a job is protected from now on; return how it is now."""
        ahead = [each for each in protections if each.until_s > now_s]
        if not ahead:
            self._protections.pop(job_id, None)
            return Shield.NONE
        self._protections[job_id] = protections
        shield, change_s = shield_now(ahead, now_s)
        self._next_change_s[job_id] = change_s
        if change_s < math.inf:
            heapq.heappush(self._protection_changes, (change_s, next(self._change_numbers), job_id))
        return shield

    def _set_shield(self, candidate: Candidate, shield: Shield) -> None:
        if shield < candidate.shield:
            self.note_growth()
        if shield != candidate.shield:
            self._candidates.protect(candidate, shield)

    def rerank(self, rank: UniqueRank) -> None:
        """Change the rank of a running job."""
        candidate = self._running[rank.job_id]
        if candidate.rank == rank:
            return
        self._version += 1
        if rank.level > candidate.rank.level:
            self.note_growth()
        self._candidates.leave(candidate)
        candidate.rank = rank
        self._candidates.enter(candidate)

    def rerank_all(self, ranks: Iterable[UniqueRank]) -> None:
        """Change the ranks of many running jobs, most of which stay in their level."""
        moved: list[tuple[Candidate, UniqueRank]] = []
        for rank in ranks:
            candidate = self._running[rank.job_id]
            if rank.level != candidate.rank.level:
                self.rerank(rank)
            elif rank != candidate.rank:
                moved.append((candidate, rank))
        if moved:
            self._version += 1
            self._candidates.reorder(moved)

    def leave(self, job_id: str) -> None:
        """Remove a running job and free its resources."""
        candidate = self._running.pop(job_id)
        self._protections.pop(job_id, None)
        self._candidates.leave(candidate)
        self.free.give(candidate.allocation)
        self.note_growth()

    def note_growth(self) -> None:
        """Note that idle or preemptible resources have increased: all classes are tried again."""
        self._room_grew = True
        self._room_grew_s = -math.inf
        self._growth += 1
        self._version += 1

    def refuse(self, job_class: EquivalenceClass, rank: UniqueRank) -> None:
        """Note that the first job of a class does not fit. The class is tried again when room
        grows."""
        job_class.refused, job_class.refused_in = rank.level, self._growth
        job_class.told_in = self._version

    def is_running(self, job_id: str) -> bool:
        """Whether the job runs and has not been chosen as a victim."""
        return job_id in self._running

    @property
    def waiting(self) -> Collection[str]:
        """The ids of the waiting jobs."""
        return self._waiting.keys()

    @property
    def next_try_s(self) -> float:
        """When to choose again even if no job arrives or ends: ``-inf`` for at once, the end of a
        protection or of an interval of the victim rate, or ``inf``."""
        next_s = self._next_protection_change_s() if self._protection_changes else math.inf
        return min(next_s, self._room_grew_s) if self._room_grew else next_s

    def _next_protection_change_s(self) -> float:
        """When the next protection begins or ends; infinite if none does or if no job waits."""
        changes = self._protection_changes
        while changes and not self._is_due_then(*changes[0][::2]):
            heapq.heappop(changes)
        return changes[0][0] if changes and self._waiting else math.inf

    def _is_due_then(self, at_s: float, job_id: str) -> bool:
        """Whether a protection of a running job begins or ends at this time."""
        due = self._next_change_s.get(job_id) == at_s
        return due and job_id in self._protections and job_id in self._running

    @property
    def classes(self) -> Iterable[EquivalenceClass]:
        return list(self._classes.values())

    # Decisions

    def choose(
        self,
        now_s: float,
        refused: Refused | None = None,
        before_ranking: Callable[[], None] = lambda: None,
        before_preempting: Callable[[], None] = lambda: None,
    ) -> list[Start]:
        """Choose the jobs that start now and their victims, in the order in which they are chosen.

        ``refused`` is called for the first job of each class that does not fit when it is tried;
        its last argument is a preemption plan that the limit of victims forbids, if there is one.
        ``before_ranking`` is called before ranks first matter, so that the caller can change them:
        not if no job waits, or if all start without victims. ``before_preempting`` is called once,
        before running jobs are first considered as victims, so that the caller can ``rerank`` them.
        """
        self._now_s = now_s
        self.recent_victims = self.victim_rate.at(self.recent_victims, now_s)
        if not self._waiting:
            self._room_grew = False
            self._to_try.clear()
            return []
        if self._room_grew or self._to_try:
            starts = self._start_all_on_idle()
            if starts:
                return starts
        before_ranking()
        if self._protection_changes:
            self._follow_protections(now_s)
        if not self._room_grew and not self._to_try:
            return []
        # Classes restricted to idle GPUs are tried in every pass, because a preemption may leave
        # GPUs over.
        to_try = [
            job_class
            for job_class in self._classes.values()
            if self._room_grew or job_class.only_idle or job_class in self._to_try
        ]
        self._room_grew = False
        self._to_try = set()
        this_pass = self._pass_over(to_try, refused, before_preempting)
        recent = self.victim_rate.after(self.recent_victims, this_pass.victims, now_s)
        self.recent_victims = recent
        if this_pass.short_of_victims:
            self.note_growth()
            self._room_grew_s = recent.until_s if recent.jobs else math.inf
        return this_pass.starts

    def try_out(self, now_s: float, refused: Refused) -> list[Start]:
        """Return what ``choose`` would start and preempt, without changing the state.

        ``refused`` is called for each class with a waiting job that does not fit, unless it was
        called for the class before and nothing relevant has changed since.
        """
        self._now_s = now_s
        self.recent_victims = self.victim_rate.at(self.recent_victims, now_s)
        self._follow_protections(now_s)
        waiting = [job_class for job_class in self._classes.values() if job_class.waiting]
        untold = [job_class for job_class in waiting if job_class.told_in != self._version]
        this_pass = self._pass_over(untold, refused)
        if not this_pass.starts:
            return []
        if len(untold) < len(waiting):
            # Earlier refusals may not hold after these starts, so all classes are tried again.
            this_pass.undo()
            this_pass = self._pass_over(waiting, refused)
        this_pass.undo()
        self._version += 1
        return this_pass.starts

    def _pass_over(
        self,
        classes: Iterable[EquivalenceClass],
        refused: Refused | None,
        before_preempting: Callable[[], None] = lambda: None,
    ) -> SchedulingPass:
        this_pass = SchedulingPass(self, refused, before_preempting)
        this_pass.offer_to(classes)
        return this_pass

    def _start_all_on_idle(self) -> list[Start]:
        """Start all waiting jobs if none needs victims, otherwise none. The ranks of running jobs
        do not matter for that."""
        idle = self.free.most_free_gpus
        jobs = self._waiting.values()
        if len(jobs) > idle or sum(job_class.gpus for _, job_class in jobs) > idle:
            return []
        starts: list[Start] = []
        taken: list[Allocation] = []
        for rank, job_class in sorted(jobs, key=itemgetter(0)):
            allocation = self.on_idle(job_class)
            if allocation is None:
                for closed in taken:
                    self.free.give(closed)
                return []
            taken.append(self.free.closed_by(job_class.request, allocation))
            self.free.take(taken[-1])
            starts.append(Start(rank.job_id, allocation))
        for _, job_class in jobs:
            job_class.waiting.clear()
            job_class.refused = None
        self._waiting.clear()
        self._to_try.clear()
        self._room_grew = False
        return starts

    def _follow_protections(self, now_s: float) -> None:
        while self._protection_changes and self._next_protection_change_s() <= now_s:
            _, _, job_id = heapq.heappop(self._protection_changes)
            shield = self._shield_at(job_id, now_s, self._protections[job_id])
            self._set_shield(self._running[job_id], shield)
            self._version += 1  # another protection may have begun as this one ended

    def first(self, job_class: EquivalenceClass) -> UniqueRank | None:
        """Return the first waiting job of a class by rank; None if there is none."""
        while job_class.waiting:
            rank = job_class.waiting[0]
            current = self._waiting.get(rank.job_id)
            if current is not None and current[0] is rank and current[1] is job_class:
                return rank
            heapq.heappop(job_class.waiting)
        return None

    def level_above_victims(self, level: Key) -> Key:
        """Return the level above which a job of this level preempts others."""
        return level_above_victims(level) if self._has_tiers else level

    def may_have_room(
        self, job_class: EquivalenceClass, level: Key, *, even_protected: bool = False
    ) -> bool:
        """Whether enough GPUs are idle or could be freed by preemption, wherever they are. A quick
        check before placement is tried."""
        missing = job_class.gpus - self.free.most_free_gpus
        if missing <= 0:
            return True
        if job_class.only_idle:
            return False
        level = self.level_above_victims(level)
        return self._candidates.gpus_below(level, even_protected=even_protected) >= missing

    def on_idle(self, job_class: EquivalenceClass) -> Allocation | None:
        """Place a job of this class on idle GPUs; None if it does not fit."""
        if job_class.whole:
            number = self.free.tightest(job_class.nodes, job_class.gpus)
            if number is not None and not self.free.lacks_cpus_or_memory(number):
                return {self.free.names[number]: job_class.whole}
        return place_on_any(
            job_class.request, job_class.sets, self.free, job_class.style, self._last_resort
        )

    def by_preempting(
        self, job_class: EquivalenceClass, level: Key, *, even_protected: bool = False
    ) -> PreemptionPlan | None:
        """Return the cheapest preemption plan that lets a job of this class start, or None.

        Only jobs of levels below ``level_above_victims`` are preempted. The state is not changed.
        """
        level = self.level_above_victims(level)
        if not self._candidates.any_below(level):
            return None
        # With protected jobs it is only asked for a reason, which must not change as time passes.
        weighs_at_s = self._now_s if self._has_tiers and not even_protected else None
        best = None
        for nodes in job_class.sets:
            preemptor = Preemptor(
                job_class.request, job_class.style, nodes, level, even_protected, weighs_at_s
            )
            found = find_victims(preemptor, self.free, self._candidates, self._last_resort)
            if found and (
                best is None or preemptor.cost(found.victims) < preemptor.cost(best.victims)
            ):
                best = found
        return best

    def start(self, job_class: EquivalenceClass, rank: UniqueRank, allocation: Allocation) -> None:
        """Book the allocation of the first waiting job of a class and take it out of the queue."""
        self.free.take(self.free.closed_by(job_class.request, allocation))
        heapq.heappop(job_class.waiting)
        del self._waiting[rank.job_id]

    def take_back(
        self,
        job_class: EquivalenceClass,
        rank: UniqueRank,
        start: Start,
        victims: Iterable[Candidate],
    ) -> None:
        """Undo a start and the preemptions for it."""
        self.free.give(self.free.closed_by(job_class.request, start.allocation))
        self._waiting[rank.job_id] = (rank, job_class)
        heapq.heappush(job_class.waiting, rank)
        for candidate in victims:
            self.free.take(candidate.allocation)
            self._running[candidate.job_id] = candidate
            self._candidates.enter(candidate)

    def preempt(self, candidate: Candidate) -> None:
        self._candidates.leave(candidate)
        self.free.give(candidate.allocation)
        del self._running[candidate.job_id]
        # The pass offers leftover GPUs to all waiting jobs, so no further pass is needed.
        self._growth += 1


class SchedulingPass:
    """One pass over the waiting jobs in the order of their ranks."""

    __slots__ = (
        "_before_preempting",
        "_done",
        "_heads",
        "_patient",
        "_refused",
        "_seen",
        "_state",
        "short_of_victims",
        "starts",
        "victims",
    )

    def __init__(
        self,
        state: ClusterState,
        refused: Refused | None,
        before_preempting: Callable[[], None],
    ) -> None:
        self._state = state
        self._before_preempting: Callable[[], None] | None = before_preempting
        self._refused = refused
        self.starts: list[Start] = []
        self.victims = 0
        self._done: list[tuple[EquivalenceClass, UniqueRank, Start, tuple[Candidate, ...]]] = []
        self._heads: list[tuple[UniqueRank, int, EquivalenceClass]] = []
        self._seen: set[EquivalenceClass] = set()
        self.short_of_victims: list[EquivalenceClass] = []
        """Classes refused because as many jobs as allowed have been preempted recently."""
        self._patient: list[EquivalenceClass] = []
        """Classes that may not preempt, and did not fit on idle GPUs."""

    def offer_to(self, classes: Iterable[EquivalenceClass]) -> None:
        """Try the first job of each class, in rank order, until no more jobs fit."""
        self._join(classes)
        while self._heads:
            rank, _, job_class = heapq.heappop(self._heads)
            start = self._try(job_class, rank)
            if start is None:
                continue
            self._note(start, job_class)
            if start.victims:
                # Victims may have freed more than was needed, so skipped classes may fit now.
                skipped = [one for one in self._state.classes if one not in self._seen]
                patient, self._patient = self._patient, []
                self._join([*skipped, *patient])

    def _join(self, classes: Iterable[EquivalenceClass]) -> None:
        for job_class in classes:
            rank = self._state.first(job_class) if job_class.waiting else None
            if rank is None:
                continue
            without_reasons = self._refused is None and not job_class.only_idle
            if without_reasons and not self._state.may_have_room(job_class, rank.level):
                # Unless a job is preempted, there will be no more room at this job's turn.
                self._state.refuse(job_class, rank)
                self._seen.discard(job_class)
                continue
            self._seen.add(job_class)
            heapq.heappush(self._heads, (rank, job_class.number, job_class))

    def _note(self, start: Start, job_class: EquivalenceClass) -> None:
        self.starts.append(start)
        if job_class.waiting:
            self._join([job_class])

    def _try(self, job_class: EquivalenceClass, rank: UniqueRank) -> Start | None:
        job_class.refused = None
        preemption = None
        if self._state.may_have_room(job_class, rank.level):
            start = self._try_idle(job_class, rank)
            if start:
                return start
            if not job_class.only_idle:
                if self._before_preempting:
                    self._before_preempting()
                    self._before_preempting = None
                preemption = self._state.by_preempting(job_class, rank.level)
            if preemption and self._may_preempt:
                return self._start_preempting(job_class, rank, preemption)
        self._state.refuse(job_class, rank)
        if job_class.only_idle:
            self._patient.append(job_class)
        elif preemption:
            self.short_of_victims.append(job_class)
            # Later, when other jobs lose least, fewer victims may do.
            job_class.told_in = -1
        if self._refused:
            self._refused(job_class, rank, preemption)
        return None

    @property
    def _may_preempt(self) -> bool:
        return self._state.recent_victims.jobs + self.victims < self._state.victim_rate.most

    def _try_idle(self, job_class: EquivalenceClass, rank: UniqueRank) -> Start | None:
        allocation = self._state.on_idle(job_class)
        if allocation is None:
            return None
        self._state.start(job_class, rank, allocation)
        start = Start(rank.job_id, allocation)
        self._done.append((job_class, rank, start, ()))
        return start

    def _start_preempting(
        self, job_class: EquivalenceClass, rank: UniqueRank, preemption: PreemptionPlan
    ) -> Start:
        for candidate in preemption.victims:
            self._state.preempt(candidate)
        self.victims += len(preemption.victims)
        self._state.start(job_class, rank, preemption.allocation)
        victims = tuple(candidate.job_id for candidate in preemption.victims)
        start = Start(rank.job_id, preemption.allocation, victims)
        self._done.append((job_class, rank, start, preemption.victims))
        return start

    def undo(self) -> None:
        """Restore the state as it was before this pass."""
        for job_class, rank, start, victims in reversed(self._done):
            self._state.take_back(job_class, rank, start, victims)
