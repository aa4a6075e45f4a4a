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
    """The tier of a job: the index of the first threshold above its service, 0 the highest."""
    return bisect_right(thresholds_gpu_s, attained_gpu_s)


def by_first_start(job: JobFacts) -> Key:
    """The paper's order: first start ever; jobs that never ran after those, as submitted."""
    first_started_s = job.first_started_s
    return (1.0, job.submitted_s) if first_started_s is None else (0.0, first_started_s)


def by_entry(job: JobFacts) -> Key:
    """When the job entered its tier; for a job that never left its first tier, its submission."""
    tier_entered_s = job.tier_entered_s
    return (job.submitted_s if tier_entered_s is None else tier_entered_s,)


def by_waiting(job: JobFacts) -> Key:
    """Running jobs first, then by when a job last began to wait, as the authors' simulator does."""
    if job.state is JobState.RUNNING:
        return (0.0, 0.0)
    queued_s = job.queued_s
    return (1.0, job.submitted_s if queued_s is None else queued_s)


def by_newest(job: JobFacts) -> Key:
    """Last entered first."""
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
    """Discretized 2D-LAS: tiers by attained service, one order inside each."""

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

    The quantum of a tier is its upper limit; the last tier has none and is ordered as LAS orders
    it (Pseudocode 2, page 491). The index sees all the service a job ever attained. The history
    is not added to: with more of it, make another policy.
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
        # The index follows the service attained. It matters where one tier is above and one
        # below: no job of the first tier is preempted, and the last is ordered otherwise.
        return 0 < tier < len(self.thresholds_gpu_s)


@dataclass(frozen=True, slots=True)
class TieredHistory(Policy):
    """Tiers by the service that jobs of the same user and name lead one to expect.

    Inside a tier the least expected comes first. A job of which nothing like it is known stands
    where 2D-LAS puts it by the service attained, and so does one that was promoted.
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
        # By what it asks for: what it holds may be more, and it must not fall behind by starting.
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
    """The policy that a configuration asks for; ``ValueError`` for a name that is not here.

    2D-Gittins falls back to 2D-LAS until ``history`` holds ``gittins_samples`` ended jobs.
    2D-History goes by ``runs``; without it, by the service attained.
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
    """The policy that a configuration asks for, which knows the jobs that have ended, the latest
    last. ``ended`` is called only where the policy goes by them."""
    if config.name == "2d-gittins":
        return make_policy(config, ServiceHistory(job.service_gpu_s for job in ended()))
    if config.name == BY_RUNS_BEFORE:
        runs = ((job.user, job.name, job.run_s) for job in ended())
        return make_policy(config, runs=RunHistory(config.history_samples, runs))
    return make_policy(config)


def tier_by_service(service_gpu_s: float, config: PolicyConfig) -> int | None:
    """The tier of a job with so much charged service; None where the policy needs to know more of
    the job than that (``config.tiers_follow_service``)."""
    if not tiers_follow_service(config.name):
        return None
    return tier_of(service_gpu_s, config.thresholds_gpu_s)


def left_in_tier(service: float, thresholds: Sequence[float]) -> float:
    """How much more service a job may attain before it moves down; infinite in the last tier."""
    tier = tier_of(service, thresholds)
    return math.inf if tier == len(thresholds) else thresholds[tier] - service
