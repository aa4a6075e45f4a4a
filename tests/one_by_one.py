"""Naive implementations that visit node by node, as references for the fast ones."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_tiresias.core.placement.features import matches
from slurm_tiresias.model import Node, Request


def node_sets(request: Request, nodes: Iterable[Node]) -> list[list[str]]:
    """The nodes that Slurm would let the job run on: one set for each of its partitions.

    A job that names several partitions runs in one of them; equal sets are listed once, and empty
    ones not at all.
    """
    able = [
        node
        for node in nodes
        if node.name not in request.excluded_nodes | request.reserved_nodes
        and matches(request.features, node.features)
    ]
    sets = ([n.name for n in able if partition in n.partitions] for partition in request.partitions)
    return [list(names) for names in dict.fromkeys(map(tuple, sets)) if names]
