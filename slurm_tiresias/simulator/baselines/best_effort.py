"""Best-effort (paper page 495): YARN-CS without its head-of-line blocking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.promotion import Promotion
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.rank import JobRank
from slurm_tiresias.model import Node
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.schedulers import TiresiasScheduler


@dataclass(frozen=True, slots=True)
class _BySubmission(Policy):
    """All jobs on one level, so that none is preempted."""

    promotion: Promotion

    def rank(self, job: Job) -> JobRank:
        return JobRank((0.0,), (job.submitted_s,), 0)


def best_effort(config: Config, nodes: Sequence[Node]) -> TiresiasScheduler:
    """First come, first served; jobs that do not fit are skipped, and no job is preempted."""
    return TiresiasScheduler(_BySubmission(Promotion.of(config.policy)), config, nodes)
