"""The decision on every job, and its reason.

Each decision is kept until what it depends on changes: few do from one plan to the next.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from slurm_tiresias.core.cluster import ClusterState, Start
from slurm_tiresias.core.entry import Entry, Role
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.placement.choose import style_of
from slurm_tiresias.core.rank import UniqueRank, job_id_key
from slurm_tiresias.core.waiting import WhyJobsWait
from slurm_tiresias.model import (
    NOWHERE,
    Action,
    Allocation,
    Decision,
    JobState,
    PlacementStyle,
    Plan,
    Protection,
    Reason,
)
from slurm_tiresias.settings import Config

IN_VAIN = (
    "jobs were preempted for it, and none is again until one of its nodes or its request changes"
)
MANY_CHANGED = 8
"""If more than 1 in ``MANY_CHANGED`` jobs changed rank, sorting all beats moving each."""


class Decisions:
    """The last decisions, in the order of the jobs' ranks; unmanaged jobs come last."""

    def __init__(self, state: ClusterState, config: Config) -> None:
        self._state = state
        self._config = config
        self._why = WhyJobsWait(state, config)
        self._decided: dict[str, Decision] = {}
        """Outdated for jobs in ``undecided``."""
        self.undecided: set[str] = set()
        """Jobs whose decisions depend on something that has changed."""
        self.runners_changed = True
        """Whether a running job has come, gone, or changed its rank or protection."""
        self._order: list[UniqueRank] | None = None
        """Sorted ranks of the managed jobs; None if they must be sorted again."""
        self._ids: list[str] = []
        """Job ids in the order of ``_order``; faster than reading each rank's."""
        self._moves = 0
        self._unmanaged_order: list[str] | None = None
        self._in_order = True
        """Whether ``_decided`` is in the order of a plan."""

    # Changes

    def enter(self, entry: Entry) -> None:
        """Follow a job that has come, or has a new role."""
        self.undecided.add(entry.job.job_id)
        self._list(entry.rank)
        self.runners_changed = self.runners_changed or entry.role is Role.RUNS

    def leave(self, entry: Entry) -> None:
        """Follow a job that goes, or loses its role."""
        self.undecided.discard(entry.job.job_id)
        self._unlist(entry.rank)
        self.runners_changed = self.runners_changed or entry.role is Role.RUNS

    def move(self, entry: Entry, rank: UniqueRank) -> None:
        """Follow a change of rank."""
        self._unlist(entry.rank)
        self._list(rank)
        self.runners_changed = self.runners_changed or entry.role is Role.RUNS

    def leave_alone(self, job: Job) -> None:
        """Follow an unmanaged job that has come."""
        self._decided[job.job_id] = Decision(
            job.job_id, Action.LEAVE, Reason.UNMANAGED, detail=job.unmanaged_because
        )

    def unmanaged_changed(self, *, runs: bool) -> None:
        """Follow an unmanaged job that comes or goes."""
        self._unmanaged_order, self._in_order = None, False
        self.runners_changed = self.runners_changed or runs

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

    # Plans

    def plan(self, entries: Mapping[str, Entry], unmanaged: Sequence[Job], now_s: float) -> Plan:
        """Decide on every job."""
        if self._order is None:
            self._order = sorted(entry.rank for entry in entries.values())
            self._ids = [rank.job_id for rank in self._order]
        self._moves = 0
        if self.runners_changed:
            runs = (entry for entry in entries.values() if entry.role is Role.RUNS)
            ranked = sorted(((entry.rank, entry.job) for entry in runs), key=itemgetter(0))
            others = [job for job in unmanaged if job.state is JobState.RUNNING]
            others.sort(key=lambda job: job_id_key(job.job_id))
            self._why.follow(ranked, others)
            self.runners_changed = False
        self._why.begin(now_s)
        starts = self._state.try_out(now_s, self._why.note)
        if self._why.changed:
            for entry in entries.values():
                if entry.job_class in self._why.changed:
                    self.undecided.add(entry.job.job_id)
        passing = dict(self._carried_out(entries, starts))
        undecided: Collection[str] = self.undecided - passing.keys()
        if len(undecided) * MANY_CHANGED > len(self._ids):
            # Deciding in rank order leaves less to sort afterwards.
            undecided = [job_id for job_id in self._ids if job_id in undecided]
        for job_id in undecided:
            self._decided[job_id] = self._decision(entries[job_id])
        self._decided.update(passing)
        # Decisions to start or preempt hold for this plan only.
        self.undecided = set(passing)
        if not self._in_order:
            if self._unmanaged_order is None:
                self._unmanaged_order = sorted((job.job_id for job in unmanaged), key=job_id_key)
            ids = self._ids + self._unmanaged_order
            self._decided = dict(zip(ids, map(self._decided.__getitem__, ids), strict=True))
            self._in_order = True
        return Plan(self._decided.copy())

    def _carried_out(
        self, entries: Mapping[str, Entry], starts: Iterable[Start]
    ) -> Iterator[tuple[str, Decision]]:
        """Yield the decision for each job that starts and for each of its victims."""
        for start in starts:
            entry = entries[start.job_id]
            reason = Reason.STARTS_PREEMPTING if start.victims else Reason.STARTS
            yield start.job_id, self._start(entry, start.allocation, reason, start.victims)
            for job_id in start.victims:
                victim = _verdict(
                    entries[job_id],
                    Action.PREEMPT,
                    Reason.PREEMPTED,
                    preempted_for=start.job_id,
                )
                yield job_id, victim

    def _decision(self, entry: Entry) -> Decision:
        job = entry.job
        if entry.role is Role.WAITS:
            if job.backs_off:
                return _verdict(entry, Action.WAIT, Reason.BACKS_OFF, IN_VAIN * job.in_vain)
            if job.over_budget:
                return _verdict(entry, Action.WAIT, Reason.OVER_BUDGET)
            if job.failures_in_a_row:
                return _verdict(entry, Action.WAIT, Reason.FAILED_BEFORE)
            assert entry.job_class is not None
            why = self._why.of(entry.job_class)
            detail = job.lane_because if why.reason is Reason.IDLE_ONLY else why.detail
            return _verdict(entry, Action.WAIT, why.reason, detail, blockers=why.blockers)
        if job.state is JobState.COMPLETING:
            return _verdict(entry, Action.WAIT, Reason.COMPLETING)
        if job.state is JobState.RUNNING:
            if job.preemptor:
                return _verdict(entry, Action.WAIT, Reason.VACATING, preempted_for=job.preemptor)
            if job.leaves_because:
                return _verdict(entry, Action.PREEMPT, job.leaves_because)
            return _verdict(entry, Action.RUN_ON, Reason.RUNS_ON)
        if blocked := job.blocked_by_slurm:
            return _verdict(entry, Action.WAIT, blocked, job.not_eligible or job.awaited_limit)
        if entry.role is Role.HOLDS:
            return self._start(entry, entry.holds, Reason.NOMINATED)
        return _verdict(entry, Action.WAIT, Reason.BACKS_OFF)

    def _start(
        self, entry: Entry, on: Allocation, reason: Reason, victims: tuple[str, ...] = ()
    ) -> Decision:
        style = style_of(entry.job, self._config.placement)
        return _verdict(entry, Action.START, reason, start_on=on, style=style, victims=victims)


def _verdict(
    entry: Entry,
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
