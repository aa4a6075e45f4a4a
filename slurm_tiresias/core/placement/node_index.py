"""Which nodes of a cluster a request may use, and whether they would be large enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice

from slurm_tiresias.core.placement.choose import place
from slurm_tiresias.core.placement.features import matches
from slurm_tiresias.core.placement.free_resources import FreeResources, chunks_that_fit
from slurm_tiresias.core.placement.node_set import NodeSet, node_set, numbers
from slurm_tiresias.model import Amount, Node, PlacementStyle, Request


class NodeIndex:
    """Nodes grouped by partition, features and size, so that a request is not checked against each.

    Node numbers are the same as in a ``FreeResources`` of the same nodes.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes: Sequence[Node] = sorted(nodes, key=lambda node: node.name)
        self._number = {node.name: number for number, node in enumerate(self._nodes)}
        self.usable = node_set(n for n, node in enumerate(self._nodes) if node.available)
        self._in_partition: dict[str, NodeSet] = {}
        self._with_features: dict[frozenset[str], NodeSet] = {}
        self._as_large: dict[tuple[object, ...], tuple[Amount, NodeSet]] = {}
        for number, node in enumerate(self._nodes):
            bit = 1 << number
            for partition in node.partitions:
                self._in_partition[partition] = self._in_partition.get(partition, 0) | bit
            self._with_features[node.features] = self._with_features.get(node.features, 0) | bit
            size = (*sorted(node.total.gpus.items()), node.total.cpus, node.total.memory_mb)
            self._as_large[size] = (node.total, self._as_large.get(size, (node.total, 0))[1] | bit)

    @cached_property
    def _empty(self) -> FreeResources:
        return FreeResources(self._nodes)

    def sets_for(self, request: Request, among: NodeSet = -1) -> tuple[NodeSet, ...]:
        """Return the nodes that Slurm would let the job run on: one set per partition.

        A job that names several partitions runs in one of them. Duplicate and empty sets are left
        out.
        """
        kept_away = request.excluded_nodes | request.reserved_nodes
        able = among & ~node_set(self._number[name] for name in kept_away if name in self._number)
        able &= sum(
            nodes
            for features, nodes in self._with_features.items()
            if matches(request.features, features)
        )
        sets = (able & self._in_partition.get(name, 0) for name in request.partitions)
        return tuple(nodes for nodes in dict.fromkeys(sets) if nodes)

    def on_one_node_if_any_can(self, request: Request) -> Request:
        """Limit a request that may be a single task to one node if any node could hold it."""
        allowed = 0
        for nodes in self.sets_for(request):
            allowed |= nodes
        for total, nodes in self._as_large.values():
            if nodes & allowed and chunks_that_fit(total, request) >= request.chunks:
                return replace(request, max_nodes=1)
        return request

    def could_hold(self, request: Request, among: NodeSet = -1) -> bool:
        """Whether the job would fit on empty nodes."""
        required = self._empty.nodes(request.required_nodes)
        for nodes in self.sets_for(request, among):
            # Empty nodes of one size are equivalent, so one per chunk is enough.
            if self._empty.topology.layout(request, nodes):
                if place(request, nodes, self._empty, PlacementStyle.CONSOLIDATE) is not None:
                    return True
                continue
            some = required & nodes
            for _, as_large in self._as_large.values():
                some |= node_set(islice(numbers(nodes & as_large), request.chunks))
            if place(request, some, self._empty, PlacementStyle.CONSOLIDATE) is not None:
                return True
        return False
