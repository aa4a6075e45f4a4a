"""One workload on one cluster under one policy: the pieces put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from slurm_tiresias.config import Config
from slurm_tiresias.model import PlacementStyle
from slurm_tiresias.placement.choose import style_of_skew
from slurm_tiresias.policy.gittins import ServiceHistory
from slurm_tiresias.simulator import physics, schedulers
from slurm_tiresias.simulator.engine import Ask, Outcome, Scheduler, Simulation, Timing
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
    return Simulation(
        workload.jobs,
        _scheduler(policy, workload, setup),
        setup.costs,
        setup.timing,
        asking(setup, only_consolidated=policy in CONSOLIDATED_ONLY),
        progress,
    ).run()


def asking(setup: Setup, *, only_consolidated: bool) -> Callable[[TraceJob], Ask]:
    """What each job asks for; jobs that ask alike share one ``Ask``."""

    @cache
    def style(model: str) -> PlacementStyle:
        forced = setup.site.style()
        return forced or style_of_skew(physics.physics_of(model).skew, setup.config.placement)

    @cache
    def ask(gpus: int, style: PlacementStyle) -> Ask:
        return Ask(setup.site.request(gpus, only_consolidated=only_consolidated), style)

    return lambda job: ask(job.gpus, style(job.model))


def _scheduler(policy: str, workload: Workload, setup: Setup) -> Scheduler:
    config, nodes = setup.config, setup.site.as_nodes()
    if policy in schedulers.BASELINES:
        return schedulers.BASELINES[policy](config, nodes)
    named = replace(config, policy=replace(config.policy, name=TIRESIAS[policy]))
    # As in the paper, the distribution is known and the single job's service is not.
    history = ServiceHistory(job.gpus * job.duration_s for job in workload.jobs)
    return schedulers.tiresias(named, nodes, history if policy == "tiresias-g" else None)
