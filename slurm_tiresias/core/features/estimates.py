"""Tiers by remaining service, if that can be estimated.

Can be combined with every policy: a job with an estimate is ranked by its remaining service, all
others by the policy itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, Protocol

from slurm_tiresias.core.features.claims import (
    MOST_TIMES_ATTAINED,
    claimed_gpu_s,
    expires_at_gpu_s,
    is_broken,
)
from slurm_tiresias.core.features.policy import EndedJob, Policy
from slurm_tiresias.core.features.promotion import Promotion
from slurm_tiresias.core.features.recurring import RunHistory
from slurm_tiresias.core.features.tiers import LEVELS, tier_of
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.rank import JobRank
from slurm_tiresias.model import JobState
from slurm_tiresias.settings.policy import HISTORY, REPORTS

GUESS_TIERS: Final = 2
"""A guess moves a job down by so many tiers at most. With one, long jobs of Microsoft's traces wait
for each other; with more, some starve for a wrong guess."""


class Estimator(Protocol):
    """A source of estimates."""

    name: ClassVar[str]
    learns: ClassVar[bool]

    def remaining_gpu_s(self, job: Job) -> float | None:
        """Return the service that a job still needs; None if there is no credible estimate."""
        ...

    def steady_for_s(self, job: Job, least_gpu_s: float, most_gpu_s: float) -> float:
        """Return for how many seconds of running the estimate is guaranteed not to change, and for
        how long it is guaranteed to stay between ``least_gpu_s`` and ``most_gpu_s``, where it is
        now."""
        ...

    def learn(self, ended: EndedJob) -> Collection[str]:
        """Learn from a job that has ended; return the users whose estimates may have changed."""
        ...


@dataclass(frozen=True, slots=True)
class ByReports:
    """Estimates from the reports of the jobs themselves."""

    name: ClassVar[str] = REPORTS
    learns: ClassVar[bool] = False

    def remaining_gpu_s(self, job: Job) -> float | None:
        return claimed_gpu_s(job)

    def steady_for_s(self, job: Job, least_gpu_s: float, most_gpu_s: float) -> float:
        claim, attained_gpu_s = job.claim, job.attained_gpu_s
        assert claim is not None
        expires_gpu_s = expires_at_gpu_s(claim, job.width)
        until_gpu_s = [math.nextafter(min(claim.promised_gpu_s, expires_gpu_s), math.inf)]
        if least_gpu_s > 0.0:
            # Needed if ``total - attained`` is exactly below the limit, but is rounded to it as a
            # float.
            until_gpu_s.append(claim.total_gpu_s - least_gpu_s + math.ulp(claim.total_gpu_s))
        if most_gpu_s < math.inf:
            until_gpu_s.append(most_gpu_s / MOST_TIMES_ATTAINED)
        ahead_gpu_s = (gpu_s - attained_gpu_s for gpu_s in until_gpu_s if gpu_s > attained_gpu_s)
        return min(ahead_gpu_s, default=math.inf) / job.width

    def learn(self, ended: EndedJob) -> Collection[str]:
        return ()


@dataclass(frozen=True, slots=True)
class ByHistory:
    """Estimates from the running times of ended jobs with a similar limit, of the same user and
    name.

    Never less than the service attained: a job that has outlived most similar jobs is likely to
    continue.
    """

    runs: RunHistory
    name: ClassVar[str] = HISTORY
    learns: ClassVar[bool] = True

    def remaining_gpu_s(self, job: Job) -> float | None:
        if not job.gpus_asked:  # Its request cannot be read at the moment.
            return None
        expected_s = self.runs.remaining_s(
            job.user, job.name, job.time_limit_s, job.executed_since_promotion_s
        )
        # By requested GPUs: the job may hold more, and starting must not lower its rank.
        return None if expected_s is None else max(job.attained_gpu_s, job.gpus_asked * expected_s)

    def steady_for_s(self, job: Job, least_gpu_s: float, most_gpu_s: float) -> float:
        executed_s, gpus = job.executed_since_promotion_s, job.gpus_asked
        by_runs_s = self.runs.steady_for_s(
            job.user,
            job.name,
            job.time_limit_s,
            executed_s,
            least_gpu_s / gpus,
            most_gpu_s / gpus,
        )
        return min(by_runs_s, (most_gpu_s - job.attained_gpu_s) / job.width)

    def learn(self, ended: EndedJob) -> Collection[str]:
        return self.runs.add(ended.user, ended.name, ended.time_limit_s, ended.run_s)


def _lowest_of_a_guess(las_tier: int) -> int:
    """Return the lowest tier to which a guess may move a job that has this tier without it.

    Each job gets its try in the first tier, however long jobs like it ran.
    """
    return las_tier + GUESS_TIERS if las_tier else 0


def is_promoted(job: Job) -> bool:
    """Whether a job was promoted, so that only service attained since then counts."""
    return job.attained_since_promotion_gpu_s < job.attained_gpu_s


class Remaining(NamedTuple):
    """An estimate, and its source."""

    gpu_s: float
    estimator: Estimator


def _order_of(remaining: Remaining, job: Job) -> float:
    """Return by what a waiting job is ordered in its tier. Guesses are rounded to a power of two:
    jobs that differ by less go by submission."""
    gpu_s = remaining.gpu_s + job.inherited_gpu_s
    if not remaining.estimator.learns or gpu_s <= 0.0:
        return gpu_s
    return float(2.0 ** round(math.log2(gpu_s)))


@dataclass(frozen=True, slots=True)
class WithEstimates(Policy):
    """A policy in which a job with an estimate has the tier of its remaining service.

    Within a level, waiting jobs with less remaining service go first. A job without an estimate is
    treated as if it needed half of the most that its tier allows, and a job whose promise is broken
    as if it needed all of it. Running jobs with an estimate come before them all. The first
    estimator that has an estimate for a job counts. A promoted job is ranked as if it had no
    estimate.
    """

    base: Policy
    thresholds_gpu_s: tuple[float, ...]
    estimators: tuple[Estimator, ...]
    promotion: Promotion
    has_tiers: ClassVar[bool] = True
    learns: bool = field(init=False)
    _halves_gpu_s: tuple[float, ...] = field(init=False, repr=False)
    """For each tier, half of the most service that it allows."""

    def __post_init__(self) -> None:
        limits_gpu_s = (*self.thresholds_gpu_s, math.inf)
        object.__setattr__(self, "learns", any(each.learns for each in self.estimators))
        object.__setattr__(self, "_halves_gpu_s", tuple(gpu_s / 2 for gpu_s in limits_gpu_s))

    def tier_after(self, service_gpu_s: float) -> int:
        return self.base.tier_after(service_gpu_s)

    def remaining(self, job: Job) -> Remaining | None:
        """Return the remaining service by which a job is ranked; None if the policy ranks it
        without estimates."""
        if is_promoted(job):
            return None
        for estimator in self.estimators:
            gpu_s = estimator.remaining_gpu_s(job)
            if gpu_s is not None:
                return Remaining(gpu_s, estimator)
        return None

    def goes_by_gpu_s(self, job: Job) -> float | None:
        remaining = self.remaining(job)
        return None if remaining is None else _order_of(remaining, job)

    def rank(self, job: Job) -> JobRank:
        # Most jobs do not report, and each cycle ranks very many of them.
        silent = job.claim is None and not self.learns
        remaining = None if silent else self.remaining(job)
        if remaining is None:
            level, order_key, tier = self.base.rank(job)
            stands_for_gpu_s = self._halves_gpu_s[tier]
            if not silent and is_broken(job):
                stands_for_gpu_s *= 2
            return JobRank(level, (stands_for_gpu_s, *order_key), tier)
        tier = tier_of(remaining.gpu_s + job.inherited_gpu_s, self.thresholds_gpu_s)
        if remaining.estimator.learns:
            tier = min(tier, _lowest_of_a_guess(self.base.rank(job).tier))
        if job.state is JobState.RUNNING:
            # The order of running jobs only breaks ties between victims. If it depended on
            # remaining service, each cycle would change it, and the planner would try every class
            # again.
            return JobRank(LEVELS[tier], (0.0, job.submitted_s), tier)
        return JobRank(LEVELS[tier], (_order_of(remaining, job), job.submitted_s), tier)

    def steady_for_s(self, job: Job) -> float:
        remaining = self.remaining(job)
        if remaining is None:
            return self.base.steady_for_s(job)
        tier = tier_of(remaining.gpu_s + job.inherited_gpu_s, self.thresholds_gpu_s)
        least_gpu_s, most_gpu_s = (-math.inf, *self.thresholds_gpu_s, math.inf)[tier : tier + 2]
        steady_s = remaining.estimator.steady_for_s(
            job, least_gpu_s - job.inherited_gpu_s, most_gpu_s - job.inherited_gpu_s
        )
        if remaining.estimator.learns:
            steady_s = min(steady_s, self.base.steady_for_s(job))
        return steady_s

    def drifts_in(self, tier: int, job: Job) -> bool:
        return self.base.drifts_in(tier, job) and self.remaining(job) is None

    def learn(self, ended: EndedJob) -> Collection[str]:
        return {user for estimator in self.estimators for user in estimator.learn(ended)}
