"""Place requests on nodes: a simplified model of Slurm's select/cons_tres.

A job that fits on one node gets the tightest fit. Other jobs fill the nodes in order of their
names or, if that takes too many nodes, the roomiest first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from scripts.testbed.in_memory.blocks import Blocks
from slurm_tiresias.model import ANY_TYPE, Allocation, Amount, Node, Request

_WORDS = re.compile(r"[&|,]|[^&|,()\[\]]+")


@dataclass(slots=True)
class NodeRecord:
    """One node and its idle resources.

    ``drives`` counts a second kind of GRES, which the controller does not see.
    """

    node: Node
    gpus: dict[str, int] = field(default_factory=dict)
    cpus: int = 0
    memory_mb: int = 0
    drives: int = 0

    def empty(self) -> None:
        """Make all its resources idle."""
        total = self.node.total
        self.gpus, self.cpus, self.memory_mb = dict(total.gpus), total.cpus, total.memory_mb

    def add(self, amount: Amount, sign: int) -> None:
        """Give an amount back (+1) or take it (-1)."""
        self.cpus += sign * amount.cpus
        self.memory_mb += sign * amount.memory_mb
        for kind, count in amount.gpus.items():
            self.gpus[kind] = self.gpus.get(kind, 0) + sign * count

    @property
    def free_gpus(self) -> int:
        return sum(self.gpus.values())

    @property
    def is_idle(self) -> bool:
        total = self.node.total
        return self.cpus == total.cpus and self.free_gpus == total.gpu_count


def place(request: Request, nodes: Iterable[NodeRecord]) -> Allocation | None:
    """Return what a job gets of these nodes' idle resources; None if it does not fit."""
    found = (_place(request, group) for group in _groups(request, list(nodes)))
    return next((allocation for allocation in found if allocation is not None), None)


def _groups(request: Request, nodes: Sequence[NodeRecord]) -> Iterable[Iterable[NodeRecord]]:
    """Yield the nodes on which Slurm's topology lets the job run."""
    if any(record.node.blocks for record in nodes):
        able = {record.node.name: record for record in nodes if _room(request, record) > 0}
        base: dict[int, set[str]] = {}
        for record in nodes:
            base.setdefault(int(record.node.blocks[0][1]), set()).add(record.node.name)
        parts = [frozenset(base.get(number, ())) for number in range(max(base) + 1)]
        if request.max_chunks_per_node == 1:
            blocks = Blocks(parts, [size for size, _ in nodes[0].node.blocks])
            wide = request.min_nodes, request.segment
            parts = [blocks.choose(able, *wide, request.required_nodes) or frozenset()]
        for part in sorted(parts, key=lambda part: len(part & able.keys())):
            yield (able[name] for name in part & able.keys())
    elif request.most_switches:
        switches = sorted({record.node.switch for record in nodes})
        for some in combinations(switches, min(request.most_switches, len(switches))):
            yield (record for record in nodes if record.node.switch in some)
    else:
        yield nodes


def _place(request: Request, nodes: Iterable[NodeRecord]) -> Allocation | None:
    room: dict[str, tuple[NodeRecord, int]] = {
        record.node.name: (record, chunks)
        for record in nodes
        if (chunks := _room(request, record)) > 0
    }
    required = sorted(request.required_nodes)
    if sum(chunks for _, chunks in room.values()) < request.chunks:
        return None
    if any(name not in room for name in required):
        return None
    rest = [name for name in sorted(room) if name not in request.required_nodes]
    weight = {name: room[name][0].node.weight for name in rest}
    rest.sort(key=weight.__getitem__)
    tightest = sorted(
        rest, key=lambda name: (weight[name], room[name][0].free_gpus, room[name][0].cpus, name)
    )
    roomiest = sorted(rest, key=lambda name: (-room[name][1], name))
    counts = {name: chunks for name, (_, chunks) in room.items()}
    for order in ([name for name in tightest if counts[name] >= request.chunks], rest, roomiest):
        chosen = _filled(request, [*required, *order], counts)
        if chosen is not None:
            return {name: _amount(request, room[name][0], some) for name, some in chosen.items()}
    return None


def fits_when_empty(request: Request, nodes: Iterable[NodeRecord]) -> bool:
    """Whether the request would fit on these nodes if they were empty."""
    emptied = [NodeRecord(record.node) for record in nodes]
    for record in emptied:
        record.empty()
    return place(request, emptied) is not None


def serves(expression: str, features: Collection[str]) -> bool:
    """Whether features satisfy a constraint of words joined by ``&`` and ``|``, evaluated from left
    to right."""
    result, operator = not expression, "|"
    for word in _WORDS.findall(expression):
        if word in "&|,":
            operator = word
        else:
            has = word in features
            result = (result or has) if operator == "|" else (result and has)
    return result


def _filled(
    request: Request, order: Sequence[str], room: Mapping[str, int]
) -> Mapping[str, int] | None:
    """Return the number of chunks per node, filling nodes in this order; nodes that are required,
    or needed for the minimum number, get at least one."""
    chosen: dict[str, int] = {}
    left = request.chunks
    least = max(request.min_nodes, len(request.required_nodes))
    for name in order:
        if left <= 0 or len(chosen) == request.max_nodes:
            break
        still_wanted = max(0, least - len(chosen) - 1)
        share = min(room[name], left - still_wanted)
        if share <= 0:
            return None
        chosen[name] = share
        left -= share
    return chosen if left <= 0 and len(chosen) >= least else None


def _room(request: Request, record: NodeRecord) -> int:
    """Return how many chunks of the request fit into the node's idle resources."""
    node, chunk, extra = record.node, request.chunk, request.per_node
    if node.name in request.excluded_nodes or (request.exclusive and not record.is_idle):
        return 0
    if not serves(request.features, node.features):
        return 0
    bounds = [request.chunks]
    if request.max_chunks_per_node is not None:
        bounds.append(request.max_chunks_per_node)
    if extra.cpus > record.cpus or extra.memory_mb > record.memory_mb:
        return 0
    if chunk.cpus:
        bounds.append((record.cpus - extra.cpus) // chunk.cpus)
    if chunk.memory_mb:
        bounds.append((record.memory_mb - extra.memory_mb) // chunk.memory_mb)
    for kind, count in chunk.gpus.items():
        free = record.free_gpus if kind == ANY_TYPE else record.gpus.get(kind, 0)
        if count:
            bounds.append(free // count)
    return max(0, min(bounds))


def _amount(request: Request, record: NodeRecord, chunks: int) -> Amount:
    """Return what the chunks take of a node; untyped GPUs come from the most plentiful type."""
    if request.exclusive:
        return record.node.total
    chunk, extra = request.chunk, request.per_node
    gpus = {kind: count * chunks for kind, count in chunk.gpus.items() if kind != ANY_TYPE}
    untyped = chunk.gpus.get(ANY_TYPE, 0) * chunks
    for kind, free in sorted(record.gpus.items(), key=lambda item: (-item[1], item[0])):
        some = min(untyped, free - gpus.get(kind, 0))
        if some > 0:
            gpus[kind] = gpus.get(kind, 0) + some
            untyped -= some
    return Amount(
        gpus, chunk.cpus * chunks + extra.cpus, chunk.memory_mb * chunks + extra.memory_mb
    )
