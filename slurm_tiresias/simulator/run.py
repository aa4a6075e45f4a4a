"""One workload on one cluster under one policy: the pieces put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from slurm_tiresias.config import Config
from slurm_tiresias.model import PlacementStyle, Request
from slurm_tiresias.policy.gittins import ServiceHistory
from slurm_tiresias.simulator import physics, schedulers
from slurm_tiresias.simulator.engine import Outcome, Scheduler, Simulation, Timing
from slurm_tiresias.simulator.workload import TraceJob, Workload
from slurm_tiresias.simulator.world import Costs, Site

TIRESIAS = {"tiresias-l": "2d-las", "tiresias-g": "2d-gittins"}
POLICIES = (*TIRESIAS, *schedulers.BASELINES)
CONSOLIDATED_ONLY = ("yarn-cs",)
"""Policies whose jobs rather wait than be spread (paper page 493)."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same for all policies of a comparison."""

    site: Site
    config: Config
    costs: Costs
    timing: Timing


def fitting(workload: Workload, site: Site) -> tuple[Workload, tuple[TraceJob, ...]]:
    """The jobs that the cluster can run at all, and those wider than it is."""
    wide = tuple(job for job in workload.jobs if job.gpus > site.gpus)
    kept = tuple(job for job in workload.jobs if job.gpus <= site.gpus)
    return replace(workload, jobs=kept), wide


def simulate(
    workload: Workload,
    policy: str,
    setup: Setup,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[Outcome, ...]:
    """Run one policy to the end of the workload; outcomes in the order of the trace."""
    only_consolidated = policy in CONSOLIDATED_ONLY

    def describe(job: TraceJob) -> tuple[Request, PlacementStyle | None, float | None]:
        request = setup.site.request(job, only_consolidated=only_consolidated)
        return request, setup.site.style(), physics.physics_of(job.model).skew

    return Simulation(
        workload.jobs,
        setup.site.as_nodes(),
        _scheduler(policy, workload, setup.config),
        setup.costs,
        setup.timing,
        describe,
        progress,
    ).run()


def _scheduler(policy: str, workload: Workload, config: Config) -> Scheduler:
    if policy in schedulers.BASELINES:
        return schedulers.BASELINES[policy](config)
    named = replace(config, policy=replace(config.policy, name=TIRESIAS[policy]))
    # As in the paper, the distribution is known and the single job's service is not.
    history = ServiceHistory(job.gpus * job.duration_s for job in workload.jobs)
    return schedulers.tiresias(named, history if policy == "tiresias-g" else None)
