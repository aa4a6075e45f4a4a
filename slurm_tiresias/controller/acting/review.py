"""What has become of the nominations and preemptions under way, before the decision.

Nothing is written to Slurm here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from slurm_tiresias.controller.acting.under_way import (
    UnderWay,
    is_running,
    why_it_did_not_start,
)
from slurm_tiresias.controller.difference import is_pending
from slurm_tiresias.controller.feed import Backoffs
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.manage import is_past_deadline, is_protected, partitions_that_take
from slurm_tiresias.core.lifecycle.nomination import Blocker, Started, StillWaiting
from slurm_tiresias.core.lifecycle.preemption import Cause, PreemptorGone
from slurm_tiresias.model import Allocation, JobState, JobStatus
from slurm_tiresias.settings.preemption import PreemptionConfig
from slurm_tiresias.slurm.protocol import Observation

LOST_WITHIN_S = 10.0
"""The least time between a requeue that is sent now and the job's next start."""


class Reviewer:
    """Reviews the nominations and preemptions under way."""

    def __init__(
        self, job_store: JobStore, under_way: UnderWay, preemption: PreemptionConfig
    ) -> None:
        self._job_store = job_store
        self._under_way = under_way
        self._preemption = preemption

    def review(self, seen: Observation, jobs: Mapping[str, JobStatus]) -> None:
        """Tell nominations and preemptions what an observation means for them."""
        self._withdraw_where_others_run(seen)
        self._expire_where_victims_stay(jobs, seen)
        self._look_at_nominations(jobs, seen)
        for key in list(self._job_store.lifecycles.preemptions):
            self._job_store.lifecycles.expire_signal(key, seen.at_s)
        for victim in self._under_way.preemptions(cause=Cause.FOR_JOB):
            # A job that no longer waits on its nomination no longer needs its victims.
            if not self._under_way.is_awaited(victim.preemptor, jobs):
                self._under_way.tell(victim.key, PreemptorGone(is_running(jobs.get(victim.key))))

    def backoffs(self, now_s: float, awaited_limits: Mapping[str, str]) -> Backoffs:
        """Return which jobs back off now; ``awaited_limits`` is passed on."""
        nominations = self._job_store.lifecycles.nominations.values()
        situation = self._under_way.situation
        # Jobs were preempted for these in their present situation, but they did not start.
        in_vain = frozenset(
            one.key for one in nominations if one.in_vain and one.in_vain == situation(one.key)
        )
        # If victims have left, the job starts on its nomination or not at all: no further victims
        # are preempted for it elsewhere.
        half_done = (one.key for one in nominations if one.is_active and one.victims_left)
        retry_s, bound_s = self._preemption.retry_after_s, self._preemption.start_bound_s
        waiting = (one for one in nominations if one.backs_off(now_s, retry_s))
        return Backoffs(
            backing_off=in_vain.union(
                half_done, (one.key for one in waiting if one.situation == situation(one.key))
            ),
            in_vain=in_vain,
            awaited_limits=awaited_limits,
            cooling_down=frozenset(one.key for one in nominations if one.backs_off(now_s, bound_s)),
        )

    def _withdraw_where_others_run(self, seen: Observation) -> None:
        """Withdraw or expire nominations if Slurm has started other jobs on their GPUs.

        A job is placed anew as long as no victim has been requeued for it. Once one has, the job
        keeps its nomination until that expires; if it would need further victims, the nomination
        expires now. Otherwise each new place would cost more victims.
        """
        running = {job.key: job.allocation for job in seen.jobs if job.state is JobState.RUNNING}
        free = {node.name: node.total.gpu_count for node in seen.nodes}
        for held in running.values():
            for node, amount in held.items():
                free[node] = free.get(node, 0) - amount.gpu_count
        victims: dict[str, list[str]] = {}
        for preemption in self._under_way.preemptions(cause=Cause.FOR_JOB):
            if preemption.makes_room and preemption.key in running:
                victims.setdefault(preemption.preemptor, []).append(preemption.key)
        for one in list(self._job_store.lifecycles.nominations.values()):
            leave = victims.get(one.key, [])
            allocation = one.allocated() if leave or one.needs_no_victims else None
            if allocation is None or _has_room(allocation, free, map(running.__getitem__, leave)):
                continue
            for key in leave:
                self._under_way.call_off(key)
            if one.victims_left:
                why = "Slurm gave GPUs that were set aside for it to other jobs"
                self._under_way.expire(one.key, seen.at_s, why)
            else:
                self._under_way.withdraw(one.key)

    def _expire_where_victims_stay(self, jobs: Mapping[str, JobStatus], seen: Observation) -> None:
        """Expire nominations if one of their victims must not be preempted any more.

        A victim must stay if it was suspended, held by an administrator, can no longer be read, or
        would not be started again by Slurm. Its preemptor cannot start there, whatever the other
        victims do.
        """
        staying: dict[str, str] = {}
        partitions = {one.name: one for one in seen.partitions}
        for one in self._under_way.preemptions(cause=Cause.FOR_JOB):
            job = jobs.get(one.key)
            awaited = one.makes_room and self._under_way.is_awaited(one.preemptor, jobs)
            if job is None or not is_running(job) or not awaited:
                continue
            could_come_back = not partitions or partitions_that_take(job.spec, partitions)
            lost = not could_come_back or is_past_deadline(job.spec, seen.at_s + LOST_WITHIN_S)
            if is_protected(job) or self._job_store.why_unmanaged(one.key) or lost:
                staying[one.preemptor] = one.key
        for preemptor, key in staying.items():
            self._under_way.call_off(key)
            why = f"job {key}, which was to make room, may not be preempted any more"
            self._under_way.expire(preemptor, seen.at_s, why)

    def _look_at_nominations(self, jobs: Mapping[str, JobStatus], seen: Observation) -> None:
        """Update each nomination with what still blocks its start; some expire."""
        config = self._preemption
        under_way = self._under_way.preemptions(cause=Cause.FOR_JOB)
        leaving = {one.preemptor for one in under_way if one.is_leaving}
        has_victims = {one.preemptor for one in under_way if one.makes_room}
        cleaning_up = {
            node
            for job in jobs.values()
            if job.state is JobState.COMPLETING
            for node in job.allocation
        }
        for one in list(self._job_store.lifecycles.nominations.values()):
            job = jobs.get(one.key)
            if is_running(job):
                # It has started in a partition that is not managed.
                self._job_store.lifecycles.nomination_event(one.key, Started())
            if job is None or not one.is_active or not is_pending(job):
                continue
            blocker, why = Blocker.NOTHING, why_it_did_not_start(job)
            if one.key in leaving or not cleaning_up.isdisjoint(one.allocated() or {}):
                blocker, why = Blocker.NODES_IN_USE, "its nodes have not been vacated in time"
            elif one.key in has_victims:
                blocker = Blocker.NOT_TRIED
            waits = StillWaiting(
                seen.at_s,
                blocker,
                config.start_bound_s,
                situation=self._under_way.situation_tried(one.key),
                why=why,
                longest_grace_s=max(config.grace_s, config.max_grace_s),
            )
            self._job_store.lifecycles.nomination_event(one.key, waits)


def _has_room(wanted: Allocation, free: Mapping[str, int], leaving: Iterable[Allocation]) -> bool:
    """Whether each node has enough GPUs once the leaving jobs are gone."""
    room = Counter(free)
    for allocation in leaving:
        room.update({node: amount.gpu_count for node, amount in allocation.items()})
    return all(room[node] >= amount.gpu_count for node, amount in wanted.items())
