"""Simulations of one workload on one cluster under one policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from slurm_tiresias.core.features.gittins import ServiceHistory
from slurm_tiresias.core.placement.choose import style_of_skew
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.model import PlacementStyle
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.policy import GITTINS, LAS
from slurm_tiresias.settings.policy import POLICIES as CONFIGURED
from slurm_tiresias.simulator import physics, schedulers
from slurm_tiresias.simulator.baselines import (
    BASELINES,
    CONSOLIDATED_ONLY,
    OWN_LIMITS,
    OWN_PACE,
    SUSPENDING,
)
from slurm_tiresias.simulator.baselines.backfill import DEFAULTS, SlurmParameters
from slurm_tiresias.simulator.engine import Ask, Outcome, Scheduler, Simulation, Timing
from slurm_tiresias.simulator.failures import FailureModel
from slurm_tiresias.simulator.reports import ReportModel, Reports
from slurm_tiresias.simulator.saves import PESSIMISTIC
from slurm_tiresias.simulator.sim_cluster import Costs, SimCluster
from slurm_tiresias.simulator.workload import TraceJob, Workload

_IN_THE_PAPER = {"tiresias-l": LAS, "tiresias-g": GITTINS}
TIRESIAS = _IN_THE_PAPER | {name: name for name in CONFIGURED if name not in (LAS, GITTINS)}
"""The controller's policies by their names in simulations: the paper's names, or else their own."""

KNOWS_SERVICE = ("tiresias-g",)
"""Those that know the distribution of service from the start, as in the paper; the service of a
single job they do not know."""

POLICIES = (*TIRESIAS, *BASELINES)


class UnfinishedError(TiresiasError):
    """Raised if a policy leaves jobs waiting forever: a bug in the policy, not in its input."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The inputs that all policies of a comparison share."""

    cluster: SimCluster
    config: Config
    costs: Costs
    timing: Timing
    slurm: SlurmParameters = DEFAULTS
    """Parameters of the baselines on Slurm."""
    reports: ReportModel | None = None
    """How the jobs report; None if none does."""
    failures: FailureModel | None = None
    """How often nodes fail; None if they do not."""
    own_pace_s: float = 0.0
    """Scheduling interval of the policies in ``OWN_PACE``; 0 means at every event."""


def for_baselines(cluster: SimCluster) -> Setup:
    """Return the setup for baselines on jobs of unknown models, whose speed does not depend on
    their placement."""
    return Setup(cluster, Config(), Costs(cluster, False, None, PESSIMISTIC), Timing())


def fitting(workload: Workload, cluster: SimCluster) -> tuple[Workload, tuple[TraceJob, ...]]:
    """Split a workload into the jobs that the cluster can run and those that it cannot."""
    wide = tuple(job for job in workload.jobs if not cluster.can_run(job))
    kept = tuple(job for job in workload.jobs if cluster.can_run(job))
    return replace(workload, jobs=kept), wide


def simulate(
    workload: Workload, policy: str, setup: Setup, progress: Callable[[int], None] = lambda _: None
) -> tuple[Outcome, ...]:
    """Simulate one policy to the end of the workload; return outcomes in the order of the trace.

    All jobs must fit the cluster (``fitting``). Raises ``UnfinishedError`` if jobs never start.
    """
    if policy in OWN_LIMITS:
        workload = OWN_LIMITS[policy](workload)
    if policy in SUSPENDING:
        costs = replace(setup.costs, flat_s=0.0, saves=None)
        setup = replace(setup, costs=costs, timing=Timing())
    elif policy in OWN_PACE:
        setup = replace(setup, timing=replace(setup.timing, interval_s=setup.own_pace_s))
    names = [node.name for node in setup.cluster.as_nodes()]
    first_s = workload.jobs[0].submitted_s if workload.jobs else 0.0
    failures = setup.failures.failures(names, first_s) if setup.failures else iter(())
    outcomes = Simulation(
        workload.jobs,
        _scheduler(policy, workload, setup),
        setup.costs,
        setup.timing,
        asking(setup, only_consolidated=policy in CONSOLIDATED_ONLY),
        progress,
        failures=failures,
    ).run()
    jobs = len(workload.jobs)
    unfinished = jobs - len(outcomes)
    if unfinished:
        raise UnfinishedError(
            f"Internal error: under {policy} {unfinished:,} of {jobs:,} jobs never ended",
            "Report this with the trace and the options; leave the policy out meanwhile",
        )
    return outcomes


def asking(setup: Setup, *, only_consolidated: bool) -> Callable[[TraceJob], Ask]:
    """Return a function that gives the ``Ask`` of a job; jobs with equal requests share one."""

    forced = setup.cluster.style()

    @cache
    def ask(gpus: int, gpu_type: str, style: PlacementStyle) -> Ask:
        request = setup.cluster.request(gpus, gpu_type, only_consolidated=only_consolidated)
        return Ask(request, style)

    @cache
    def ask_of(gpus: int, gpu_type: str, model: str) -> Ask:
        skew = physics.physics_of(model).skew
        style = forced or style_of_skew(skew, setup.config.placement)
        return ask(gpus, setup.cluster.type_for(gpu_type), style)

    return lambda job: ask_of(job.gpus, job.gpu_type, job.model)


def _scheduler(policy: str, workload: Workload, setup: Setup) -> Scheduler:
    config, nodes = setup.config, setup.cluster.as_nodes()
    if policy in BASELINES:
        return BASELINES[policy](setup, workload)
    named = replace(config, policy=replace(config.policy, name=TIRESIAS[policy]))
    history = None
    if policy in KNOWS_SERVICE:
        history = ServiceHistory(job.gpus * job.duration_s for job in workload.jobs)
    reports = Reports(setup.reports, workload) if setup.reports else None
    return schedulers.tiresias(named, nodes, history, reports)
