"""Discretized tiers: the multi-level queue of paper section 3.2.3 (pages 490-491)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from slurm_tiresias.core.features.gittins import ServiceHistory
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.promotion import NEVER, Promotion
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.rank import JobRank, Key
from slurm_tiresias.model import JobState
from slurm_tiresias.settings.policy import MAX_TIERS

LEVELS = tuple((float(tier),) for tier in range(MAX_TIERS))


def tier_of(attained_gpu_s: float, thresholds_gpu_s: Sequence[float]) -> int:
    """Return the index of the first threshold above the attained service; tier 0 is the highest."""
    return bisect_right(thresholds_gpu_s, attained_gpu_s)


def by_first_start(job: Job) -> Key:
    """Order by first start, as the paper does; jobs that never ran come last, by submission."""
    first_started_s = job.first_started_s
    return (1.0, job.submitted_s) if first_started_s is None else (0.0, first_started_s)


def by_entry(job: Job) -> Key:
    """Order by the time of entering the tier; that is the submission if the tier never changed."""
    tier_entered_s = job.tier_entered_s
    return (job.submitted_s if tier_entered_s is None else tier_entered_s,)


def by_waiting(job: Job) -> Key:
    """Order running jobs first, then by the start of the current wait (the authors' simulator)."""
    if job.state is JobState.RUNNING:
        return (0.0, 0.0)
    queued_s = job.queued_s
    return (1.0, job.submitted_s if queued_s is None else queued_s)


def by_newest(job: Job) -> Key:
    """Order by the time of entering the tier, latest first."""
    return tuple(-number for number in by_entry(job))


ORDERS: Mapping[str, Callable[[Job], Key]] = {
    "first-start": by_first_start,
    "entry": by_entry,
    "running-first": by_waiting,
    "newest": by_newest,
}
"""The values of the setting ``policy.order``."""


@dataclass(frozen=True, slots=True)
class TieredLas(Policy):
    """Discretized 2D-LAS: tiers by attained service; ``order`` ranks the jobs within a tier."""

    thresholds_gpu_s: tuple[float, ...]
    order: Callable[[Job], Key]
    promotion: Promotion = NEVER
    has_tiers: ClassVar[bool] = True

    def rank(self, job: Job) -> JobRank:
        service_gpu_s = job.attained_since_promotion_gpu_s + job.inherited_gpu_s
        tier = bisect_right(self.thresholds_gpu_s, service_gpu_s)
        return JobRank(LEVELS[tier], self.order(job), tier)

    def tier_after(self, service_gpu_s: float) -> int:
        return tier_of(service_gpu_s, self.thresholds_gpu_s)

    def steady_for_s(self, job: Job) -> float:
        return left_in_tier(job.charged_gpu_s, self.thresholds_gpu_s) / job.width


@dataclass(frozen=True, slots=True)
class TieredGittins(Policy):
    """Discretized 2D-Gittins: the same tiers, each but the last ordered by the Gittins index.

    The quantum of a tier is its upper limit; the last tier has none and is ordered as in 2D-LAS
    (Pseudocode 2, page 491). The index counts all service a job ever attained. The history is
    fixed: to use a longer one, make a new policy.
    """

    thresholds_gpu_s: tuple[float, ...]
    order: Callable[[Job], Key]
    history: ServiceHistory
    promotion: Promotion = NEVER
    has_tiers: ClassVar[bool] = True

    def rank(self, job: Job) -> JobRank:
        tier = tier_of(job.charged_gpu_s, self.thresholds_gpu_s)
        last = tier == len(self.thresholds_gpu_s)
        order_key = self.order(job)
        if not last:
            index = self.history.index(job.attained_gpu_s, self.thresholds_gpu_s[tier])
            order_key = (-index, *order_key)
        return JobRank(LEVELS[tier], order_key, tier)

    def tier_after(self, service_gpu_s: float) -> int:
        return tier_of(service_gpu_s, self.thresholds_gpu_s)

    def steady_for_s(self, job: Job) -> float:
        return left_in_tier(job.charged_gpu_s, self.thresholds_gpu_s) / job.width

    def drifts_in(self, tier: int, job: Job) -> bool:
        # The index changes with attained service. Jobs of the first tier are never preempted, so
        # their order does not matter, and the last tier does not use the index.
        return 0 < tier < len(self.thresholds_gpu_s)


def left_in_tier(service: float, thresholds: Sequence[float]) -> float:
    """Return the service left before a job moves down a tier; infinite in the last tier."""
    tier = tier_of(service, thresholds)
    return math.inf if tier == len(thresholds) else thresholds[tier] - service
