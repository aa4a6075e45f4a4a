"""When and why a running job may not be preempted."""

from __future__ import annotations

import math

from slurm_tiresias.core.features.protection import Protected, before_save, protected_for_s
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.placement.candidate_matrix import least_shield
from slurm_tiresias.core.rank import Key
from slurm_tiresias.model import Protection
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.preemption import PreemptionConfig


def protected_until_s(job: Job, config: PreemptionConfig) -> float:
    """Return the time at which a running job's protection from preemption ends.

    ``-inf`` if it has none; ``inf`` if the protection does not end with time.
    """
    if job.protected_by is not None or 0 < config.max_per_job <= job.preemptions:
        return math.inf
    redoing_until_s = job.learned.redoing_until_s
    return max(
        min_run_until_s(job, config),
        -math.inf if redoing_until_s is None else redoing_until_s,
        _kept_until_s(job),
    )


def _kept_until_s(job: Job) -> float:
    """Return until when a run is kept because the job is near the bound on its slowdown; a run that
    leaves its GPUs idle is not."""
    return -math.inf if job.ranks_last else job.fair.kept_until_s


def min_run_until_s(job: Job, config: PreemptionConfig) -> float:
    """Return when a running job's minimum run time is over; ``-inf`` if it has none."""
    least_s = protected_for_s(job.preemptions, config, job.learned)
    if least_s <= 0 or job.running_since_s is None:
        return -math.inf
    return job.running_since_s + least_s


def protections(job: Job, config: Config) -> tuple[Protected, ...]:
    """Return when a running job may not be preempted."""
    until_s = protected_until_s(job, config.preemption)
    always = (Protected(-math.inf, until_s),) if until_s > -math.inf else ()
    return always + before_save(job.at_stake, config)


def protection_of(job: Job, now_s: float, config: Config, level: Key) -> Protection | None:
    """Return what protects a running job now from preemptors of a level; None if nothing does."""
    if job.protected_by is not None:
        return job.protected_by
    if 0 < config.preemption.max_per_job <= job.preemptions:
        return Protection.MAX_PREEMPTIONS
    if now_s < min_run_until_s(job, config.preemption):
        return Protection.MIN_RUN
    if now_s < _kept_until_s(job):
        return Protection.AT_BOUND
    if now_s < protected_until_s(job, config.preemption):
        return Protection.REDOING_WORK
    least = least_shield(level, even_protected=False)
    for save in before_save(job.at_stake, config):
        if save.shield >= least and save.holds(now_s):
            return Protection.SAVE_DUE
    return None
