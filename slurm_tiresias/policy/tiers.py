"""Discretized tiers: the multi-level queue of paper section 3.2.3 (pages 490-491)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm_tiresias.config import MAX_TIERS, PolicyConfig
from slurm_tiresias.model import Job, JobState
from slurm_tiresias.policy.gittins import ServiceHistory
from slurm_tiresias.policy.recurring import RunHistory
from slurm_tiresias.policy.standing import JobFacts, Key, Policy, Standing

MOST_DOUBLINGS = 30
"""Of the time until the next promotion: by then it is longer than anybody waits."""

_LEVELS = tuple((float(tier),) for tier in range(MAX_TIERS))


def tier_of(attained_gpu_s: float, thresholds_gpu_s: Sequence[float]) -> int:
    """The tier of a job: the index of the first threshold above its service, 0 the highest."""
    return bisect_right(thresholds_gpu_s, attained_gpu_s)


def charged_gpu_s(job: JobFacts) -> float:
    """The service that counts: GPUs x running seconds since the job was last promoted, and what
    it inherited from jobs of its user or account (``policy.charge``)."""
    return job.attained_since_promotion_gpu_s + job.inherited_gpu_s


def by_first_start(job: JobFacts) -> Key:
    """The paper's order: first start ever; jobs that never ran after those, as submitted."""
    if job.first_started_s is None:
        return (1.0, job.submitted_s)
    return (0.0, job.first_started_s)


def by_entry(job: JobFacts) -> Key:
    """When the job entered its tier; for a job that never left its first tier, its submission."""
    return (job.submitted_s if job.tier_entered_s is None else job.tier_entered_s,)


def by_waiting(job: JobFacts) -> Key:
    """Running jobs first, then by when a job last began to wait, as the authors' simulator does."""
    if job.state is JobState.RUNNING:
        return (0.0, 0.0)
    return (1.0, job.submitted_s if job.queued_s is None else job.queued_s)


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
class TieredLas:
    """Discretized 2D-LAS: tiers by attained service, one order inside each."""

    thresholds_gpu_s: tuple[float, ...]
    order: Callable[[JobFacts], Key]
    service: Callable[[JobFacts], float] = charged_gpu_s

    def standing(self, job: JobFacts) -> Standing:
        tier = bisect_right(self.thresholds_gpu_s, self.service(job))
        return Standing(_LEVELS[tier], self.order(job), tier)


@dataclass(frozen=True, slots=True)
class TieredGittins:
    """Discretized 2D-Gittins: the same tiers, each but the last ordered by the Gittins index.

    The quantum of a tier is its upper limit; the last tier has none and is ordered as LAS orders
    it (Pseudocode 2, page 491). The index sees all the service a job ever attained.
    """

    thresholds_gpu_s: tuple[float, ...]
    order: Callable[[JobFacts], Key]
    history: ServiceHistory

    def standing(self, job: JobFacts) -> Standing:
        tier = tier_of(charged_gpu_s(job), self.thresholds_gpu_s)
        last = tier == len(self.thresholds_gpu_s)
        order = self.order(job) if last else (-self._index(job, tier), *self.order(job))
        return Standing(_LEVELS[tier], order, tier)

    def _index(self, job: JobFacts, tier: int) -> float:
        return self.history.index(job.attained_gpu_s, self.thresholds_gpu_s[tier])


@dataclass(frozen=True, slots=True)
class TieredHistory:
    """Tiers by the service that jobs of the same user and name lead one to expect.

    Inside a tier the least expected comes first. A job of which nothing like it is known stands
    where 2D-LAS puts it by the service attained, and so does one that was promoted.
    """

    thresholds_gpu_s: tuple[float, ...]
    runs: RunHistory

    def standing(self, job: JobFacts) -> Standing:
        expected_gpu_s = self._expected_gpu_s(job)
        tier = tier_of(expected_gpu_s, self.thresholds_gpu_s)
        return Standing(_LEVELS[tier], (expected_gpu_s, job.submitted_s), tier)

    def _expected_gpu_s(self, job: JobFacts) -> float:
        if job.attained_since_promotion_gpu_s < job.attained_gpu_s:
            return charged_gpu_s(job)
        executed_s = job.executed_since_promotion_s
        expected_s = self.runs.expected_run_s(job.user, job.name, executed_s)
        # By what it asks for: what it holds may be more, and it must not fall behind by starting.
        return max(job.attained_gpu_s, job.gpus_asked * expected_s) + job.inherited_gpu_s


def make_policy(
    config: PolicyConfig, history: ServiceHistory | None = None, runs: RunHistory | None = None
) -> Policy:
    """The policy that a configuration asks for.

    2D-Gittins falls back to 2D-LAS until ``history`` holds ``gittins_samples`` ended jobs.
    2D-History goes by ``runs``; without it, by the service attained.
    """
    order = ORDERS[config.order]
    if config.name == "2d-history":
        return TieredHistory(config.thresholds_gpu_s, runs or RunHistory(config.history_samples))
    if config.name == "2d-gittins" and history and len(history) >= config.gittins_samples:
        return TieredGittins(config.thresholds_gpu_s, order, history)
    return TieredLas(config.thresholds_gpu_s, order)


def deserves_promotion(job: Job, now_s: float, config: PolicyConfig) -> bool:
    """Whether a job has starved long enough to return to the top tier (paper page 491)."""
    may_be = config.promote_knob > 0 and job.state is JobState.PENDING
    return may_be and job.waited_s(now_s) >= starving_s(job, config)


def starving_s(job: JobFacts, config: PolicyConfig) -> float:
    """How long a job must wait before it returns to the top tier; infinite if it never does.

    The floor keeps wide jobs, which cross a threshold within seconds, from cycling. It does not
    do that for long ones, of which the paper forgets how long they have run: so each promotion
    doubles what the next one takes.
    """
    if config.promote_knob <= 0:
        return math.inf
    if tier_of(charged_gpu_s(job), config.thresholds_gpu_s) == 0:
        return math.inf
    first_s = max(config.promote_floor_s, config.promote_knob * job.executed_since_promotion_s)
    return first_s * 2.0 ** min(job.promotions, MOST_DOUBLINGS)


def left_in_tier(service: float, thresholds: Sequence[float]) -> float:
    """How much more service a job may attain before it moves down; infinite in the last tier."""
    tier = tier_of(service, thresholds)
    return math.inf if tier == len(thresholds) else thresholds[tier] - service
