"""The minimum run time of a job, which grows with its preemptions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from slurm_tiresias.core.features.drilled import counts_as_drilled
from slurm_tiresias.core.features.protection import Protected
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import NOTHING_LEARNED, STUCK_RUNS, Learned, Protection
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.preemption import PreemptionConfig

MIN_RUN_GROWTH = 2.0
LONGEST_MIN_RUN_S = 3600.0
"""Each preemption of a job multiplies its minimum run time by this, up to this. On the paper's 480
jobs a constant minimum costs 1.8 times the preemptions; a longer maximum gains nothing."""

MOST_DOUBLINGS: Final = 64
"""Keeps a float from overflowing."""


def protected_for_s(
    preemptions: int,
    config: PreemptionConfig,
    learned: Learned = NOTHING_LEARNED,
    *,
    drilled: bool = False,
) -> float:
    """Return the minimum run time of a job's current run, in seconds since it (re)started.

    ``preemptions`` counts the earlier preemptions of the job, plus the latest consecutive ones in
    which its program lost all its work. The time grows so that a job that is preempted repeatedly,
    by chance or on purpose, gets runs long enough to save a checkpoint. For a job that saved
    nothing in its last runs it grows without bound, so that the job can end. It may start lower for
    a program that has passed a drill (``preemption.drilled_min_run_s``).
    """
    first_s = config.min_run_s
    if drilled and config.drilled_min_run_s > 0:
        first_s = config.drilled_min_run_s
    times = min(max(preemptions, learned.program_lost), MOST_DOUBLINGS)
    most_s = math.inf if learned.stuck_runs >= STUCK_RUNS else LONGEST_MIN_RUN_S
    return max(first_s, min(first_s * MIN_RUN_GROWTH**times, most_s))


def min_run_s(job: Job, config: PreemptionConfig) -> float:
    """Return the minimum run time of a job's current run."""
    drilled = counts_as_drilled(job)
    return protected_for_s(job.preemptions, config, job.learned, drilled=drilled)


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
