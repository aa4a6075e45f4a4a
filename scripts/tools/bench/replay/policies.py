"""The policies of a replay: what each needs of slurm.conf, and what its jobs ask for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from scripts import ROOT
from scripts.testbed.place import SCHEDULER, UsageError
from scripts.tools.fidelity.jobs import Ask, on_any_nodes, time_limit
from scripts.tools.fidelity.setting import Setting
from slurm_tiresias.config import PolicyConfig
from slurm_tiresias.simulator.workload import TraceJob

EXAMPLE = ROOT / "etc" / "slurm.conf.example"
PARAMETERS = "SchedulerParameters="

BY_AGE = ("PriorityType=priority/multifactor", "PriorityWeightAge=1000", "PriorityMaxAge=1-0")
"""Multifactor priority where all users are alike: the order of submission."""


def strict_fifo() -> tuple[str, ...]:
    """Slurm's main scheduler alone: what does not fit stops all behind it, as in YARN-CS."""
    return (PARAMETERS + SCHEDULER, "SchedulerType=sched/builtin", "PriorityType=priority/basic")


def backfill() -> tuple[str, ...]:
    """Slurm as most sites run it."""
    return (PARAMETERS + SCHEDULER, "SchedulerType=sched/backfill", *BY_AGE)


def beside_a_controller() -> tuple[str, ...]:
    """The same with what etc/slurm.conf.example recommends."""
    lines = [line for line in EXAMPLE.read_text().splitlines() if line and line[0] != "#"]
    merged = [f"{line},{SCHEDULER}" if line.startswith(PARAMETERS) else line for line in lines]
    return (*merged, "SchedulerType=sched/backfill", *BY_AGE)


def anywhere(_setting: Setting) -> Ask:
    return on_any_nodes


def consolidated(setting: Setting) -> Ask:
    """On as few nodes as the job fits, or not yet: YARN-CS never spreads one (paper page 493).

    Slurm is asked for that number of nodes, and for so many GPUs of each. Asked for a total
    (--gpus) it would try nodes that are partly taken, and a job of 8 GPUs might lie over three of
    four GPUs each. The paper's widths are such that all nodes of a job give alike.
    """
    return partial(_on_fewest_nodes, setting)


def _on_fewest_nodes(setting: Setting, job: TraceJob) -> tuple[str, ...]:
    nodes = math.ceil(job.gpus / setting.gpus)
    each, rest = divmod(job.gpus, nodes)
    if rest:
        raise UsageError(
            f"{job.gpus} GPUs cannot be shared evenly by {nodes} nodes. Name other --gpus."
        )
    return (
        *(f"--nodes={nodes}", f"--gpus-per-node={each}", f"--ntasks-per-node={each}"),
        time_limit(job),
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy as a real Slurm runs it."""

    name: str
    slurm_conf: Callable[[], tuple[str, ...]]
    asking: Callable[[Setting], Ask]
    tiers: str = ""
    """``policy.name`` of the controller beside it; empty: there is none."""
    thresholds_gpu_s: tuple[float, ...] = ()
    """Empty: those that all share."""
    known_as: str = ""
    """What the simulator calls it; empty: as it is called here."""

    @property
    def simulated(self) -> str:
        return self.known_as or self.name

    def own(self, shared: Setting) -> Setting:
        """The setting that all policies share, as it is for this one."""
        return replace(
            shared,
            policy=self.tiers or shared.policy,
            thresholds_gpu_s=self.thresholds_gpu_s or shared.thresholds_gpu_s,
        )


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("yarn-cs", strict_fifo, consolidated),
        Policy("slurm", backfill, anywhere),
        Policy("tiresias-l", beside_a_controller, anywhere, "2d-las"),
        Policy("tiresias-g", beside_a_controller, anywhere, "2d-gittins"),
        Policy(
            "six-tiers",
            beside_a_controller,
            anywhere,
            "2d-las",
            PolicyConfig().thresholds_gpu_s,
            known_as="tiresias-l",
        ),
    )
}
