"""The simulated cluster, and what a job of a trace asks for and costs on it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from slurm_tiresias.errors import UsageError
from slurm_tiresias.model import Allocation, Amount, Node, PlacementStyle, Request
from slurm_tiresias.simulator import physics
from slurm_tiresias.simulator.workload import TraceJob

PARTITION = "gpu"
PLACEMENTS = ("skew", "consolidate", "spread", "pooled")
MOST_NODES = 100_000
_PLENTY = 10**9
"""CPUs and memory are not simulated: there is always enough of them."""


@dataclass(frozen=True, slots=True)
class Site:
    """Nodes of equal GPUs, and how jobs are laid over them.

    The placement ``pooled`` counts GPUs only, as if they were all in one node.
    """

    nodes: int
    gpus_per_node: int
    placement: str = "skew"

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    def as_nodes(self) -> tuple[Node, ...]:
        """The nodes as a decision sees them."""
        count, gpus = (1, self.gpus) if self.pooled else (self.nodes, self.gpus_per_node)
        total = Amount({"": gpus}, _PLENTY, _PLENTY)
        return tuple(
            Node(f"n{number}", total, frozenset({PARTITION})) for number in range(1, count + 1)
        )

    @property
    def pooled(self) -> bool:
        return self.placement == "pooled"

    def fewest_nodes(self, gpus: int) -> int:
        return 1 if self.pooled else math.ceil(gpus / self.gpus_per_node)

    def request(self, gpus: int, *, only_consolidated: bool = False) -> Request:
        """What a job asks of this cluster: GPUs by number, on whatever nodes."""
        bound = self.fewest_nodes(gpus) if only_consolidated else None
        return Request(Amount({"": 1}), chunks=gpus, max_nodes=bound, partitions=(PARTITION,))

    def style(self) -> PlacementStyle | None:
        """The style forced on every job; None where the model's skew decides."""
        forced = {"consolidate": PlacementStyle.CONSOLIDATE, "spread": PlacementStyle.SPREAD}
        return forced.get(self.placement)


def parse_site(spec: str, placement: str) -> Site:
    """``15x4``: fifteen nodes of four GPUs. Raises ``UsageError``."""
    match = re.fullmatch(r"(\d{1,6})x(\d{1,4})", spec)
    nodes, gpus = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (0 < nodes <= MOST_NODES and gpus > 0):
        raise UsageError(
            f"{spec!r} is no cluster", "Write nodes x GPUs of each, like 15x4, up to 100000 nodes"
        )
    return Site(nodes, gpus, placement)


@dataclass(frozen=True, slots=True)
class Costs:
    """What placement and preemption cost. ``flat_s`` None: by model, as the paper measured."""

    site: Site
    speeds: bool
    flat_s: float | None

    def speed(self, job: TraceJob, allocation: Allocation) -> float:
        """Progress per second; a job that fits no better counts as consolidated."""
        if not self.speeds:
            return 1.0
        return physics.speed(job.model, not self.is_spread(job, allocation))

    def is_spread(self, job: TraceJob, allocation: Allocation) -> bool:
        """Whether the job is on more nodes than it needs."""
        return len(allocation) > self.site.fewest_nodes(job.gpus)

    def restart_s(self, job: TraceJob) -> float:
        """Running time lost to one preemption."""
        if self.flat_s is not None:
            return self.flat_s
        return physics.restart_cost_s(job.model, job.gpus)
