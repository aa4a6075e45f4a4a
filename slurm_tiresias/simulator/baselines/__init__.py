"""The baselines that Tiresias is compared to: one module each, and all of them by name.

yarn-cs, dlas, gandiva and those on Slurm have their own placement; of the placement settings they
respect only ``pooled``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from slurm_tiresias.model import Node
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.baselines import repack
from slurm_tiresias.simulator.baselines.backfill import DEFAULTS, Backfill, SlurmParameters
from slurm_tiresias.simulator.baselines.best_effort import best_effort
from slurm_tiresias.simulator.baselines.dlas import Dlas
from slurm_tiresias.simulator.baselines.gandiva import Gandiva
from slurm_tiresias.simulator.baselines.head_of_line import HeadOfLine
from slurm_tiresias.simulator.baselines.las import one_dimensional_las
from slurm_tiresias.simulator.baselines.slurm_qos import SlurmQos
from slurm_tiresias.simulator.engine import Scheduler
from slurm_tiresias.simulator.limits import ALIKE, with_limits, with_users_limits
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


def _backfill(setup: BaselineSetup) -> Backfill:
    return Backfill(setup.real_nodes(), setup.slurm)


BASELINES: Mapping[str, Callable[[BaselineSetup], Scheduler]] = {
    "slurm": _backfill,
    "slurm-30d": _backfill,
    "slurm-users": _backfill,
    "slurm-qos": lambda setup: SlurmQos(setup.real_nodes(), setup.slurm, setup.workload),
    "yarn-cs": lambda setup: HeadOfLine(setup.nodes),
    "best-effort": lambda setup: best_effort(setup.config, setup.nodes),
    "gandiva": _gandiva,
    "sf": lambda setup: repack.Repack(repack.fewest_gpus, setup.nodes),
    "srtf": lambda setup: repack.Repack(repack.least_time, setup.nodes),
    "srsf": lambda setup: repack.Repack(repack.least_service, setup.nodes),
    "las": lambda setup: one_dimensional_las(setup.config, setup.nodes),
    "dlas": lambda setup: Dlas(setup.config.policy.thresholds_gpu_s, setup.nodes),
}
"""Constructors by the names used on the command line."""

CONSOLIDATED_ONLY = ("yarn-cs", "dlas")
"""Baselines whose jobs wait rather than be spread (YARN-CS: paper page 493)."""

OWN_PACE = ("slurm", "slurm-30d", "slurm-users", "slurm-qos", "yarn-cs", "best-effort", "dlas")
"""Schedulers that run without the controller and so do not use its interval."""

SUSPENDING = ("gandiva",)
"""Baselines that suspend and resume jobs in place, without a restart or a requeue."""

STOCK = "slurm"
"""Slurm with the time limits of the trace, and its partition's default where there is none."""

OWN_LIMITS: Mapping[str, Callable[[Workload], Workload]] = {
    "slurm-30d": lambda workload: with_limits(workload, ALIKE),
    "slurm-users": with_users_limits,
    "slurm-qos": with_users_limits,
}
"""The time limits of baselines that do not take those of the workload as they are."""

BEST = "best"
"""The name of the baseline among ``SITES_RUN`` with the smallest average completion time."""

SITES_RUN = (STOCK, *OWN_LIMITS, "best-effort")
"""The baselines that know no durations: what a site could run instead of Tiresias."""

SOON_SIMULATED = ("slurm-users", "best-effort")
"""Those of them that can be simulated beside a sweep."""


def to_choose_from(workload: Workload) -> tuple[str, ...]:
    """Return the baselines among which the best is chosen, each of which differs from the others:
    where every job has a time limit, ``slurm-users`` equals ``slurm``."""
    same = "slurm-users" if all(job.limit_s for job in workload.jobs) else ""
    return tuple(name for name in SITES_RUN if name != same)
