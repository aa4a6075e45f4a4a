"""Until when a job waits, as far as that can be known: when others may be preempted for it."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_tiresias.controller.published import Blocker, PublishedJob, PublishedState
from slurm_tiresias.model import Guard, JobState, Reason

_FOR_SOMETHING_ELSE = {
    reason.value for reason in (Reason.HELD, Reason.SLURM_WAITS, Reason.NEVER_FITS, Reason.NO_NODES)
}


def room_expected(
    job: PublishedJob, state: PublishedState, jobs: Mapping[str, PublishedJob]
) -> tuple[float, tuple[PublishedJob, ...]] | None:
    """When enough of what holds its GPUs may be preempted for it, and which jobs those are.

    By itself each comes down to a lower tier at a known time, if it runs on, and is then protected
    no longer. None where that is not enough, or where tiers go by more than attained service.
    ``jobs`` are those of the state, by their id.
    """
    if state.policy == "2d-history":
        return None
    known = {b.job_id: _loose_at_s(b, job, state, jobs) for b in job.blockers}
    there = [jobs[job_id] for job_id in known if job_id in jobs]
    loose = [(at_s, other) for other in there if (at_s := known[other.job_id]) is not None]
    loose.sort(key=lambda one: one[0])
    freed = 0
    for number, (at_s, other) in enumerate(loose, start=1):
        freed += other.gpus
        if freed >= job.gpus:
            return max(at_s, state.at_s), tuple(one for _, one in loose[:number])
    return None


def _loose_at_s(
    blocker: Blocker, job: PublishedJob, state: PublishedState, jobs: Mapping[str, PublishedJob]
) -> float | None:
    """When this one may be preempted for the job, if both stay as they are otherwise."""
    if blocker.until_s is not None:
        return blocker.until_s
    other = jobs.get(blocker.job_id)
    tier = next((tier for tier in state.tiers if tier.tier == job.tier), None)
    if blocker.guard != Guard.SAME_TIER.value or other is None or tier is None:
        return None
    if tier.to_gpu_s is None or not other.gpus:
        return None
    missing_gpu_s = tier.to_gpu_s - other.attained_since_promotion_gpu_s - other.inherited_gpu_s
    return state.at_s + max(0.0, missing_gpu_s) / other.gpus


def waits_for_room(job: PublishedJob) -> bool:
    """Whether it waits for others to make room, and for nothing else."""
    return job.state == JobState.PENDING.value and job.reason not in _FOR_SOMETHING_ELSE


def waits_before(job: PublishedJob, state: PublishedState) -> tuple[PublishedJob, ...]:
    """The managed jobs that wait for room, too, and come before it in the order."""
    rank = job.rank
    if rank is None:
        return ()
    return tuple(
        other
        for other in state.jobs
        if other.managed and waits_for_room(other) and (other.rank or 0) < rank
    )
