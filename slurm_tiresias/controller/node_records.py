"""Nodes that were drained on suspicion, weigh most because of it, or were cleared of it."""

from __future__ import annotations

from slurm_tiresias.store.changes import Changes
from slurm_tiresias.store.records import NodeRecord


class NodeRecords:
    """What the ledger has of nodes."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self.all = {node.name: node for node in changes.ledger.nodes.all()}
        self.may_not_be_set = False
        """Whether Slurm has refused to change a node: an operator may not."""

    def put(self, node: NodeRecord) -> None:
        """Replace what is known of a node; it is committed with the other changes."""
        self.all[node.name] = node
        self._changes.put(self._changes.ledger.nodes, node)
