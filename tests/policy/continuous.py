"""The policies without discretized tiers (paper section 3.2.2, Pseudocode 1, page 490).

Every priority is a separate level, so any difference causes a preemption. They are references for
tests only: on a real cluster they would preempt all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.rank import JobRank, Key, job_id_key


@dataclass(frozen=True, slots=True)
class Continuous(Policy):
    """Jobs in the strict order of one number, smallest first; ties by submission, then job id."""

    cost: Callable[[Job], float]

    def rank(self, job: Job) -> JobRank:
        level: Key = (self.cost(job), job.submitted_s, *job_id_key(job.job_id))
        return JobRank(level, (), 0)


def continuous_las() -> Continuous:
    """2D-LAS: least GPU-seconds attained first."""
    return Continuous(lambda job: job.attained_gpu_s)


def continuous_gittins(index: Callable[[float], float]) -> Continuous:
    """2D-Gittins: highest index first; ``index`` takes the GPU-seconds attained."""
    return Continuous(lambda job: -index(job.attained_gpu_s))


def shortest_remaining_service() -> Continuous:
    """SRSF, clairvoyant: least remaining time x GPUs first. Needs ``job.remaining_s``."""
    return Continuous(lambda job: (job.remaining_s or 0.0) * job.width)
