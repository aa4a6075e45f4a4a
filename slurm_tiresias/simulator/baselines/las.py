"""One-dimensional LAS: Tiresias without the width of jobs (paper section 3.2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.promotion import Promotion
from slurm_tiresias.core.features.tiers import left_in_tier, tier_of
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.rank import JobRank
from slurm_tiresias.model import Node
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.schedulers import TiresiasScheduler


@dataclass(frozen=True, slots=True)
class _ByRunningTime(Policy):
    """Tiers by running time in seconds; within a tier, jobs are ordered by submission."""

    thresholds_s: tuple[float, ...]
    promotion: Promotion

    def rank(self, job: Job) -> JobRank:
        tier = tier_of(job.executed_since_promotion_s, self.thresholds_s)
        return JobRank((float(tier),), (job.submitted_s,), tier)

    def steady_for_s(self, job: Job) -> float:
        return left_in_tier(job.executed_since_promotion_s, self.thresholds_s)


def one_dimensional_las(config: Config, nodes: Sequence[Node]) -> TiresiasScheduler:
    """Return LAS by seconds, not GPU-seconds; the thresholds are taken as seconds."""
    thresholds_s = config.policy.thresholds_gpu_s
    return TiresiasScheduler(
        _ByRunningTime(thresholds_s, Promotion.of(config.policy)), config, nodes
    )
