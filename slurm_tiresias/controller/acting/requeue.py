"""Which victims are requeued when their graces are over, and when they may start again."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_tiresias.controller.acting.under_way import RESTART_IN_S, UnderWay
from slurm_tiresias.core.lifecycle.preemption import (
    Cause,
    GraceOver,
    Preemption,
    PreemptionEvent,
    PreemptionState,
    Resumed,
    Saved,
    SendRequeue,
    SetStartTime,
    StartDelayed,
)
from slurm_tiresias.model import Plan
from slurm_tiresias.progress.saving import has_saved_since
from slurm_tiresias.slurm.protocol import Requeue, Update, Write

SIGNALLED, REQUEUE_SENT = PreemptionState.SIGNALLED, PreemptionState.REQUEUE_SENT


def requeue(under_way: UnderWay, plan: Plan) -> Sequence[Write]:
    """Requeue victims that still run, and have saved or whose grace is over."""
    jobs, now_s = under_way.jobs, under_way.now_s
    for one in under_way.preemptions(SIGNALLED):
        in_grace = now_s < (one.grace_until_s or 0.0)
        if in_grace and under_way.has_to_leave(one, plan):
            restarts, signalled_s = jobs[one.key].restarts, one.signalled_s or 0.0
            if has_saved_since(under_way.progress_of(one.key), restarts, signalled_s):
                under_way.tell(one.key, Saved(now_s))
    return [
        write
        for one in _due(under_way, plan)
        for write in _told(under_way, one, GraceOver(now_s, not jobs[one.key].spec.requeue))
    ]


def restart(under_way: UnderWay) -> Sequence[Write]:
    """Let requeued jobs start at once if only Slurm's own delay is left.

    A victim that has requeued itself before the others have left keeps its delay until then: Slurm
    might start it on the GPUs that its preemptor awaits.
    """
    writes: list[Write] = []
    preemptions = under_way.preemptions(for_job=True)
    awaiting = {one.preemptor for one in preemptions if one.makes_room}
    for one in under_way.preemptions(PreemptionState.REQUEUED):
        if not under_way.waits(one.key) or one.preemptor in awaiting:
            continue
        delayed = under_way.put_off_by_slurm(under_way.jobs[one.key])
        writes += _told(under_way, one, StartDelayed() if delayed else Resumed())
    return writes


def _due(under_way: UnderWay, plan: Plan) -> Sequence[Preemption]:
    """Return the preemptions whose victims are to be requeued now.

    The victims that a preemptor awaits are requeued together: while it still lacks GPUs, Slurm
    backfills other jobs, or the victim itself, onto those that have been vacated. Then the
    preemption is in vain, which costs more than what a victim does between its save and the end of
    the others' graces. The longest grace bounds this wait.

    The preemptor's limits are checked again: other jobs may have reached them during the grace.
    """
    leaving = [
        one
        for one in under_way.preemptions(SIGNALLED, REQUEUE_SENT)
        if under_way.has_to_leave(one, plan)
    ]
    # A controller that was killed may have recorded a requeue, and not sent it.
    over = [
        one
        for one in leaving
        if one.state is REQUEUE_SENT or under_way.now_s >= (one.grace_until_s or 0.0)
    ]
    awaited_by: dict[str, set[str]] = {}
    for preemptor, victims in under_way.awaited_victims().items():
        for one in victims:
            awaited_by.setdefault(one.key, set()).add(preemptor)
    incomplete = {key for one in leaving if one not in over for key in awaited_by.get(one.key, ())}
    ready = [
        one
        for one in over
        if one.cause is Cause.FOR_JOB
        and (one.state is REQUEUE_SENT or incomplete.isdisjoint(awaited_by[one.key]))
    ]
    specs = [
        under_way.jobs[key].spec
        for key in {key for one in ready for key in awaited_by[one.key]}
        if under_way.waits(key)
    ]
    limits = under_way.slurm.limits(specs) if specs else {}

    def may_start(preemptor: str) -> bool:
        return not any(limit.is_reached for limit in limits.get(preemptor, ()))

    within_limits = [one for one in ready if any(map(may_start, awaited_by[one.key]))]
    # Those requeued for no other job need not wait for other victims.
    return [*within_limits, *(one for one in over if one.cause is not Cause.FOR_JOB)]


def _told(under_way: UnderWay, one: Preemption, event: PreemptionEvent) -> Sequence[Write]:
    """Apply an event to a preemption, and return the writes that are its effects."""
    writes: list[Write] = []
    for effect in under_way.tell(one.key, event):
        match effect:
            case SendRequeue(allow):
                writes.append(Requeue(one.key, allow=allow))
            case SetStartTime():
                writes.append(Update(one.key, start_in_s=RESTART_IN_S))
    return writes
