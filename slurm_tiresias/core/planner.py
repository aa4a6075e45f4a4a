"""The planner: follows a cluster from snapshot to snapshot and makes a decision for each job.

A planner passes the differences between two snapshots to its engine, and reuses each decision whose
reasons are unchanged. Its plans are the same as those of a new planner.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import zip_longest
from operator import itemgetter

from slurm_tiresias.config import Config
from slurm_tiresias.core.cluster import EquivalenceClass, Start
from slurm_tiresias.core.engine import Engine
from slurm_tiresias.core.features.job_rank import JobRank, UniqueRank, job_id_key
from slurm_tiresias.core.features.policy import Policy, rank_of
from slurm_tiresias.core.placement.choose import style_of
from slurm_tiresias.core.waiting import WhyJobsWait
from slurm_tiresias.model import (
    NOWHERE,
    Action,
    Allocation,
    Decision,
    JobState,
    JobView,
    Lane,
    Node,
    PlacementStyle,
    Plan,
    Protection,
    Reason,
    Snapshot,
)

IN_VAIN = (
    "jobs were preempted for it, and none is again until one of its nodes or its request changes"
)
MANY_CHANGED = 8
"""If more than 1 in ``MANY_CHANGED`` jobs changed rank, sorting all beats moving each."""
MOST_LEFT_OVER = 1000
"""Outdated requests that may accumulate in the engine before the planner starts afresh."""


class _Part(Enum):
    """The role of a job in the cluster state."""

    RUNS = auto()
    """A running managed job: a preemption candidate, protected or not."""
    HOLDS = auto()
    """A nominated job: its resources are booked, and it is not a preemption candidate."""
    WAITS = auto()
    NONE = auto()


@dataclass(slots=True, eq=False)
class _Entry:
    """A managed job as it was last seen."""

    job: JobView
    rank: UniqueRank
    tier: int
    promoted: bool
    part: _Part
    holds: Allocation
    job_class: EquivalenceClass | None = None


class Planner:
    """Plans for one cluster, policy and configuration, snapshot after snapshot."""

    def __init__(self, policy: Policy, config: Config) -> None:
        self._config = config
        self._policy = policy
        self._now_s = -math.inf
        self._nodes: tuple[Node, ...] = ()
        self._begin(())

    def _begin(self, nodes: tuple[Node, ...]) -> None:
        self._nodes = nodes
        self._engine = Engine(self._policy, self._config, nodes)
        self._seen: tuple[JobView, ...] = ()
        """The jobs of the last snapshot. A job is unchanged if its object is the same."""
        self._seen_ids: set[int] = set()
        """``id()`` of each job in ``_seen``."""
        self._jobs: dict[str, _Entry] = {}
        self._foreign: dict[str, JobView] = {}
        """The unmanaged jobs by id."""
        self._foreign_order: list[str] | None = None
        """Sorted ids of the unmanaged jobs; None if they must be sorted again."""
        self._order: list[UniqueRank] | None = None
        """Sorted ranks of the managed jobs; None if they must be sorted again."""
        self._ids: list[str] = []
        """Job ids in the order of ``_order``; faster than reading each rank's."""
        self._moves = 0
        self._decided: dict[str, Decision] = {}
        """The last decision for each job; outdated for jobs in ``_undecided``."""
        self._in_order = True
        """Whether ``_decided`` is in the order of a plan: by rank, unmanaged jobs last."""
        self._undecided: set[str] = set()
        self._completing: dict[str, JobView] = {}
        self._due: list[tuple[float, str]] = []
        self._due_s: dict[str, float] = {}
        """When waiting jobs will be promoted."""
        self._why = WhyJobsWait(self._engine, self._config)
        self._runners_changed = True

    def plan(self, snapshot: Snapshot, policy: Policy | None = None) -> Plan:
        """Make a decision for each job of a snapshot. ``policy`` replaces the previous policy."""
        if policy is not None and policy != self._policy:
            self._policy, self._seen = policy, ()
        self._update(snapshot)
        return self._plan()

    # Differences from the previous snapshot

    def _update(self, snapshot: Snapshot) -> None:
        # The state cannot be updated if nodes have changed or time has gone back.
        left_over = self._engine.known_requests - len(snapshot.jobs)
        if (
            not self._seen
            or snapshot.now_s < self._now_s
            or left_over > MOST_LEFT_OVER
            or not _same_nodes(self._nodes, snapshot.nodes)
        ):
            self._begin(snapshot.nodes)
        self._nodes, self._now_s = snapshot.nodes, snapshot.now_s
        gone, come = self._differences(snapshot.jobs)
        there = {job.job_id for job in come}
        for job in gone:
            if job.job_id not in there:
                self._remove(job.job_id)
        for job in come:
            self._take_in(job)
        self._seen = snapshot.jobs
        self._promote_starved()
        later = {node for job in self._completing.values() for node in job.allocation}
        later.update(node.name for node in snapshot.nodes if node.powered_down)
        self._engine.state.last_resort = self._engine.state.free.nodes(later)
        self._engine.state.recent_victims = snapshot.recent_victims

    def _differences(
        self, jobs: tuple[JobView, ...]
    ) -> tuple[Sequence[JobView], Sequence[JobView]]:
        """Return the jobs that were removed since the last snapshot, and those that were added.

        Jobs are compared by identity in one walk through both lists, because most are the same
        objects in the same order. A job whose position has changed may be in both results.
        """
        if not self._seen:
            self._seen_ids.update(map(id, jobs))
            return [], jobs
        gone: list[JobView] = []
        come: list[JobView] = []
        befores, afters = iter(self._seen), iter(jobs)
        for before, after in zip_longest(befores, afters):
            if before is after:
                continue
            while after is not None and id(after) not in self._seen_ids:
                come.append(after)
                after = next(afters, None)
            while before is not None and before is not after:
                gone.append(before)
                before = next(befores, None)
            if after is not None and before is None:
                come.append(after)
        self._seen_ids.difference_update(map(id, gone))
        self._seen_ids.update(map(id, come))
        return gone, come

    def _take_in(self, job: JobView) -> None:
        before = self._jobs.get(job.job_id)
        if before is not None and job.managed and self._stays_in_its_part(before, job):
            return
        if before is not None or job.job_id in self._foreign:
            self._remove(job.job_id)
        if job.state is JobState.COMPLETING:
            self._completing[job.job_id] = job
        if job.managed:
            self._add(job)
            return
        self._foreign[job.job_id] = job
        self._foreign_order = None
        self._in_order = False
        self._decided[job.job_id] = Decision(
            job.job_id, Action.LEAVE, Reason.UNMANAGED, detail=job.unmanaged_because
        )
        if job.state is JobState.RUNNING:
            self._engine.state.book(job.allocation)
            self._runners_changed = True

    def _add(self, job: JobView) -> None:
        job_rank, promoted = self._judge(job)
        rank = UniqueRank.of(job.job_id, job_rank)
        part, holds = self._part_of(job)
        entry = self._jobs[job.job_id] = _Entry(job, rank, job_rank.tier, promoted, part, holds)
        self._undecided.add(job.job_id)
        self._list(rank)
        if part is _Part.WAITS:
            entry.job_class = self._engine.put_in_queue(job, rank)
        elif part is not _Part.NONE:
            self._engine.state.book(holds)
            if part is _Part.RUNS:
                self._engine.put_on_nodes(job, rank, self._now_s)
                self._runners_changed = True

    def _remove(self, job_id: str) -> None:
        self._completing.pop(job_id, None)
        self._undecided.discard(job_id)
        self._in_order = False
        state = self._engine.state
        if job_id in self._foreign:
            job = self._foreign.pop(job_id)
            self._foreign_order = None
            if job.state is JobState.RUNNING:
                state.give_back(job.allocation)
                self._runners_changed = True
            return
        entry = self._jobs.pop(job_id)
        self._unlist(entry.rank)
        if entry.part is _Part.WAITS:
            state.withdraw(job_id)
        elif entry.part is _Part.RUNS:
            state.leave(job_id)
            self._runners_changed = True
        elif entry.part is _Part.HOLDS:
            state.give_back(entry.holds)

    def _stays_in_its_part(self, entry: _Entry, job: JobView) -> bool:
        """Update a job that still runs or waits; False if it must be removed and added again."""
        before = entry.job
        part, _ = self._part_of(job)
        if part is not entry.part or part not in (_Part.RUNS, _Part.WAITS):
            return False
        job_rank, promoted = self._judge(job)
        moves = (job_rank.level, job_rank.order_key) != (entry.rank.level, entry.rank.order_key)
        if part is _Part.RUNS:
            if not _runs_on_unchanged(before, job):
                return False
            if moves:
                self._unlist(entry.rank)
                entry.rank = UniqueRank.of(job.job_id, job_rank)
                self._list(entry.rank)
                self._engine.state.rerank(entry.rank)
                self._runners_changed = True
            if job_rank.tier != entry.tier or job.leaves_idle != before.leaves_idle:
                self._undecided.add(job.job_id)
            if job.at_stake != before.at_stake:
                self._engine.restake(job, self._now_s)
                self._runners_changed = True
        else:
            if moves or self._engine.class_of(job, job_rank.level) is not entry.job_class:
                return False
            self._undecided.add(job.job_id)
        entry.job, entry.tier, entry.promoted = job, job_rank.tier, promoted
        return True

    def _part_of(self, job: JobView) -> tuple[_Part, Allocation]:
        if job.state is JobState.RUNNING:
            # A victim that is leaving no longer counts as running.
            return (_Part.NONE, NOWHERE) if job.preemptor else (_Part.RUNS, job.allocation)
        if job.state is not JobState.PENDING or blocked_by_slurm(job):
            return _Part.NONE, NOWHERE
        if job.nominated_to is not None and self._is_there(job, job.nominated_to):
            return _Part.HOLDS, job.nominated_to
        return (_Part.NONE if job.cools_down else _Part.WAITS), NOWHERE

    def _is_there(self, job: JobView, on: Allocation) -> bool:
        """Whether all nodes of a nomination exist and the job may use them."""
        node_index, nominated = (
            self._engine.state.node_index,
            self._engine.state.free.nodes(on),
        )
        if nominated.bit_count() != len(on):
            return False
        return any(
            not nominated & ~nodes for nodes in node_index.sets_for(job.request, node_index.usable)
        )

    # Ranks

    def _judge(self, job: JobView) -> tuple[JobRank, bool]:
        """Return the rank of a job, and whether it is promoted now."""
        due_s = self._policy.promotion.due_s(job)
        if due_s == math.inf or job.lane is not Lane.PREEMPTIBLE or blocked_by_slurm(job):
            return rank_of(job, self._policy), False
        promoted = due_s <= self._now_s
        if not promoted and self._due_s.get(job.job_id) != due_s:
            self._due_s[job.job_id] = due_s
            heapq.heappush(self._due, (due_s, job.job_id))
        if promoted:
            # A promotion resets the charged service to zero (paper page 491).
            job = replace(
                job,
                attained_since_promotion_gpu_s=0.0,
                executed_since_promotion_s=0.0,
                inherited_gpu_s=0.0,
            )
        return rank_of(job, self._policy), promoted

    def _promote_starved(self) -> None:
        while self._due and self._due[0][0] <= self._now_s:
            due_s, job_id = heapq.heappop(self._due)
            if self._due_s.get(job_id) != due_s:
                continue
            del self._due_s[job_id]
            entry = self._jobs.get(job_id)
            if entry is not None and not entry.promoted and self._judge(entry.job)[1]:
                job = entry.job
                self._remove(job_id)
                self._take_in(job)

    def _list(self, rank: UniqueRank) -> None:
        """Insert a rank into the sorted order."""
        if (order := self._order_to_change()) is not None:
            place = bisect_left(order, rank)
            order.insert(place, rank)
            self._ids.insert(place, rank.job_id)

    def _unlist(self, rank: UniqueRank) -> None:
        if (order := self._order_to_change()) is not None:
            place = bisect_left(order, rank)
            del order[place], self._ids[place]

    def _order_to_change(self) -> list[UniqueRank] | None:
        """Count one more change and return the order; None if it will be sorted again anyway."""
        self._in_order = False
        if self._order is not None:
            self._moves += 1
            if self._moves * MANY_CHANGED > len(self._ids):
                self._order = None
        return self._order

    # Decisions

    def _plan(self) -> Plan:
        if self._order is None:
            self._order = sorted(entry.rank for entry in self._jobs.values())
            self._ids = [rank.job_id for rank in self._order]
        self._moves = 0
        if self._runners_changed:
            runs = (entry for entry in self._jobs.values() if entry.part is _Part.RUNS)
            ranked = sorted(((entry.rank, entry.job) for entry in runs), key=itemgetter(0))
            foreign = [job for job in self._foreign.values() if job.state is JobState.RUNNING]
            foreign.sort(key=lambda job: job_id_key(job.job_id))
            self._why.follow(ranked, foreign)
            self._runners_changed = False
        self._why.begin(self._now_s)
        starts = self._engine.state.try_out(self._now_s, self._why.note)
        if self._why.changed:
            for entry in self._jobs.values():
                if entry.job_class in self._why.changed:
                    self._undecided.add(entry.job.job_id)
        passing = dict(self._pass_on(starts))
        undecided: Collection[str] = self._undecided - passing.keys()
        if len(undecided) * MANY_CHANGED > len(self._ids):
            # Deciding in rank order leaves less to sort afterwards.
            undecided = [job_id for job_id in self._ids if job_id in undecided]
        for job_id in undecided:
            self._decided[job_id] = self._decision(self._jobs[job_id])
        self._decided.update(passing)
        # Decisions to start or preempt hold for this plan only.
        self._undecided = set(passing)
        if not self._in_order:
            if self._foreign_order is None:
                self._foreign_order = sorted(self._foreign, key=job_id_key)
            ids = self._ids + self._foreign_order
            self._decided = dict(zip(ids, map(self._decided.__getitem__, ids), strict=True))
            self._in_order = True
        return Plan(self._decided.copy())

    def _pass_on(self, starts: Iterable[Start]) -> Iterator[tuple[str, Decision]]:
        """Yield the decision for each job that starts and for each of its victims."""
        for start in starts:
            entry = self._jobs[start.job_id]
            reason = Reason.STARTS_PREEMPTING if start.victims else Reason.STARTS
            yield start.job_id, self._start(entry, start.allocation, reason, start.victims)
            for job_id in start.victims:
                victim = self._jobs[job_id]
                yield (
                    job_id,
                    _verdict(victim, Action.PREEMPT, Reason.PREEMPTED, preempted_for=start.job_id),
                )

    def _decision(self, entry: _Entry) -> Decision:
        job = entry.job
        if entry.part is _Part.WAITS:
            if job.backs_off:
                return _verdict(entry, Action.WAIT, Reason.BACKS_OFF, IN_VAIN * job.in_vain)
            if job.over_budget:
                return _verdict(entry, Action.WAIT, Reason.OVER_BUDGET)
            assert entry.job_class is not None
            why = self._why.of(entry.job_class)
            detail = job.lane_because if why.reason is Reason.IDLE_ONLY else why.detail
            return _verdict(entry, Action.WAIT, why.reason, detail, blockers=why.blockers)
        if job.state is JobState.COMPLETING:
            return _verdict(entry, Action.WAIT, Reason.COMPLETING)
        if job.state is JobState.RUNNING:
            if job.preemptor:
                return _verdict(entry, Action.WAIT, Reason.VACATING, preempted_for=job.preemptor)
            if job.leaves_idle:
                return _verdict(entry, Action.PREEMPT, Reason.IDLE_GPUS)
            return _verdict(entry, Action.RUN_ON, Reason.RUNS_ON)
        if blocked := blocked_by_slurm(job):
            return _verdict(entry, Action.WAIT, blocked, job.not_eligible or job.awaited_limit)
        if entry.part is _Part.HOLDS:
            return self._start(entry, entry.holds, Reason.NOMINATED)
        return _verdict(entry, Action.WAIT, Reason.BACKS_OFF)

    def _start(
        self, entry: _Entry, on: Allocation, reason: Reason, victims: tuple[str, ...] = ()
    ) -> Decision:
        style = style_of(entry.job, self._config.placement)
        return _verdict(entry, Action.START, reason, start_on=on, style=style, victims=victims)


def blocked_by_slurm(job: JobView) -> Reason | None:
    """Return why Slurm itself would not start the job now; None if nothing blocks it."""
    if job.held:
        return Reason.HELD
    if job.not_eligible:
        return Reason.SLURM_WAITS
    return Reason.SHARES_LIMIT if job.awaited_limit else None


def _runs_on_unchanged(before: JobView, job: JobView) -> bool:
    """Whether the allocation and the protection of a running job are unchanged."""
    return (
        (job.allocation is before.allocation or job.allocation == before.allocation)
        and job.running_since_s == before.running_since_s
        and job.protected_by is before.protected_by
        and job.preemptions == before.preemptions
        and job.learned == before.learned
        and job.fair == before.fair
        and job.ranks_last == before.ranks_last
    )


def _same_nodes(before: tuple[Node, ...], now: tuple[Node, ...]) -> bool:
    """Whether the nodes are equal in all that decisions depend on."""
    return before is now or (
        len(before) == len(now)
        and all(
            a is b or a == (b if a.state == b.state else replace(b, state=a.state))
            for a, b in zip(before, now, strict=True)
        )
    )


def _verdict(
    entry: _Entry,
    action: Action,
    reason: Reason,
    detail: str = "",
    *,
    start_on: Allocation = NOWHERE,
    style: PlacementStyle | None = None,
    victims: tuple[str, ...] = (),
    preempted_for: str = "",
    blockers: tuple[tuple[str, Protection], ...] = (),
) -> Decision:
    return Decision(
        entry.job.job_id,
        action,
        reason,
        detail,
        entry.tier,
        start_on,
        style,
        victims,
        preempted_for,
        blockers,
        entry.promoted,
    )
