"""How long a run is protected from preemption; the time grows with each earlier preemption."""

from __future__ import annotations

from slurm_tiresias.config import PreemptionConfig


def protected_for_s(preemptions: int, config: PreemptionConfig) -> float:
    """Return the minimum run time of a job's current run, in seconds since it (re)started.

    ``preemptions`` counts the earlier preemptions of the job. The time grows so that a job that is
    preempted repeatedly, by chance or on purpose, gets runs long enough to save a checkpoint.
    """
    # The cap on the exponent prevents a float overflow.
    grown_s = config.min_run_s * config.min_run_growth ** min(preemptions, 64)
    return max(config.min_run_s, min(grown_s, config.max_min_run_s))
