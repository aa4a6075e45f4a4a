"""The baselines that Tiresias is compared to: one module each, and all of them by name.

yarn-cs, slurm and gandiva have their own placement; of the placement settings they respect only
``pooled``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from slurm_tiresias.model import Node
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.baselines import repack
from slurm_tiresias.simulator.baselines.backfill import DEFAULTS, Backfill, SlurmParameters
from slurm_tiresias.simulator.baselines.best_effort import best_effort
from slurm_tiresias.simulator.baselines.gandiva import Gandiva
from slurm_tiresias.simulator.baselines.head_of_line import HeadOfLine
from slurm_tiresias.simulator.baselines.las import one_dimensional_las
from slurm_tiresias.simulator.engine import Scheduler
from slurm_tiresias.simulator.sim_cluster import SimCluster
from slurm_tiresias.simulator.workload import Workload


@dataclass(frozen=True, slots=True)
class BaselineSetup:
    """The inputs from which a baseline is built."""

    workload: Workload
    cluster: SimCluster
    config: Config
    slurm: SlurmParameters = DEFAULTS

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes for placement; with ``pooled``, one per GPU type."""
        return self.cluster.as_nodes()

    def real_nodes(self) -> tuple[Node, ...]:
        """Return the physical nodes; with ``pooled``, each has the name of its pool."""
        if not self.cluster.pooled:
            return self.nodes
        pools = {node.features: node.name for node in self.nodes}
        nodes = replace(self.cluster, placement="consolidate").as_nodes()
        return tuple(replace(node, name=pools[node.features]) for node in nodes)


def _gandiva(setup: BaselineSetup) -> Gandiva:
    return Gandiva(setup.real_nodes(), (job.submitted_s for job in setup.workload.jobs))


BASELINES: Mapping[str, Callable[[BaselineSetup], Scheduler]] = {
    "slurm": lambda setup: Backfill(setup.real_nodes(), setup.slurm),
    "yarn-cs": lambda setup: HeadOfLine(setup.nodes),
    "best-effort": lambda setup: best_effort(setup.config, setup.nodes),
    "gandiva": _gandiva,
    "sf": lambda setup: repack.Repack(repack.fewest_gpus, setup.nodes),
    "srtf": lambda setup: repack.Repack(repack.least_time, setup.nodes),
    "srsf": lambda setup: repack.Repack(repack.least_service, setup.nodes),
    "las": lambda setup: one_dimensional_las(setup.config, setup.nodes),
}
"""Constructors by the names used on the command line."""

CONSOLIDATED_ONLY = ("yarn-cs",)
"""Baselines whose jobs wait rather than be spread (paper page 493)."""

OWN_PACE = ("slurm", "yarn-cs", "best-effort")
"""Resource managers that run without the controller and so do not use its interval."""

SUSPENDING = ("gandiva",)
"""Baselines that suspend and resume jobs in place, without a restart or a requeue."""
