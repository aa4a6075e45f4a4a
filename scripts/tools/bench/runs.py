"""Simulations of the paper's workload, on all cores."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.config import parse
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.report import Figures, figures
from slurm_tiresias.simulator.run import Setup, simulate
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.workload import paper480

THRESHOLD_GPU_S = 3200
"""The threshold on the paper's testbed (page 493), for two queues."""


@dataclass(frozen=True)
class Run:
    seed: int
    policy: str
    cluster: str
    placement: str
    overhead: str

    def outcomes(self) -> tuple[Outcome, ...]:
        site = parse_cluster(self.cluster, self.placement)
        config = parse(
            {
                "policy": {"thresholds_gpu_s": [THRESHOLD_GPU_S]},
                "preemption": {
                    "min_run_s": 0,
                    "budget_share": 0,
                },
            }
        )
        priced = self.overhead == "model"
        costs = Costs(site, speeds=priced, flat_s=None if priced else 0.0)
        return simulate(paper480(self.seed), self.policy, Setup(site, config, costs, Timing()))

    def figures(self) -> Figures:
        return figures(self.outcomes(), parse_cluster(self.cluster, self.placement).gpus)
