"""The interface of scheduling policies, which rank jobs and know when a rank may change."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Protocol

from slurm_tiresias.policy.job_rank import JobFacts, JobRank
from slurm_tiresias.policy.promotion import NEVER, Promotion


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

    learns: bool = False
    """Whether the end of a job may change the ranks of other jobs of the same user."""

    @abstractmethod
    def rank(self, job: JobFacts) -> JobRank:
        """Return the rank of a job."""

    def steady_for_s(self, job: JobFacts) -> float:
        """Seconds that a running job can keep running before its level or tier may change."""
        return math.inf

    def drifts_in(self, tier: int, job: JobFacts) -> bool:
        """Whether a running job's place among the others of this tier changes while it runs."""
        return False

    def learn(self, ended: EndedJob) -> None:
        """Update the policy with a job that has ended."""
        return

    def is_judged_by(self, job: JobFacts, name: str) -> bool:
        """Whether the end of a job with this name and the same user may change the job's rank."""
        return self.learns
