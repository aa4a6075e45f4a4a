"""The policies of a replay: the slurm.conf that each needs, and its jobs' requests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import click

from scripts import ROOT
from scripts.tools.bench.replay.jobs import Ask, on_any_nodes, time_limit
from scripts.tools.bench.replay.setting import SCHEDULER, Setting
from slurm_tiresias.settings.policy import LAS, PolicyConfig
from slurm_tiresias.simulator.reports import ReportModel
from slurm_tiresias.simulator.workload import TraceJob

EXAMPLE = ROOT / "etc" / "slurm.conf.example"
PARAMETERS = "SchedulerParameters="

BY_AGE = ("PriorityType=priority/multifactor", "PriorityWeightAge=1000", "PriorityMaxAge=1-0")
"""Multifactor priority by age alone, that is in order of submission."""


def strict_fifo() -> tuple[str, ...]:
    """Slurm's main scheduler alone: a job that does not fit blocks all behind it, as in YARN-CS."""
    return (PARAMETERS + SCHEDULER, "SchedulerType=sched/builtin", "PriorityType=priority/basic")


def backfill() -> tuple[str, ...]:
    """Slurm as most sites run it."""
    return (PARAMETERS + SCHEDULER, "SchedulerType=sched/backfill", *BY_AGE)


def beside_a_controller() -> tuple[str, ...]:
    """Backfill with the settings that etc/slurm.conf.example recommends."""
    lines = [line for line in EXAMPLE.read_text().splitlines() if line and line[0] != "#"]
    merged = [f"{line},{SCHEDULER}" if line.startswith(PARAMETERS) else line for line in lines]
    return (*merged, "SchedulerType=sched/backfill", *BY_AGE)


def anywhere(_setting: Setting) -> Ask:
    return on_any_nodes


def consolidated(setting: Setting) -> Ask:
    """Request the fewest nodes that fit the job: YARN-CS never spreads a job (paper page 493).

    The number of nodes and the GPUs per node are given. With a total (--gpus), Slurm would try
    partly used nodes, and a job of 8 GPUs might spread over three nodes of four. The paper's widths
    divide evenly among a job's nodes.
    """
    return partial(_on_fewest_nodes, setting)


def _on_fewest_nodes(setting: Setting, job: TraceJob) -> tuple[str, ...]:
    nodes = math.ceil(job.gpus / setting.gpus)
    each, rest = divmod(job.gpus, nodes)
    if rest:
        raise click.UsageError(
            f"{job.gpus} GPUs cannot be divided evenly among {nodes} nodes. Name other --gpus."
        )
    return (
        *(f"--nodes={nodes}", f"--gpus-per-node={each}", f"--ntasks-per-node={each}"),
        time_limit(job),
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy, as run on a real Slurm."""

    name: str
    slurm_conf: Callable[[], tuple[str, ...]]
    asking: Callable[[Setting], Ask]
    tiers: str = ""
    """``policy.name`` for the controller; "" if there is no controller."""
    thresholds_gpu_s: tuple[float, ...] = ()
    """The policy's own thresholds; if empty, those that all share."""
    known_as: str = ""
    """The simulator's name for it; if empty, the same name."""
    reports: ReportModel | None = None
    """Which of its jobs report progress, through the plugin and the job library."""
    prints: bool = False
    """Whether these print it instead, in one of eight ways, and use no library."""

    @property
    def simulated(self) -> str:
        return self.known_as or self.name

    def own(self, shared: Setting) -> Setting:
        """Return the shared setting, adapted to this policy."""
        return replace(
            shared,
            policy=self.tiers or shared.policy,
            thresholds_gpu_s=self.thresholds_gpu_s or shared.thresholds_gpu_s,
            reports=self.reports,
        )


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("yarn-cs", strict_fifo, consolidated),
        Policy("slurm", backfill, anywhere),
        Policy("tiresias-l", beside_a_controller, anywhere, LAS),
        Policy("tiresias-g", beside_a_controller, anywhere, "2d-gittins"),
        *(
            Policy(
                *(name, beside_a_controller, anywhere, LAS, PolicyConfig().thresholds_gpu_s),
                known_as="tiresias-l",
                reports=reports,
                prints=name == "most-print",
            )
            for name, reports in (
                ("six-tiers", None),
                ("all-report", ReportModel(1.0)),
                ("half-report", ReportModel(0.5)),
                ("most-print", ReportModel(0.7)),
            )
        ),
    )
}
