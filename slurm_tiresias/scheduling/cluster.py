"""Which jobs run, which wait and what is free: all that the choice of the next starts depends on.

The state is kept from event to event: told what changes, it looks only at the jobs for which that
may make a difference, and chooses the same starts and victims as a state that is set up from
nothing. Pure: no I/O and no clock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from slurm_tiresias.model import ANY_TYPE, Allocation, Amount, Node, PlacementStyle, Request
from slurm_tiresias.placement.candidate_index import CandidateIndex
from slurm_tiresias.placement.candidate_matrix import Candidate, Preemptor
from slurm_tiresias.placement.choose import goes_by_count, place_on_any
from slurm_tiresias.placement.free_resources import FreeResources, NodeSet
from slurm_tiresias.placement.node_index import NodeIndex
from slurm_tiresias.placement.victims import PreemptionPlan, find_victims, preemption_cost
from slurm_tiresias.policy.job_rank import Key, UniqueRank


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """Waiting jobs of one level that ask alike: where the first does not fit, none does."""

    number: int
    request: Request
    style: PlacementStyle
    sets: tuple[NodeSet, ...]
    """The nodes it may use, one set for each of its partitions."""
    only_idle: bool
    """This class may use idle resources only; it never preempts."""
    nodes: NodeSet = 0
    gpus: int = 0
    whole: Amount | None = None
    """What it takes on one node, if the whole job fits one and only the GPU count matters."""
    waiting: list[UniqueRank] = field(default_factory=list)
    """A heap; ranks that are no longer those of a waiting job lie in it until they come up."""
    refused: Key | None = None
    """The level of the first of them when it was last refused."""
    refused_in: int = -1
    """How often room had grown by then: the refusal stands until it has grown again."""
    told_in: int = -1
    """The version of the state for which the caller has been told why this class is refused."""

    def __post_init__(self) -> None:
        for nodes in self.sets:
            self.nodes |= nodes
        self.gpus = self.request.chunks * self.request.chunk.gpu_count


class Start(NamedTuple):
    """A job that starts now, where, and which jobs are preempted for it."""

    job_id: str
    allocation: Allocation
    victims: tuple[str, ...] = ()


Refused = Callable[[EquivalenceClass, UniqueRank, PreemptionPlan | None], None]


class ClusterState:
    """The state of a cluster between decisions.

    ``last_resort`` are nodes used only where no others will do. ``choose`` books what it decides
    (each start has taken its GPUs, each victim has given them back): its caller carries it out.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        last_resort: Iterable[str] = (),
        most_victims: float = math.inf,
    ) -> None:
        everywhere = sorted(nodes, key=lambda node: node.name)
        self.node_index = NodeIndex(everywhere)
        self.free = FreeResources(everywhere)
        self._last_resort = self.free.nodes(last_resort)
        self.most_victims = most_victims
        self._candidates = CandidateIndex(self.free)
        self._running: dict[str, Candidate] = {}
        self._protection_ends: list[tuple[float, int, Candidate]] = []
        """When protections end. Numbered, for a job that is protected twice until one moment."""
        self._end_numbers = count()
        self._classes: dict[Hashable, EquivalenceClass] = {}
        self._waiting: dict[str, tuple[UniqueRank, EquivalenceClass]] = {}
        self._to_try: set[EquivalenceClass] = set()
        self._room_grew = False
        self._growth = 0
        """How often room has grown."""
        self._version = 0
        """How often anything has changed that a refusal, or its reason, may depend on."""

    # What changes

    def class_of(
        self, key: Hashable, request: Request, style: PlacementStyle, *, only_idle: bool = False
    ) -> EquivalenceClass:
        """The equivalence class that goes by this key, which tells all that its jobs ask for."""
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
        one_set = not self._last_resort and not self.free.has_types and len(job_class.sets) == 1
        any_node_will_do = together and one_set and goes_by_count(job_class.request)
        return Amount({ANY_TYPE: job_class.gpus}) if any_node_will_do else None

    def wait(self, rank: UniqueRank, job_class: EquivalenceClass) -> None:
        """A job waits, or waits with another rank than before."""
        self._waiting[rank.job_id] = (rank, job_class)
        heapq.heappush(job_class.waiting, rank)
        outdated = job_class.refused_in != self._growth
        if outdated or job_class.refused is None or rank.level < job_class.refused:
            self._to_try.add(job_class)

    def withdraw(self, job_id: str) -> None:
        """A job waits no longer, and has not been started."""
        del self._waiting[job_id]

    def book(self, allocation: Allocation) -> None:
        """These resources are taken."""
        self.free.take(allocation)
        self._version += 1

    def give_back(self, allocation: Allocation) -> None:
        """These resources, booked before, are idle again."""
        self.free.give(allocation)
        self._note_growth()

    @property
    def last_resort(self) -> NodeSet:
        """The nodes that are used only where no others will do."""
        return self._last_resort

    @last_resort.setter
    def last_resort(self, nodes: NodeSet) -> None:
        if nodes == self._last_resort:
            return
        self._last_resort = nodes
        for job_class in self._classes.values():
            job_class.whole = self._whole(job_class)
        self._note_growth()

    def run(
        self,
        rank: UniqueRank,
        allocation: Allocation,
        gpus: int,
        protected_until_s: float = -math.inf,
    ) -> None:
        """The job that has booked these resources may be preempted, once it is not protected."""
        self._version += 1
        protected = protected_until_s > -math.inf
        candidate = Candidate(rank, allocation, self.free.nodes(allocation), gpus, protected)
        self._running[rank.job_id] = candidate
        self._candidates.enter(candidate)
        if protected and protected_until_s < math.inf:
            heapq.heappush(
                self._protection_ends, (protected_until_s, next(self._end_numbers), candidate)
            )

    def rerank(self, rank: UniqueRank) -> None:
        """A running job has come to stand elsewhere."""
        candidate = self._running[rank.job_id]
        if candidate.rank == rank:
            return
        self._version += 1
        if rank.level > candidate.rank.level:
            self._note_growth()
        self._candidates.leave(candidate)
        candidate.rank = rank
        self._candidates.enter(candidate)

    def rerank_all(self, ranks: Iterable[UniqueRank]) -> None:
        """Many running jobs have come to stand elsewhere, most of them inside their level."""
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
        """A running job has ended, or holds other resources than before."""
        candidate = self._running.pop(job_id)
        self._candidates.leave(candidate)
        self.free.give(candidate.allocation)
        self._note_growth()

    def _note_growth(self) -> None:
        self._room_grew = True
        self._growth += 1
        self._version += 1

    def refuse(self, job_class: EquivalenceClass, rank: UniqueRank) -> None:
        """The first of a class has no room; the class is tried again once room has grown."""
        job_class.refused, job_class.refused_in = rank.level, self._growth
        job_class.told_in = self._version

    def is_running(self, job_id: str) -> bool:
        """Whether the job runs and has not been chosen as a victim."""
        return job_id in self._running

    @property
    def next_try_s(self) -> float:
        """When to choose again though no job comes or goes: at once, or when a protection ends."""
        if self._room_grew:
            return -math.inf
        return self._next_protection_end_s() if self._protection_ends else math.inf

    def _next_protection_end_s(self) -> float:
        """When the next protection ends that a waiting job may be waiting for."""
        while self._protection_ends:
            candidate = self._protection_ends[0][2]
            if self._running.get(candidate.job_id) is candidate:
                break
            heapq.heappop(self._protection_ends)
        return self._protection_ends[0][0] if self._protection_ends and self._waiting else math.inf

    @property
    def classes(self) -> Iterable[EquivalenceClass]:
        return list(self._classes.values())

    # What follows from it

    def choose(
        self,
        now_s: float,
        refused: Refused | None = None,
        before_preempting: Callable[[], None] = lambda: None,
    ) -> list[Start]:
        """The jobs that start now, in the order of their ranks, and the victims of each.

        ``refused`` is called for the first job of every class that has no room at its turn, with
        the victims that it would have but for the limit of victims. ``before_preempting`` is called
        once, before the first look at running jobs as victims: the last moment to ``rerank``.
        """
        if not self._waiting:
            self._room_grew = False
            self._to_try.clear()
            return []
        if self._protection_ends:
            self._end_protections(now_s)
        if not self._room_grew and not self._to_try:
            return []
        if len(self._waiting) == 1:
            start = self._start_at_once()
            if start:
                return [start]
        # Jobs that may use idle GPUs only have their turn in every pass: what a preemption leaves
        # over goes to those of later rank at their turn, and to those of earlier rank at the end.
        to_try = [
            job_class
            for job_class in self._classes.values()
            if self._room_grew or job_class.only_idle or job_class in self._to_try
        ]
        self._room_grew = False
        self._to_try = set()
        this_pass = self._pass_over(to_try, refused, before_preempting)
        if this_pass.short_of_victims:
            self._note_growth()
        return this_pass.starts

    def try_out(self, now_s: float, refused: Refused) -> list[Start]:
        """What ``choose`` would start, and preempt for it; the state stays as it is.

        ``refused`` is told of every class with a waiting job that has no room, unless it was told
        before and nothing has changed since on which that depends.
        """
        self._end_protections(now_s)
        waiting = [job_class for job_class in self._classes.values() if job_class.waiting]
        untold = [job_class for job_class in waiting if job_class.told_in != self._version]
        this_pass = self._pass_over(untold, refused)
        if not this_pass.starts:
            return []
        if len(untold) < len(waiting):
            # What is told of a class holds at its turn, after the starts of those before it.
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
        if this_pass.victims:
            this_pass.offer_what_is_left()
        return this_pass

    def _start_at_once(self) -> Start | None:
        """The start of the only job that waits, if it needs no victims."""
        ((rank, job_class),) = self._waiting.values()
        allocation = self.on_idle(job_class) if self.free.most_free_gpus >= job_class.gpus else None
        if allocation is None:
            return None
        self.free.take(allocation)
        self._waiting.clear()
        job_class.waiting.clear()
        job_class.refused = None
        self._to_try.clear()
        self._room_grew = False
        return Start(rank.job_id, allocation)

    def _end_protections(self, now_s: float) -> None:
        while self._protection_ends and self._next_protection_end_s() <= now_s:
            _, _, candidate = heapq.heappop(self._protection_ends)
            self._candidates.unprotect(candidate)
            self._note_growth()

    def first(self, job_class: EquivalenceClass) -> UniqueRank | None:
        """The first of the waiting jobs of a class."""
        while job_class.waiting:
            rank = job_class.waiting[0]
            current = self._waiting.get(rank.job_id)
            if current is not None and current[0] is rank and current[1] is job_class:
                return rank
            heapq.heappop(job_class.waiting)
        return None

    def may_have_room(
        self, job_class: EquivalenceClass, level: Key, *, even_protected: bool = False
    ) -> bool:
        """Whether there are enough GPUs, idle or to be freed by victims; not whether they fit."""
        missing = job_class.gpus - self.free.most_free_gpus
        if missing <= 0:
            return True
        if job_class.only_idle:
            return False
        return self._candidates.gpus_below(level, even_protected=even_protected) >= missing

    def on_idle(self, job_class: EquivalenceClass) -> Allocation | None:
        """Where a job of this class fits on idle GPUs."""
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
        """Room made by jobs of lower levels; nothing is booked."""
        if not self._candidates.any_below(level):
            return None
        best = None
        for nodes in job_class.sets:
            preemptor = Preemptor(job_class.request, job_class.style, nodes, level, even_protected)
            found = find_victims(preemptor, self.free, self._candidates, self._last_resort)
            if found and (
                best is None or preemption_cost(found.victims) < preemption_cost(best.victims)
            ):
                best = found
        return best

    def start(self, job_class: EquivalenceClass, rank: UniqueRank, allocation: Allocation) -> None:
        """Carry out one start."""
        self.free.take(allocation)
        heapq.heappop(job_class.waiting)
        del self._waiting[rank.job_id]

    def take_back(
        self,
        job_class: EquivalenceClass,
        rank: UniqueRank,
        start: Start,
        victims: Iterable[Candidate],
    ) -> None:
        """Undo a start, and the preemptions for it."""
        self.free.give(start.allocation)
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
        # All that wait are offered what it leaves over in this very pass: no need for another.
        self._growth += 1


class SchedulingPass:
    """One walk over the waiting jobs, in the order of their ranks."""

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
        """Classes that would need more victims than one cycle may have."""
        self._patient: list[EquivalenceClass] = []

    def offer_to(self, classes: Iterable[EquivalenceClass]) -> None:
        """Let the first job of each class try, by rank, until no more jobs fit."""
        self._join(classes)
        while self._heads:
            rank, _, job_class = heapq.heappop(self._heads)
            start = self._try(job_class, rank)
            if start is None:
                continue
            self._note(start, job_class)
            if start.victims:
                # Victims may have freed more than was needed, also for classes refused before.
                self._join(
                    job_class for job_class in self._state.classes if job_class not in self._seen
                )

    def offer_what_is_left(self) -> None:
        """Once all classes have had their turn: for those that may not preempt, or not any more."""
        self._join([*self.short_of_victims, *self._patient])
        while self._heads:
            rank, _, job_class = heapq.heappop(self._heads)
            if start := self._try_idle(job_class, rank):
                self._note(start, job_class)

    def _join(self, classes: Iterable[EquivalenceClass]) -> None:
        for job_class in classes:
            rank = self._state.first(job_class) if job_class.waiting else None
            if rank is None:
                continue
            without_reasons = self._refused is None and not job_class.only_idle
            if without_reasons and not self._state.may_have_room(job_class, rank.level):
                # Without a victim there will be no more room when its turn comes.
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
            if preemption and self.victims + len(preemption.victims) <= self._state.most_victims:
                return self._start_preempting(job_class, rank, preemption)
        self._state.refuse(job_class, rank)
        if job_class.only_idle:
            self._patient.append(job_class)
        elif preemption:
            self.short_of_victims.append(job_class)
        if self._refused:
            self._refused(job_class, rank, preemption)
        return None

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
        """Leave the state as it was before this pass."""
        for job_class, rank, start, victims in reversed(self._done):
            self._state.take_back(job_class, rank, start, victims)
