"""What a scheduling policy is: one object that ranks jobs, and knows when a rank changes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

from slurm_tiresias.policy.job_rank import JobFacts, JobRank
from slurm_tiresias.policy.promotion import NEVER, Promotion


class EndedJob(Protocol):
    """What a policy may learn from a job that has ended."""

    @property
    def user(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def run_s(self) -> float: ...
    @property
    def service_gpu_s(self) -> float: ...


class Policy(ABC):
    """A scheduling policy, total on every job: two calls on a job with the same facts return the
    same rank, unless the policy has learned of a job that ended between the two.

    What is not overridden is right for a policy whose ranks never change by themselves.
    """

    __slots__ = ()

    promotion: Promotion = NEVER
    learns: ClassVar[bool] = False
    """Whether a job that ends may change the ranks of others of the same user."""

    @abstractmethod
    def rank(self, job: JobFacts) -> JobRank:
        """Where the job ranks among all others."""

    def steady_for_s(self, job: JobFacts) -> float:
        """Seconds that a running job may run on before its level or tier can change."""
        return math.inf

    def drifts_in(self, tier: int) -> bool:
        """Whether the order of the running jobs of a tier changes while they run on."""
        return False

    def learn(self, ended: EndedJob) -> None:
        """Take in a job that has ended."""
        return

    def is_judged_by(self, job: JobFacts, name: str) -> bool:
        """Whether the end of a job of the same user and this name may change the rank."""
        return self.learns
