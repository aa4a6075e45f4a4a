"""Until when a job waits, as far as that can be known: when others may be preempted for it."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_tiresias.config import tiers_follow_service
from slurm_tiresias.model import MAX_BLOCKERS, Action, JobState, Protection, Reason
from slurm_tiresias.status.published import Blocker, PublishedJob, PublishedState

_FOR_SOMETHING_ELSE = {
    reason.value for reason in (Reason.HELD, Reason.SLURM_WAITS, Reason.NEVER_FITS, Reason.NO_NODES)
}


def estimated_room(
    job: PublishedJob, state: PublishedState, jobs: Mapping[str, PublishedJob]
) -> tuple[float, tuple[PublishedJob, ...]] | None:
    """When enough of what holds its GPUs may be preempted for it, and which jobs those are.

    By itself each comes down to a lower tier at a known time, if it runs on, and is then protected
    no longer; jobs that wait before it take that room first. None where this is not enough, where
    tiers go by more than attained service, and where the controller preempts no job. ``jobs`` are
    those of the state, by their id.
    """
    if not tiers_follow_service(state.policy) or not state.acts:
        return None
    if not job.managed or not waits_for_room(job):
        return None
    known = {b.job_id: _loose_at_s(b, job, state, jobs) for b in job.blockers}
    there = [jobs[job_id] for job_id in known if job_id in jobs]
    loose = [(at_s, other) for other in there if (at_s := known[other.job_id]) is not None]
    loose.sort(key=lambda one: one[0])
    before = [other for other in waits_before(job, state) if other.action == Action.WAIT.value]
    if job.reason == Reason.GUARDED.value and not before:
        # It may start once none of these is protected; the list ends after so many.
        if not loose or not len(loose) == len(job.blockers) < MAX_BLOCKERS:
            return None
        return max(loose[-1][0], state.at_s), tuple(one for _, one in loose)
    missing = job.gpus + sum(other.gpus for other in before)
    for number, (at_s, other) in enumerate(loose, start=1):
        missing -= other.gpus
        if missing <= 0:
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
    if blocker.guard != Protection.SAME_TIER.value or other is None or tier is None:
        return None
    if tier.to_gpu_s is None or not other.gpus:
        return None
    missing_gpu_s = tier.to_gpu_s - other.attained_since_promotion_gpu_s - other.inherited_gpu_s
    return state.at_s + max(0.0, missing_gpu_s) / other.gpus


def waits_for_room(job: PublishedJob) -> bool:
    """Whether it waits for others to make room, and for nothing else."""
    return job.state == JobState.PENDING.value and job.reason not in _FOR_SOMETHING_ELSE


def waits_before(job: PublishedJob, state: PublishedState) -> tuple[PublishedJob, ...]:
    """The managed jobs that wait for room, too, and come before it in the order, as far as this
    user may see all of them."""
    rank = job.rank
    if rank is None or state.only_of:
        return ()
    return tuple(
        other
        for other in state.jobs
        if other.managed and waits_for_room(other) and (other.rank or 0) < rank
    )
