"""What suspected nodes become in Slurm: they weigh most, so that Slurm itself uses them last, and
are drained within narrow bounds if the site wants that (``failures.drain``)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from slurm_tiresias.controller.acting.under_way import UnderWay
from slurm_tiresias.core.features.bad_nodes import BadNodes
from slurm_tiresias.model import Node
from slurm_tiresias.slurm.protocol import SetNode, Write
from slurm_tiresias.store.records import NodeRecord

DRAINED_BY_US = "tiresias: "
"""Begins the reason with which nodes are drained."""

SUSPECTS_WEIGHT = 4_000_000_000
"""Above the weights that sites use, and below Slurm's marks for no value."""

SHOWN_WITHIN_S = 60.0
"""Slurm shows a drain within this time. A drained node that is in service later was returned by an
administrator, which clears it."""

PER_HOUR_S = 3600.0
SHARE_OF_PARTITION = 0.02
"""Of a partition at most this share is drained in an hour, or one node if that is more."""


def weights(under_way: UnderWay, suspects: Collection[str]) -> Iterator[Write]:
    """Yield the weights of nodes that have become suspect, and of those that are not any more."""
    job_store = under_way.job_store
    for node in under_way.seen.nodes:
        record = job_store.nodes.all.get(node.name)
        own = record.own_weight if record else None
        if node.name in suspects and node.weight != SUSPECTS_WEIGHT:
            record = record or NodeRecord(node.name)
            job_store.nodes.put(replace(record, own_weight=node.weight))
            yield SetNode(node.name, weight=SUSPECTS_WEIGHT)
        elif record and own is not None and node.name not in suspects:
            if node.weight == SUSPECTS_WEIGHT:
                yield SetNode(node.name, weight=own)
            else:
                job_store.nodes.put(replace(record, own_weight=None))


def drains(under_way: UnderWay, bad_nodes: BadNodes) -> Iterator[Write]:
    """Yield the drains of nodes whose suspicion has reached the site's threshold."""
    config, now_s, job_store = under_way.config.failures, under_way.now_s, under_way.job_store
    nodes = {node.name: node for node in under_way.seen.nodes}
    for record in list(job_store.nodes.all.values()):
        back = record.name in nodes and nodes[record.name].available
        if record.is_drained and back and now_s - record.drained_s > SHOWN_WITHIN_S:
            cleared(under_way, bad_nodes, record.name)
    suspects = [
        (-one.suspicion, name)
        for name, one in bad_nodes.standings.items()
        if config.drain and one.suspicion >= config.drain and one.stands_out
    ]
    for _, name in sorted(suspects):
        if name not in nodes or not nodes[name].available:
            continue
        record = job_store.nodes.all.get(name, NodeRecord(name))
        recent = [
            nodes[one.name]
            for one in job_store.nodes.all.values()
            if one.name in nodes and 0 <= now_s - one.drained_s < PER_HOUR_S
        ]
        if record.is_drained or not _may_drain(nodes[name], nodes.values(), recent):
            continue
        evidence = bad_nodes.standings[name].evidence
        job_store.nodes.put(replace(record, drained_s=now_s, is_drained=True))
        job_store.events.note(now_s, "node-drained", "", f"{name}: {evidence}")
        nodes[name] = replace(nodes[name], available=False)
        yield SetNode(name, drain=f"{DRAINED_BY_US}{evidence}")


def cleared(under_way: UnderWay, bad_nodes: BadNodes, name: str) -> Sequence[Write]:
    """Clear a node of suspicion; return what returns it to service, if it was drained here."""
    job_store, now_s = under_way.job_store, under_way.now_s
    record = job_store.nodes.all.get(name, NodeRecord(name))
    job_store.nodes.put(replace(record, is_drained=False, cleared_s=now_s))
    job_store.events.note(now_s, "node-cleared", "", name)
    bad_nodes.clear(name, now_s)
    node = next((node for node in under_way.seen.nodes if node.name == name), None)
    drained = record.is_drained and node is not None and not node.available
    return [SetNode(name)] if drained else []


def _may_drain(node: Node, nodes: Iterable[Node], recent: Iterable[Node]) -> bool:
    """Whether a node is not the last one of a kind, and few were drained in the last hour."""
    others = [one for one in nodes if one.available and one.name != node.name]
    kinds = (*node.partitions, *node.features, *node.total.gpus)
    there = Counter(
        kind for one in others for kind in {*one.partitions, *one.features, *one.total.gpus}
    )
    if not all(there[kind] for kind in kinds):
        return False
    sizes = Counter(partition for one in nodes for partition in one.partitions)
    drained = Counter(partition for one in recent for partition in one.partitions)
    return all(
        drained[name] < max(1, math.floor(SHARE_OF_PARTITION * sizes[name]))
        for name in node.partitions
    )
