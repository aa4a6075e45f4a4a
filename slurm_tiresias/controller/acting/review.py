"""What has become of the nominations and preemptions under way, before the decision.

Nothing is written to Slurm here.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_tiresias.controller.acting.under_way import UnderWay, why_it_did_not_start
from slurm_tiresias.controller.feed import Backoffs
from slurm_tiresias.controller.prospects import is_past_deadline, is_protected, partitions_that_take
from slurm_tiresias.core.lifecycle import nomination
from slurm_tiresias.core.lifecycle.nomination import Blocker, Started, StillWaiting
from slurm_tiresias.core.lifecycle.preemption import PreemptorGone
from slurm_tiresias.model import JobState

LOST_WITHIN_S = 10.0
"""The least time between a requeue that is sent now and the job's next start."""


def review(under_way: UnderWay) -> None:
    """Tell nominations and preemptions what the observation means for them."""
    _withdraw_where_others_run(under_way)
    _expire_where_victims_stay(under_way)
    _look_at_nominations(under_way)
    lifecycles = under_way.job_store.lifecycles
    for key in list(lifecycles.preemptions):
        lifecycles.expire_signal(key, under_way.now_s)
    for victim in under_way.preemptions(for_job=True):
        # A job that no longer waits on its nomination no longer needs its victims.
        if not under_way.is_awaited(victim.preemptor):
            under_way.tell(victim.key, PreemptorGone(under_way.runs(victim.key)))


def backoffs(under_way: UnderWay, awaited_limits: Mapping[str, str]) -> Backoffs:
    """Return which jobs back off now; ``awaited_limits`` is passed on."""
    nominations, situation = under_way.nominations.values(), under_way.situation
    # Jobs were preempted for these in their present situation, but they did not start.
    in_vain = frozenset(
        one.key for one in nominations if one.in_vain and one.in_vain == situation(one.key)
    )
    # If victims have left, the job starts on its nomination or not at all: no further victims are
    # preempted for it elsewhere.
    half_done = (one.key for one in nominations if one.is_active and one.victims_left)
    now_s, retry_s, bound_s = under_way.now_s, nomination.RETRY_AFTER_S, nomination.START_BOUND_S
    waiting = (one for one in nominations if not one.may_pass and one.backs_off(now_s, retry_s))
    return Backoffs(
        backing_off=in_vain.union(
            half_done, (one.key for one in waiting if one.situation == situation(one.key))
        ),
        in_vain=in_vain,
        awaited_limits=awaited_limits,
        cooling_down=frozenset(one.key for one in nominations if one.backs_off(now_s, bound_s)),
    )


def _withdraw_where_others_run(under_way: UnderWay) -> None:
    """Withdraw or expire nominations if Slurm has started other jobs on their GPUs.

    A job is placed anew as long as no victim has been requeued for it. Once one has, the job keeps
    its nomination until that expires; if it would need further victims, the nomination expires now.
    Otherwise each new place would cost more victims.
    """
    awaited = under_way.awaited_victims()
    for one in list(under_way.nominations.values()):
        victims = awaited.get(one.key, ())
        allocation = one.allocated() if victims or one.needs_no_victims else None
        if allocation is None or not under_way.nodes_without_room(allocation, victims):
            continue
        for victim in victims:
            if victim.preemptor == one.key:
                under_way.call_off(victim.key)
        if one.victims_left:
            why = "Slurm gave GPUs that were set aside for it to other jobs"
            under_way.expire(one.key, under_way.now_s, why)
        else:
            under_way.withdraw(one.key)


def _expire_where_victims_stay(under_way: UnderWay) -> None:
    """Expire nominations if one of their victims must not be preempted any more.

    A victim must stay if it was suspended, held by an administrator, can no longer be read, or
    would not be started again by Slurm. Its preemptor cannot start there, whatever the other
    victims do.
    """
    seen = under_way.seen
    staying: dict[str, str] = {}
    partitions = {one.name: one for one in seen.partitions}
    for one in under_way.preemptions(for_job=True):
        awaited = one.makes_room and under_way.is_awaited(one.preemptor)
        if not awaited or not under_way.runs(one.key):
            continue
        job = under_way.jobs[one.key]
        could_come_back = not partitions or partitions_that_take(job.spec, partitions)
        lost = not could_come_back or is_past_deadline(job.spec, seen.at_s + LOST_WITHIN_S)
        if is_protected(job) or under_way.job_store.why_unmanaged(one.key) or lost:
            staying[one.preemptor] = one.key
    for preemptor, key in staying.items():
        under_way.call_off(key)
        why = f"job {key}, which was to make room, may not be preempted any more"
        under_way.expire(preemptor, seen.at_s, why)


def _look_at_nominations(under_way: UnderWay) -> None:
    """Update each nomination with what still blocks its start; some expire."""
    config, jobs = under_way.config.preemption, under_way.jobs
    awaited = under_way.awaited_victims()
    leaving = {key for key, victims in awaited.items() if any(one.is_leaving for one in victims)}
    completing = (job for job in jobs.values() if job.state is JobState.COMPLETING)
    cleaning_up = {node for job in completing for node in job.allocation}
    for one in list(under_way.nominations.values()):
        if under_way.runs(one.key):
            # It has started in a partition that is not managed.
            under_way.tell_nominated(one.key, Started())
        if not one.is_active or not under_way.waits(one.key):
            continue
        blocker, why = Blocker.NOTHING, why_it_did_not_start(jobs[one.key])
        if one.key in leaving or not cleaning_up.isdisjoint(one.allocated() or {}):
            blocker, why = Blocker.NODES_IN_USE, "its nodes have not been vacated in time"
        elif one.key in awaited:
            blocker = Blocker.NOT_TRIED
        waits = StillWaiting(
            under_way.now_s,
            blocker,
            nomination.START_BOUND_S,
            situation=under_way.situation_tried(one.key),
            why=why,
            longest_grace_s=max(config.grace_s, config.max_grace_s),
        )
        under_way.tell_nominated(one.key, waits)
