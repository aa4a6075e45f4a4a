"""Estimate until when a job waits: until others have ended, or may be preempted for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_tiresias.model import MAX_BLOCKERS, Action, JobState, Protection, Reason
from slurm_tiresias.status.published import Blocker, PublishedJob, PublishedState

_FOR_SOMETHING_ELSE = {
    reason.value for reason in (Reason.HELD, Reason.SLURM_WAITS, Reason.NEVER_FITS, Reason.NO_NODES)
}


@dataclass(frozen=True, slots=True)
class Room:
    """When there may be room for a job, and thanks to which jobs: those expected to be ``ending``
    by then, and those that can be preempted then (``preemptible``)."""

    at_s: float
    ending: tuple[str, ...]
    preemptible: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A blocker, and when it may have freed its GPUs."""

    at_s: float
    job: PublishedJob
    ends: bool


def estimated_room(
    job: PublishedJob, state: PublishedState, jobs: Mapping[str, PublishedJob]
) -> Room | None:
    """Return when enough blockers of a job may be gone, and which; None if unknown.

    A blocker that keeps running drops to a lower tier at a known time and then loses its
    protection; a blocker that reports progress has a likely end. Jobs that wait ahead of this one
    get GPUs first. The time is unknown if all this is not enough, or if the controller does not
    preempt. ``jobs`` are those of the state, by id.
    """
    if not state.acts:
        return None
    if not job.managed or not waits_for_room(job):
        return None
    leaving = [found for b in job.blockers if (found := _leaving(b, job, state, jobs))]
    leaving.sort(key=lambda one: one.at_s)
    before = [other for other in waits_before(job, state) if other.action == Action.WAIT.value]
    if job.reason == Reason.PROTECTED.value and not before:
        # It may start once none of these is protected; a list of ``MAX_BLOCKERS`` may be
        # incomplete.
        if not leaving or not len(leaving) == len(job.blockers) < MAX_BLOCKERS:
            return None
        return _room(leaving, state)
    missing = job.gpus + sum(other.gpus for other in before)
    for number, one in enumerate(leaving, start=1):
        missing -= one.job.gpus
        if missing <= 0:
            return _room(leaving[:number], state)
    return None


def _room(leaving: Sequence[_Leaving], state: PublishedState) -> Room:
    return Room(
        max(leaving[-1].at_s, state.at_s),
        ending=tuple(one.job.job_id for one in leaving if one.ends),
        preemptible=tuple(one.job.job_id for one in leaving if not one.ends),
    )


def _leaving(
    blocker: Blocker, job: PublishedJob, state: PublishedState, jobs: Mapping[str, PublishedJob]
) -> _Leaving | None:
    other = jobs.get(blocker.job_id)
    if other is None:
        return None
    loose_at_s = _loose_at_s(blocker, job, state, jobs)
    eta_s = other.progress.eta_s if other.progress else None
    if eta_s is not None and (loose_at_s is None or eta_s < loose_at_s):
        return _Leaving(eta_s, other, ends=True)
    return None if loose_at_s is None else _Leaving(loose_at_s, other, ends=False)


def _loose_at_s(
    blocker: Blocker, job: PublishedJob, state: PublishedState, jobs: Mapping[str, PublishedJob]
) -> float | None:
    """Return when a blocker may be preempted for the job, if nothing else changes, or None."""
    if blocker.until_s is not None:
        return blocker.until_s
    other = jobs.get(blocker.job_id)
    tier = next((tier for tier in state.tiers if tier.tier == job.tier), None)
    if blocker.protection != Protection.SAME_TIER.value or other is None or tier is None:
        return None
    if tier.to_gpu_s is None or not other.gpus or goes_by_estimate(other):
        return None
    missing_gpu_s = tier.to_gpu_s - other.attained_since_promotion_gpu_s - other.inherited_gpu_s
    return state.at_s + max(0.0, missing_gpu_s) / other.gpus


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
