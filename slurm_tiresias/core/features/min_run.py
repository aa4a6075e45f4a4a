"""The minimum run time of a job, which follows what its preemptions cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from slurm_tiresias.core.features.drilled import counts_as_drilled
from slurm_tiresias.core.features.protection import Protected
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import NO_PAST_LOSSES, STUCK_RUNS, PastLosses, ProgramCosts, Protection
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.preemption import PreemptionConfig

KEPT_TIMES: Final = 5.0
"""A run is kept for at least this many times what a preemption of its program costs, so that
preemptions of one job cost at most a sixth of its time."""

LONGEST_MIN_RUN_S: Final = 1800.0
"""No run is kept for longer, unless the job's last runs saved nothing: short jobs may have to wait
for it."""

MOST_DOUBLINGS: Final = 64
"""Keeps a float from overflowing."""


def protected_for_s(
    preemptions: int,
    config: PreemptionConfig,
    past_losses: PastLosses = NO_PAST_LOSSES,
    costs: ProgramCosts | None = None,
    *,
    drilled: bool = False,
) -> float:
    """Return the minimum run time of a job's current run, in seconds since it (re)started.

    It follows what a preemption of the program costs; where none was measured, it grows with the
    earlier ``preemptions`` of the job, which may lose all their work. For a job that saved nothing
    in its last runs it grows without bound, so that the job can end. It may start lower for a
    program that has passed a drill (``preemption.drilled_min_run_s``).
    """
    first_s = config.min_run_s
    if drilled and config.drilled_min_run_s > 0:
        first_s = config.drilled_min_run_s
    if first_s <= 0.0:
        return 0.0
    if past_losses.stuck_runs >= STUCK_RUNS:
        return first_s * 2.0 ** min(max(preemptions, past_losses.program_lost), MOST_DOUBLINGS)
    cost_s = first_s * preemptions
    if costs is not None and costs.measured:
        cost_s = costs.restart_s + costs.unsaved_s
    return max(first_s, min(KEPT_TIMES * cost_s, LONGEST_MIN_RUN_S))


def min_run_s(job: Job, config: PreemptionConfig) -> float:
    """Return the minimum run time of a job's current run."""
    drilled = counts_as_drilled(job)
    return protected_for_s(
        job.preemptions, config, job.past_losses, job.program_costs, drilled=drilled
    )


def min_run_until_s(job: Job, config: PreemptionConfig) -> float:
    """Return when a running job's minimum run time is over; ``-inf`` if it has none."""
    least_s = min_run_s(job, config)
    if least_s <= 0 or job.running_since_s is None:
        return -math.inf
    return job.running_since_s + least_s


def protect(job: Job, config: Config) -> Sequence[Protected]:
    """Return when the minimum run time protects a run."""
    until_s = min_run_until_s(job, config.preemption)
    return (Protected(Protection.MIN_RUN, -math.inf, until_s),) if until_s > -math.inf else ()
