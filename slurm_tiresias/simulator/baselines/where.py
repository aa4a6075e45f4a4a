"""Which nodes the jobs of a simulation may use."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_tiresias.model import Node
from slurm_tiresias.placement.free_resources import NodeSet
from slurm_tiresias.placement.node_index import NodeIndex
from slurm_tiresias.simulator.engine import Ask


class Where:
    """For each ``Ask`` the nodes that would do for it, idle or not.

    A simulated cluster has one partition.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._node_index = NodeIndex(nodes)
        self._known: dict[Ask, NodeSet] = {}

    def __getitem__(self, ask: Ask) -> NodeSet:
        if ask not in self._known:
            (self._known[ask],) = self._node_index.sets_for(ask.request)
        return self._known[ask]
