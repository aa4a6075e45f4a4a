"""Which nodes the jobs of a simulation may use."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_tiresias.model import Node
from slurm_tiresias.placement.choose import node_sets
from slurm_tiresias.placement.pool import NodeSet, Pool
from slurm_tiresias.simulator.engine import Ask


class Where:
    """For each ``Ask`` the nodes of a pool that would do for it, idle or not.

    A simulated cluster has one partition.
    """

    def __init__(self, nodes: Sequence[Node], pool: Pool) -> None:
        self._nodes = nodes
        self._pool = pool
        self._known: dict[Ask, NodeSet] = {}

    def __getitem__(self, ask: Ask) -> NodeSet:
        if ask not in self._known:
            (names,) = node_sets(ask.request, self._nodes)
            self._known[ask] = self._pool.nodes(names)
        return self._known[ask]
