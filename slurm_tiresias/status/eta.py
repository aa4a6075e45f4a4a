"""Estimate until when a job waits: until other jobs may be preempted for it."""

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
    """Return when enough blockers of a job may be preempted for it, and which; None if unknown.

    A blocker that keeps running drops to a lower tier at a known time, and loses its protection
    then; jobs that wait before this one get its GPUs first. It is unknown if that is not enough, if
    tiers depend on more than attained service, and if the controller does not preempt. ``jobs`` are
    those of the state, by id.
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
        # It may start once none of these is protected; a list of ``MAX_BLOCKERS`` may be
        # incomplete.
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
    """Return when a blocker may be preempted for the job, if nothing else changes, or None."""
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
    """Whether a job waits only for others to make room."""
    return job.state == JobState.PENDING.value and job.reason not in _FOR_SOMETHING_ELSE


def waits_before(job: PublishedJob, state: PublishedState) -> tuple[PublishedJob, ...]:
    """Return the managed jobs that wait for room before this one; none if some are hidden."""
    rank = job.rank
    if rank is None or state.only_of:
        return ()
    return tuple(
        other
        for other in state.jobs
        if other.managed and waits_for_room(other) and (other.rank or 0) < rank
    )
