"""Baselines that are the core with a policy of their own: one-dimensional LAS, and best-effort."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.promotion import Promotion
from slurm_tiresias.core.features.tiers import left_in_tier, tier_of
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.rank import JobRank


@dataclass(frozen=True, slots=True)
class ByRunningTime(Policy):
    """LAS by seconds, not GPU-seconds: Tiresias without the width of jobs (paper section 3.2.1).

    Within a tier, jobs are ordered by submission.
    """

    thresholds_s: tuple[float, ...]
    promotion: Promotion

    def rank(self, job: Job) -> JobRank:
        tier = tier_of(job.executed_since_promotion_s, self.thresholds_s)
        return JobRank((float(tier),), (job.submitted_s,), tier)

    def steady_for_s(self, job: Job) -> float:
        return left_in_tier(job.executed_since_promotion_s, self.thresholds_s)


@dataclass(frozen=True, slots=True)
class BySubmission(Policy):
    """Best-effort (paper page 495): YARN-CS without its head-of-line blocking.

    Jobs that do not fit are skipped. All are on one level, so that none is preempted.
    """

    promotion: Promotion

    def rank(self, job: Job) -> JobRank:
        return JobRank((0.0,), (job.submitted_s,), 0)
