"""Where a policy ranks a job among all others."""

from __future__ import annotations

import math
import re
from typing import NamedTuple, Protocol

from slurm_tiresias.model import Claim, FairStanding, JobState, Lane

Key = tuple[float, ...]

FIRST_LEVEL: Key = (0.0,)
"""The level of the first tier."""

BOUND_LEVEL: Key = (-1.0,)
"""The level of jobs of known length at the bound on their slowdown. They may preempt those of the
first tier."""

IDLE_LEVEL: Key = (math.inf,)
"""The level of jobs whose GPUs have long been idle: all other jobs may preempt them, and they
preempt none."""


class JobRank(NamedTuple):
    """Where a job ranks. Smaller is better everywhere.

    ``level`` is the preemption class: a job may take GPUs only from jobs of a strictly larger
    level. ``order_key`` ranks jobs of one level. ``tier`` is shown to users and determines the
    priority band in Slurm; for a discretized policy, level and tier are the same.
    """

    level: Key
    order_key: Key
    tier: int


class JobFacts(Protocol):
    """The job attributes that a policy may read; see ``model.JobView``."""

    @property
    def job_id(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> JobState: ...
    @property
    def width(self) -> int: ...
    @property
    def gpus_asked(self) -> int: ...
    @property
    def submitted_s(self) -> float: ...
    @property
    def attained_gpu_s(self) -> float: ...
    @property
    def attained_since_promotion_gpu_s(self) -> float: ...
    @property
    def executed_since_promotion_s(self) -> float: ...
    @property
    def inherited_gpu_s(self) -> float: ...
    @property
    def promotions(self) -> int: ...
    @property
    def first_started_s(self) -> float | None: ...
    @property
    def tier_entered_s(self) -> float | None: ...
    @property
    def queued_s(self) -> float | None: ...
    @property
    def claim(self) -> Claim | None: ...
    @property
    def fair(self) -> FairStanding: ...
    @property
    def lane(self) -> Lane: ...
    @property
    def ranks_last(self) -> bool: ...
    @property
    def time_limit_s(self) -> float | None: ...
    @property
    def remaining_s(self) -> float | None: ...


def charged_gpu_s(job: JobFacts) -> float:
    """GPU-seconds that count for the tier: the service since the last promotion, plus the service
    inherited from jobs of the same user or account (``policy.charge``)."""
    return job.attained_since_promotion_gpu_s + job.inherited_gpu_s


class UniqueRank(NamedTuple):
    """A ``JobRank`` whose ties are broken by job id, so that no two jobs share a rank."""

    level: Key
    order_key: Key
    id_key: Key
    job_id: str

    @staticmethod
    def of(job_id: str, job_rank: JobRank) -> UniqueRank:
        return UniqueRank(job_rank.level, job_rank.order_key, job_id_key(job_id), job_id)


def job_id_key(job_id: str) -> Key:
    """Return the numbers in a job id, so that 9 sorts before 10 and 12_9 before 12_10."""
    if job_id.isdecimal():
        return (float(job_id),)
    return tuple(float(number) for number in re.findall(r"\d+", job_id))
