"""The interface of scheduling policies, which rank jobs and know when a rank may change."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import ClassVar, Protocol

from slurm_tiresias.core.features.promotion import NEVER, Promotion
from slurm_tiresias.core.job import Job, most_service_gpu_s
from slurm_tiresias.core.rank import BOOST_LEVEL, FIRST_LEVEL, IDLE_LEVEL, JobRank
from slurm_tiresias.model import Lane


class EndedJob(Protocol):
    """The attributes of an ended job that a policy may learn from."""

    @property
    def user(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def time_limit_s(self) -> float | None: ...
    @property
    def run_s(self) -> float: ...
    @property
    def service_gpu_s(self) -> float: ...


class Policy(ABC):
    """A scheduling policy. It ranks every job, and equal facts give equal ranks unless the policy
    learned from an ended job in between.

    The default methods suit a policy whose ranks do not change while a job runs.
    """

    __slots__ = ()

    promotion: Promotion = NEVER

    has_tiers: ClassVar[bool] = False
    """Whether its levels are tiers. Then a job with an estimate gets the tier of its remaining
    service (``policy.estimates``), jobs of near tiers do not preempt each other, and victims are
    those that lose least, whatever their tiers."""

    learns: bool = False
    """Whether the end of a job may change the ranks of other jobs."""

    @abstractmethod
    def rank(self, job: Job) -> JobRank:
        """Return the rank of a job."""

    def tier_after(self, service_gpu_s: float) -> int:
        """Return the tier that a job would have after attaining this much service."""
        return 0

    def goes_by_gpu_s(self, job: Job) -> float | None:
        """Return the estimated service by which a waiting job is ordered in its tier, the least
        first; None if it is ordered otherwise."""
        return None

    def steady_for_s(self, job: Job) -> float:
        """Seconds that a running job can keep running before its level or tier may change."""
        return math.inf

    def drifts_in(self, tier: int, job: Job) -> bool:
        """Whether a running job's place among the others of this tier changes while it runs."""
        return False

    def learn(self, ended: EndedJob) -> Collection[str]:
        """Update the policy with a job that has ended; return the users whose jobs may rank
        differently."""
        return ()


def rank_of(job: Job, policy: Policy) -> JobRank:
    """Return the rank of a job: before all others while it is boosted, by its lane
    (``interactive``), after all others while it leaves its GPUs idle or waits after failures, or
    else that of the policy."""
    if job.boosted:
        return JobRank(BOOST_LEVEL, (-math.inf, -math.inf, job.submitted_s), 0)
    if job.lane is Lane.INTERACTIVE:
        return JobRank(FIRST_LEVEL, (-math.inf, -math.inf, job.submitted_s), 0)
    if job.lane is Lane.IDLE_ONLY:
        # Others may have to wait this long for these GPUs. Jobs of the tier that can be preempted
        # go first.
        kept_gpu_s = most_service_gpu_s(job.gpus_asked, job.time_limit_s)
        tier = policy.tier_after(kept_gpu_s)
        return JobRank((float(tier),), (math.inf, kept_gpu_s, job.submitted_s), tier)
    if job.ranks_last or job.waits_behind:
        # Its tier stays: once it uses a GPU again, it is as if it had never been idle. Among
        # themselves such jobs keep the order of the policy.
        rank = policy.rank(job)
        return rank._replace(level=IDLE_LEVEL, order_key=(*rank.level, *rank.order_key))
    return policy.rank(job)
