"""What Tiresias is compared to: one module a baseline, and all of them by name.

Of the ways to lay jobs over nodes yarn-cs, slurm and gandiva heed only ``pooled``: each has a
placement of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from slurm_tiresias.config import Config
from slurm_tiresias.model import Node
from slurm_tiresias.simulator.baselines import repack
from slurm_tiresias.simulator.baselines.backfill import DEFAULTS, Backfill, SlurmParameters
from slurm_tiresias.simulator.baselines.best_effort import best_effort
from slurm_tiresias.simulator.baselines.gandiva import Gandiva
from slurm_tiresias.simulator.baselines.head_of_line import HeadOfLine
from slurm_tiresias.simulator.baselines.las import one_dimensional_las
from slurm_tiresias.simulator.engine import Scheduler
from slurm_tiresias.simulator.workload import Workload
from slurm_tiresias.simulator.world import Site


@dataclass(frozen=True, slots=True)
class Stage:
    """What a baseline is set up with."""

    workload: Workload
    site: Site
    config: Config
    slurm: SlurmParameters = DEFAULTS

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that GPUs are taken from."""
        return self.site.as_nodes()

    def real_nodes(self) -> tuple[Node, ...]:
        """The nodes that there are; pooled ones go by the name of the pool that they are in."""
        if not self.site.pooled:
            return self.nodes
        pools = {node.features: node.name for node in self.nodes}
        nodes = replace(self.site, placement="consolidate").as_nodes()
        return tuple(replace(node, name=pools[node.features]) for node in nodes)


def _gandiva(stage: Stage) -> Gandiva:
    return Gandiva(stage.real_nodes(), (job.submitted_s for job in stage.workload.jobs))


BASELINES: Mapping[str, Callable[[Stage], Scheduler]] = {
    "slurm": lambda stage: Backfill(stage.real_nodes(), stage.slurm),
    "yarn-cs": lambda stage: HeadOfLine(stage.nodes),
    "best-effort": lambda stage: best_effort(stage.config, stage.nodes),
    "gandiva": _gandiva,
    "sf": lambda stage: repack.Repack(repack.fewest_gpus, stage.nodes),
    "srtf": lambda stage: repack.Repack(repack.least_time, stage.nodes),
    "srsf": lambda stage: repack.Repack(repack.least_service, stage.nodes),
    "las": lambda stage: one_dimensional_las(stage.config, stage.nodes),
}
"""By the names of the command line."""

CONSOLIDATED_ONLY = ("yarn-cs",)
"""Whose jobs rather wait than be spread (paper page 493)."""

OWN_PACE = ("slurm", "yarn-cs", "best-effort")
"""Resource managers without the controller: its interval is not theirs."""

SUSPENDING = ("gandiva",)
"""Who stops and resumes jobs where they are: neither a restart nor a requeue."""
