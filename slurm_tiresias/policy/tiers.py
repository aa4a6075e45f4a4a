"""Discretized tiers: the multi-level queue of paper section 3.2.3 (pages 490-491)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm_tiresias.config import BY_RUNS_BEFORE, MAX_TIERS, PolicyConfig, tiers_follow_service
from slurm_tiresias.model import JobState
from slurm_tiresias.policy.gittins import ServiceHistory
from slurm_tiresias.policy.job_rank import JobFacts, JobRank, Key, charged_gpu_s
from slurm_tiresias.policy.policy import EndedJob, Policy
from slurm_tiresias.policy.promotion import NEVER, Promotion
from slurm_tiresias.policy.recurring import RunHistory

_LEVELS = tuple((float(tier),) for tier in range(MAX_TIERS))


def tier_of(attained_gpu_s: float, thresholds_gpu_s: Sequence[float]) -> int:
    """Return the index of the first threshold above the attained service; tier 0 is the highest."""
    return bisect_right(thresholds_gpu_s, attained_gpu_s)


def by_first_start(job: JobFacts) -> Key:
    """Order by first start, as the paper does; jobs that never ran come last, by submission."""
    first_started_s = job.first_started_s
    return (1.0, job.submitted_s) if first_started_s is None else (0.0, first_started_s)


def by_entry(job: JobFacts) -> Key:
    """Order by the time of entering the tier; that is the submission if the tier never changed."""
    tier_entered_s = job.tier_entered_s
    return (job.submitted_s if tier_entered_s is None else tier_entered_s,)


def by_waiting(job: JobFacts) -> Key:
    """Order running jobs first, then by the start of the current wait (the authors' simulator)."""
    if job.state is JobState.RUNNING:
        return (0.0, 0.0)
    queued_s = job.queued_s
    return (1.0, job.submitted_s if queued_s is None else queued_s)


def by_newest(job: JobFacts) -> Key:
    """Order by the time of entering the tier, latest first."""
    return tuple(-number for number in by_entry(job))


ORDERS: Mapping[str, Callable[[JobFacts], Key]] = {
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
    order: Callable[[JobFacts], Key]
    promotion: Promotion = NEVER

    def rank(self, job: JobFacts) -> JobRank:
        service_gpu_s = job.attained_since_promotion_gpu_s + job.inherited_gpu_s
        tier = bisect_right(self.thresholds_gpu_s, service_gpu_s)
        return JobRank(_LEVELS[tier], self.order(job), tier)

    def steady_for_s(self, job: JobFacts) -> float:
        return left_in_tier(charged_gpu_s(job), self.thresholds_gpu_s) / job.width


@dataclass(frozen=True, slots=True)
class TieredGittins(Policy):
    """Discretized 2D-Gittins: the same tiers, each but the last ordered by the Gittins index.

    The quantum of a tier is its upper limit; the last tier has none and is ordered as in 2D-LAS
    (Pseudocode 2, page 491). The index counts all service a job ever attained. The history is
    fixed: to use a longer one, make a new policy.
    """

    thresholds_gpu_s: tuple[float, ...]
    order: Callable[[JobFacts], Key]
    history: ServiceHistory
    promotion: Promotion = NEVER

    def rank(self, job: JobFacts) -> JobRank:
        tier = tier_of(charged_gpu_s(job), self.thresholds_gpu_s)
        last = tier == len(self.thresholds_gpu_s)
        order_key = self.order(job)
        if not last:
            index = self.history.index(job.attained_gpu_s, self.thresholds_gpu_s[tier])
            order_key = (-index, *order_key)
        return JobRank(_LEVELS[tier], order_key, tier)

    def steady_for_s(self, job: JobFacts) -> float:
        return left_in_tier(charged_gpu_s(job), self.thresholds_gpu_s) / job.width

    def drifts_in(self, tier: int) -> bool:
        # The index changes with attained service. Jobs of the first tier are never preempted, so
        # their order does not matter, and the last tier does not use the index.
        return 0 < tier < len(self.thresholds_gpu_s)


@dataclass(frozen=True, slots=True)
class TieredHistory(Policy):
    """Tiers by expected service, estimated from earlier jobs of the same user and name.

    Within a tier, the job with the least expected service comes first. A job without similar
    earlier jobs, or one that was promoted, is ranked by its attained service, as in 2D-LAS.
    """

    thresholds_gpu_s: tuple[float, ...]
    runs: RunHistory
    promotion: Promotion = NEVER
    learns = True

    def rank(self, job: JobFacts) -> JobRank:
        expected_gpu_s = self._expected_gpu_s(job)
        tier = tier_of(expected_gpu_s, self.thresholds_gpu_s)
        return JobRank(_LEVELS[tier], (expected_gpu_s, job.submitted_s), tier)

    def _expected_gpu_s(self, job: JobFacts) -> float:
        if self._is_promoted(job):
            return charged_gpu_s(job)
        executed_s = job.executed_since_promotion_s
        expected_s = self.runs.expected_run_s(job.user, job.name, executed_s)
        # By requested GPUs: the job may hold more, and starting must not lower its rank.
        return max(job.attained_gpu_s, job.gpus_asked * expected_s) + job.inherited_gpu_s

    def _is_promoted(self, job: JobFacts) -> bool:
        return job.attained_since_promotion_gpu_s < job.attained_gpu_s

    def steady_for_s(self, job: JobFacts) -> float:
        thresholds = self.thresholds_gpu_s
        if self._is_promoted(job):
            return left_in_tier(charged_gpu_s(job), thresholds) / job.width
        tier = tier_of(self._expected_gpu_s(job), thresholds)
        least_gpu_s, most_gpu_s = (-math.inf, *thresholds, math.inf)[tier : tier + 2]
        least_gpu_s -= job.inherited_gpu_s
        most_gpu_s -= job.inherited_gpu_s
        by_attained_s = (most_gpu_s - job.attained_gpu_s) / job.width
        by_runs_s = self.runs.steady_for_s(
            job.user,
            job.name,
            job.executed_since_promotion_s,
            least_gpu_s / job.gpus_asked,
            most_gpu_s / job.gpus_asked,
        )
        return min(by_attained_s, by_runs_s)

    def drifts_in(self, tier: int) -> bool:
        return tier > 0  # no job of the first tier is preempted

    def learn(self, ended: EndedJob) -> None:
        self.runs.add(ended.user, ended.name, ended.run_s)

    def is_judged_by(self, job: JobFacts, name: str) -> bool:
        return self.runs.is_judged_by(job.user, job.name, name)


def make_policy(
    config: PolicyConfig, history: ServiceHistory | None = None, runs: RunHistory | None = None
) -> Policy:
    """Return the policy that a configuration specifies; ``ValueError`` for an unknown name.

    2D-Gittins falls back to 2D-LAS until ``history`` holds ``gittins_samples`` ended jobs.
    2D-History uses ``runs``; without it, it ranks by attained service.
    """
    order, promotion = ORDERS[config.order], Promotion.of(config)
    match config.name:
        case "2d-history":
            runs = runs or RunHistory(config.history_samples)
            return TieredHistory(config.thresholds_gpu_s, runs, promotion)
        case "2d-gittins" if history and len(history) >= config.gittins_samples:
            return TieredGittins(config.thresholds_gpu_s, order, history, promotion)
        case "2d-las" | "2d-gittins":
            return TieredLas(config.thresholds_gpu_s, order, promotion)
    raise ValueError(f"no policy is called {config.name!r}")


def learned_policy(config: PolicyConfig, ended: Callable[[], Iterable[EndedJob]]) -> Policy:
    """Return the policy that a configuration specifies, trained on ended jobs.

    ``ended`` returns these jobs, the latest last; it is called only if the policy uses them.
    """
    if config.name == "2d-gittins":
        return make_policy(config, ServiceHistory(job.service_gpu_s for job in ended()))
    if config.name == BY_RUNS_BEFORE:
        runs = ((job.user, job.name, job.run_s) for job in ended())
        return make_policy(config, runs=RunHistory(config.history_samples, runs))
    return make_policy(config)


def tier_by_service(service_gpu_s: float, config: PolicyConfig) -> int | None:
    """Return the tier for an amount of charged service; None if the policy's tiers depend on more
    than service (``config.tiers_follow_service``)."""
    if not tiers_follow_service(config.name):
        return None
    return tier_of(service_gpu_s, config.thresholds_gpu_s)


def left_in_tier(service: float, thresholds: Sequence[float]) -> float:
    """Return the service left before a job moves down a tier; infinite in the last tier."""
    tier = tier_of(service, thresholds)
    return math.inf if tier == len(thresholds) else thresholds[tier] - service
