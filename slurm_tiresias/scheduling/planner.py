"""Follows a cluster from snapshot to snapshot, and decides for every job what becomes of it.

A planner tells its engine what differs between two snapshots, and keeps every decision whose
reasons are as they were. What it plans is what a new planner would plan.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from operator import attrgetter

from slurm_tiresias.config import Config
from slurm_tiresias.model import (
    NOWHERE,
    Action,
    Allocation,
    Decision,
    Guard,
    JobState,
    JobView,
    Node,
    PlacementStyle,
    Plan,
    Reason,
    Snapshot,
)
from slurm_tiresias.placement.choose import style_of
from slurm_tiresias.policy.policy import Policy
from slurm_tiresias.policy.standing import Rank, job_id_key
from slurm_tiresias.scheduling.cluster import EquivalenceClass, Start
from slurm_tiresias.scheduling.engine import Engine
from slurm_tiresias.scheduling.waiting import WhyJobsWait

MANY_CHANGED = 8
"""Where one in so many jobs has another rank, to sort all is faster than to move each."""
MOST_LEFT_OVER = 1000
"""Requests that no job makes any more, before the planner begins anew."""


class _Part(Enum):
    """What part a job plays in the state of the cluster."""

    RUNS = auto()
    """Managed: it may be preempted, or is protected."""
    HOLDS = auto()
    """Its resources are taken, and that is all: not managed, or about to start."""
    WAITS = auto()
    NONE = auto()


@dataclass(slots=True, eq=False)
class _Entry:
    """A managed job as it was last seen, and what was decided for it."""

    job: JobView
    rank: Rank
    tier: int
    promoted: bool
    part: _Part
    holds: Allocation
    group: EquivalenceClass | None = None
    decision: Decision | None = None
    """None: to be made."""


_rank_of = attrgetter("rank")


class Planner:
    """One cluster, policy and configuration, decision after decision."""

    def __init__(self, policy: Policy, config: Config) -> None:
        self._config = config
        self._policy = policy
        self._now_s = -math.inf
        self._nodes: tuple[Node, ...] = ()
        self._by_id: dict[int, JobView] = {}
        """The jobs of the last snapshot by their identity: what is the same object is unchanged."""
        self._begin(())

    def _begin(self, nodes: tuple[Node, ...]) -> None:
        self._nodes = nodes
        self._engine = Engine(self._policy, self._config, nodes)
        self._jobs: dict[str, _Entry] = {}
        self._foreign: dict[str, tuple[JobView, Decision]] = {}
        """The jobs that are not managed, with what is said of them."""
        self._foreign_order: list[str] | None = None
        """Their ids in order; None: to be sorted."""
        self._order: list[_Entry] | None = None
        """The managed jobs by rank; None: to be sorted."""
        self._moves = 0
        self._completing: dict[str, JobView] = {}
        self._due: list[tuple[float, str]] = []
        self._due_s: dict[str, float] = {}
        """When waiting jobs are promoted."""
        self._why = WhyJobsWait(self._engine, self._config)
        self._runners_changed = True
        self._passing: list[_Entry] = []
        """Jobs that the last plan started or preempted: that decision holds once."""

    def plan(self, snapshot: Snapshot, policy: Policy | None = None) -> Plan:
        """Decide for every job of a snapshot. ``policy`` replaces the one there was."""
        if policy is not None and policy != self._policy:
            self._policy, self._by_id = policy, {}
        self._update(snapshot)
        return self._plan()

    # What differs from the snapshot before

    def _update(self, snapshot: Snapshot) -> None:
        by_id = {id(job): job for job in snapshot.jobs}
        if self._must_begin_anew(snapshot):
            self._begin(snapshot.nodes)
            self._by_id = {}
        self._nodes, self._now_s = snapshot.nodes, snapshot.now_s
        if not self._by_id:
            changed: Iterable[JobView] = snapshot.jobs
        else:
            changed = [by_id[number] for number in by_id.keys() - self._by_id.keys()]
            there = {job.job_id for job in changed}
            for number in self._by_id.keys() - by_id.keys():
                job_id = self._by_id[number].job_id
                if job_id not in there:
                    self._remove(job_id)
        for job in changed:
            self._take_in(job)
        self._by_id = by_id
        self._promote_starved()
        completing = (node for job in self._completing.values() for node in job.allocation)
        self._engine.state.last_resort = self._engine.state.pool.nodes(completing)

    def _must_begin_anew(self, snapshot: Snapshot) -> bool:
        """Whether what is kept is of no use: nodes differ, or time has gone back."""
        left_over = self._engine.known_requests - len(snapshot.jobs)
        return (
            not self._by_id
            or snapshot.now_s < self._now_s
            or left_over > MOST_LEFT_OVER
            or not _same_nodes(self._nodes, snapshot.nodes)
        )

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
        self._foreign[job.job_id] = job, _leave(job)
        self._foreign_order = None
        if job.state is JobState.RUNNING:
            self._engine.state.book(job.allocation)
            self._runners_changed = True

    def _add(self, job: JobView) -> None:
        rank, tier, promoted = self._judge(job)
        part, holds = self._part_of(job)
        entry = self._jobs[job.job_id] = _Entry(job, rank, tier, promoted, part, holds)
        self._list(entry)
        if part is _Part.WAITS:
            entry.group = self._engine.put_in_queue(job, rank)
        elif part is not _Part.NONE:
            self._engine.state.book(holds)
            if part is _Part.RUNS:
                self._engine.put_on_nodes(job, rank, self._now_s)
                self._runners_changed = True

    def _remove(self, job_id: str) -> None:
        self._completing.pop(job_id, None)
        state = self._engine.state
        if job_id in self._foreign:
            job, _ = self._foreign.pop(job_id)
            self._foreign_order = None
            if job.state is JobState.RUNNING:
                state.free(job.allocation)
                self._runners_changed = True
            return
        entry = self._jobs.pop(job_id)
        self._unlist(entry)
        if entry.part is _Part.WAITS:
            state.withdraw(job_id)
        elif entry.part is _Part.RUNS:
            state.leave(job_id)
            self._runners_changed = True
        elif entry.part is _Part.HOLDS:
            state.free(entry.holds)

    def _stays_in_its_part(self, entry: _Entry, job: JobView) -> bool:
        """Take in what has changed of a job that waits on as it did, or runs on; false where the
        job must be taken out and put in again."""
        before = entry.job
        part, _ = self._part_of(job)
        if part is not entry.part or part not in (_Part.RUNS, _Part.WAITS):
            return False
        rank, tier, promoted = self._judge(job)
        if part is _Part.RUNS:
            if not _runs_on_unchanged(before, job):
                return False
            if rank != entry.rank:
                self._unlist(entry)
                entry.rank = rank
                self._list(entry)
                self._engine.state.rerank(rank)
                self._runners_changed = True
            if tier != entry.tier:
                entry.decision = None
        else:
            if rank != entry.rank or self._engine.class_of(job, rank.level) is not entry.group:
                return False
            entry.decision = None
        entry.job, entry.tier, entry.promoted = job, tier, promoted
        return True

    def _part_of(self, job: JobView) -> tuple[_Part, Allocation]:
        if job.state is JobState.RUNNING:
            # A job that is being requeued no longer counts as running.
            return (_Part.NONE, NOWHERE) if job.preemptor else (_Part.RUNS, job.allocation)
        if job.state is not JobState.PENDING or blocked_by_slurm(job):
            return _Part.NONE, NOWHERE
        if job.nominated_to is not None and self._is_there(job, job.nominated_to):
            return _Part.HOLDS, job.nominated_to
        return (_Part.NONE if job.cools_down else _Part.WAITS), NOWHERE

    def _is_there(self, job: JobView, on: Allocation) -> bool:
        """Whether all nodes of a nomination are there, and may serve the job."""
        fleet, nominated = self._engine.state.fleet, self._engine.state.pool.nodes(on)
        if nominated.bit_count() != len(on):
            return False
        return any(not nominated & ~nodes for nodes in fleet.sets_for(job.request, fleet.usable))

    # Ranks

    def _judge(self, job: JobView) -> tuple[Rank, int, bool]:
        """The job's rank and tier, and whether they are those of a promotion that is due."""
        promoted = False
        promotion = self._policy.promotion
        if promotion.knob > 0 and job.state is JobState.PENDING and not blocked_by_slurm(job):
            due_s = promotion.due_s(job)
            promoted = due_s <= self._now_s
            if not promoted and due_s < math.inf and self._due_s.get(job.job_id) != due_s:
                self._due_s[job.job_id] = due_s
                heapq.heappush(self._due, (due_s, job.job_id))
        standing = self._policy.standing(_reset(job) if promoted else job)
        return Rank.of(job.job_id, standing), standing.tier, promoted

    def _promote_starved(self) -> None:
        while self._due and self._due[0][0] <= self._now_s:
            due_s, job_id = heapq.heappop(self._due)
            if self._due_s.get(job_id) != due_s:
                continue
            del self._due_s[job_id]
            entry = self._jobs.get(job_id)
            if entry is not None and not entry.promoted and self._judge(entry.job)[2]:
                job = entry.job
                self._remove(job_id)
                self._take_in(job)

    def _list(self, entry: _Entry) -> None:
        """Put a job where it belongs in the order."""
        self._count_move()
        if self._order is not None:
            insort(self._order, entry, key=_rank_of)

    def _unlist(self, entry: _Entry) -> None:
        self._count_move()
        if self._order is not None:
            del self._order[bisect_left(self._order, entry.rank, key=_rank_of)]

    def _count_move(self) -> None:
        self._moves += 1
        if self._order is not None and self._moves * MANY_CHANGED > len(self._order):
            self._order = None

    # What is decided

    def _plan(self) -> Plan:
        if self._order is None:
            self._order = sorted(self._jobs.values(), key=_rank_of)
        self._moves = 0
        for entry in self._passing:
            entry.decision = None
        if self._runners_changed:
            self._why.follow(self._runners(), self._foreign_runners())
            self._runners_changed = False
        self._why.begin(self._now_s)
        starts = self._engine.state.try_out(self._now_s, self._why.note)
        if self._why.changed:
            for entry in self._order:
                if entry.group in self._why.changed:
                    entry.decision = None
        self._passing = list(self._pass_on(starts))
        decisions = {
            entry.job.job_id: entry.decision or self._decide(entry) for entry in self._order
        }
        if self._foreign_order is None:
            self._foreign_order = sorted(self._foreign, key=job_id_key)
        for job_id in self._foreign_order:
            decisions[job_id] = self._foreign[job_id][1]
        return Plan(decisions)

    def _runners(self) -> list[tuple[Rank, JobView]]:
        """The managed jobs that run, as they rank."""
        assert self._order is not None
        return [(entry.rank, entry.job) for entry in self._order if entry.part is _Part.RUNS]

    def _foreign_runners(self) -> list[JobView]:
        jobs = [job for job, _ in self._foreign.values() if job.state is JobState.RUNNING]
        return sorted(jobs, key=lambda job: job_id_key(job.job_id))

    def _pass_on(self, starts: Iterable[Start]) -> Iterable[_Entry]:
        """Note which jobs start, and which are preempted for them."""
        for start in starts:
            entry = self._jobs[start.job_id]
            reason = Reason.STARTS_PREEMPTING if start.victims else Reason.STARTS
            entry.decision = self._start(entry, start.allocation, reason, start.victims)
            yield entry
            for job_id in start.victims:
                victim = self._jobs[job_id]
                victim.decision = _verdict(
                    victim, Action.PREEMPT, Reason.PREEMPTED, preempted_for=start.job_id
                )
                yield victim

    def _decide(self, entry: _Entry) -> Decision:
        decision = entry.decision = self._decision(entry)
        return decision

    def _decision(self, entry: _Entry) -> Decision:
        job = entry.job
        if job.state is JobState.COMPLETING:
            return _verdict(entry, Action.WAIT, Reason.COMPLETING)
        if job.state is JobState.RUNNING:
            if job.preemptor:
                return _verdict(entry, Action.WAIT, Reason.VACATING, preempted_for=job.preemptor)
            return _verdict(entry, Action.RUN_ON, Reason.RUNS_ON)
        if blocked := blocked_by_slurm(job):
            return _verdict(entry, Action.WAIT, blocked, job.not_eligible)
        if entry.part is _Part.HOLDS:
            return self._start(entry, entry.holds, Reason.NOMINATED)
        if job.cools_down or job.backs_off:
            return _verdict(entry, Action.WAIT, Reason.BACKS_OFF)
        if job.over_budget:
            return _verdict(entry, Action.WAIT, Reason.OVER_BUDGET)
        assert entry.group is not None
        why = self._why.of(entry.group)
        return _verdict(entry, Action.WAIT, why.reason, why.detail, blockers=why.blockers)

    def _start(
        self, entry: _Entry, on: Allocation, reason: Reason, victims: tuple[str, ...] = ()
    ) -> Decision:
        style = style_of(entry.job, self._config.placement)
        return _verdict(entry, Action.START, reason, start_on=on, style=style, victims=victims)


def blocked_by_slurm(job: JobView) -> Reason | None:
    """Why Slurm itself would not start the job now."""
    if job.held:
        return Reason.HELD
    return Reason.SLURM_WAITS if job.not_eligible else None


def _runs_on_unchanged(before: JobView, job: JobView) -> bool:
    """Whether what a running job holds, and what protects it, is as it was."""
    return (
        (job.allocation is before.allocation or job.allocation == before.allocation)
        and job.running_since_s == before.running_since_s
        and job.protected_by is before.protected_by
        and job.preemptions == before.preemptions
    )


def _same_nodes(before: tuple[Node, ...], now: tuple[Node, ...]) -> bool:
    """Whether nothing has changed that a decision depends on."""
    return before is now or (len(before) == len(now) and all(map(_is_same_node, before, now)))


def _is_same_node(before: Node, now: Node) -> bool:
    return before is now or before == (
        now if before.state == now.state else replace(now, state=before.state)
    )


def _reset(job: JobView) -> JobView:
    """What a promotion makes of a job: all that counts back to zero (paper page 491)."""
    return replace(
        job,
        attained_since_promotion_gpu_s=0.0,
        executed_since_promotion_s=0.0,
        inherited_gpu_s=0.0,
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
    blockers: tuple[tuple[str, Guard], ...] = (),
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


def _leave(job: JobView) -> Decision:
    return Decision(job.job_id, Action.LEAVE, Reason.UNMANAGED, detail=job.unmanaged_because)
