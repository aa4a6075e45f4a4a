"""How long a run is safe from preemption: longer each time that the job was preempted before."""

from __future__ import annotations

from slurm_tiresias.config import PreemptionConfig


def protected_for_s(preemptions: int, config: PreemptionConfig) -> float:
    """The minimum run time of a job's present run, in seconds since it (re)started.

    ``preemptions`` is how often the job was preempted so far. A job that is preempted again and
    again, by chance or because a user hunts it, gets runs that are long enough to save in.
    """
    # No power of a number that large is needed, and a float has no larger ones.
    grown_s = config.min_run_s * config.min_run_growth ** min(preemptions, 64)
    return max(config.min_run_s, min(grown_s, config.max_min_run_s))
