"""Which jobs wait only for room, and which of them before others."""

from __future__ import annotations

from slurm_tiresias.model import JobState, Reason
from slurm_tiresias.status.published import PublishedJob, PublishedState

_FOR_SOMETHING_ELSE = {
    reason.value for reason in (Reason.HELD, Reason.SLURM_WAITS, Reason.NEVER_FITS, Reason.NO_NODES)
}


def goes_by_estimate(job: PublishedJob) -> bool:
    """Whether a job's tier is that of its remaining service rather than its attained service."""
    estimate = job.estimate
    if estimate is None or estimate.is_guess:
        return False
    return estimate.remaining_gpu_s is not None


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
