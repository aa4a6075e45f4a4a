"""LAS in one dimension: what Tiresias is without the width of jobs (paper section 3.2.1)."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_tiresias.config import Config
from slurm_tiresias.model import Node
from slurm_tiresias.policy.standing import JobFacts
from slurm_tiresias.policy.tiers import TieredLas, left_in_tier
from slurm_tiresias.simulator.engine import SimJob
from slurm_tiresias.simulator.schedulers import Decided


def one_dimensional_las(config: Config, nodes: Sequence[Node]) -> Decided:
    """LAS that counts seconds, not GPU-seconds: the thresholds are seconds."""
    thresholds = config.policy.thresholds_gpu_s
    policy = TieredLas(thresholds, _submission, lambda job: job.executed_since_promotion_s)

    def to_next_tier_s(job: SimJob) -> float:
        return left_in_tier(job.executed_since_promotion_s, thresholds)

    return Decided(policy, config, nodes, to_next_tier_s)


def _submission(job: JobFacts) -> tuple[float, ...]:
    return (job.submitted_s,)
