"""The free resources of each node while decisions are made.

Nodes are numbered in the order of their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slurm_tiresias.core.placement.node_set import NodeSet, lowest, numbers
from slurm_tiresias.core.placement.topology import Topology
from slurm_tiresias.model import ANY_TYPE, Allocation, Amount, GpuCounts, Node, Request

_MARKS = (1 << 64) - 59
"""Large prime modulus; makes collisions of state hashes unlikely."""
_GOLDEN = 0x9E3779B97F4A7C15
_64_BITS = (1 << 64) - 1


Counts = npt.NDArray[np.int64]

HOLDERS, CPUS, MEMORY, GPUS, NO_GPUS = range(5)
"""Rows of ``FreeResources.table``; one row per GPU type follows them."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """The resources that a node lacks for a request; GPUs by requested type."""

    gpu_types: frozenset[str] = frozenset()
    cpus: bool = False
    memory: bool = False

    def is_eased_by(self, amount: Amount) -> bool:
        """Whether freeing this amount would free any of the lacking resources."""
        gpus = any(_gpus_of(gpu_type, amount.gpus) for gpu_type in self.gpu_types)
        return gpus or (self.cpus and amount.cpus > 0) or (self.memory and amount.memory_mb > 0)


NO_SHORTAGE = Shortage()


class FreeResources:
    """Free GPUs by type, CPUs and memory of each node, updated with ``take`` and ``give``.

    More may be allocated on a node than it has, for example after it came back with fewer GPUs. Its
    free amount is then negative, and nothing fits on it.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        ordered = sorted(nodes, key=lambda node: node.name)
        self.names: tuple[str, ...] = tuple(node.name for node in ordered)
        self._number = {name: number for number, name in enumerate(self.names)}
        self._total = [node.total for node in ordered]
        self._gpus = [dict(total.gpus) for total in self._total]
        self.has_types = any(gpus.keys() - {ANY_TYPE} for gpus in self._gpus)
        self._cpus = [total.cpus for total in self._total]
        self._memory_mb = [total.memory_mb for total in self._total]
        self._free_gpus = [total.gpu_count for total in self._total]
        self._holders = [0] * len(ordered)
        types = sorted({gpu_type for gpus in self._gpus for gpu_type in gpus})
        self._row_of_type = {kind: row for row, kind in enumerate(types, start=NO_GPUS + 1)}
        self._table: Counts | None = None
        self._changed: set[int] = set()
        self.most_free_gpus = sum(free for free in self._free_gpus if free > 0)
        """Total of free GPUs on all nodes."""
        self.topology = Topology(ordered)
        self._idle: dict[int, NodeSet] = {}
        self._busy: dict[int, NodeSet] = {}
        for number, free in enumerate(self._free_gpus):
            self._idle[free] = self._idle.get(free, 0) | 1 << number

    @property
    def all_nodes(self) -> NodeSet:
        return (1 << len(self.names)) - 1

    def nodes(self, names: Iterable[str]) -> NodeSet:
        """Return the set of the named nodes; unknown names are ignored."""
        found = 0
        for name in names:
            number = self._number.get(name)
            if number is not None:
                found |= 1 << number
        return found

    def on(self, node: str) -> Amount:
        number = self._number[node]
        return Amount(dict(self._gpus[number]), self._cpus[number], self._memory_mb[number])

    def free_gpus(self, number: int) -> int:
        """Return the number of free GPUs of all types on a node."""
        return self._free_gpus[number]

    def lacks_cpus_or_memory(self, number: int) -> bool:
        """Whether CPUs or memory of the node are overallocated, so that nothing fits on it."""
        return self._cpus[number] < 0 or self._memory_mb[number] < 0

    def is_idle(self, number: int) -> bool:
        """Whether no job holds anything on the node."""
        return self._holders[number] == 0

    def closed_by(self, request: Request, allocation: Allocation) -> Allocation:
        """Return the allocation, with all of its blocks if other jobs may not use them."""
        if not request.whole_blocks:
            return allocation
        own = self.nodes(allocation)
        blocks = (block for block in self.topology.base_blocks if block & own)
        return {
            **allocation,
            **{self.names[n]: self._total[n] for block in blocks for n in numbers(block)},
        }

    def take(self, allocation: Allocation) -> None:
        self._add(allocation, -1)

    def give(self, allocation: Allocation) -> None:
        self._add(allocation, +1)

    def _add(self, allocation: Allocation, sign: int) -> None:
        for node, amount in allocation.items():
            number = self._number.get(node)
            if number is None:
                continue
            gpus = self._gpus[number]
            count = 0
            for gpu_type, some in amount.gpus.items():
                gpus[gpu_type] = gpus.get(gpu_type, 0) + sign * some
                count += some
            self._cpus[number] += sign * amount.cpus
            self._memory_mb[number] += sign * amount.memory_mb
            self._changed.add(number)
            # Move the node to the group of its new number of free GPUs.
            bit = 1 << number
            held, free = self._holders[number], self._free_gpus[number]
            by_count = self._busy if held else self._idle
            left = by_count[free] ^ bit
            if left:
                by_count[free] = left
            else:
                del by_count[free]
            self._holders[number] = held = held - sign
            self._free_gpus[number] = now_free = free + sign * count
            by_count = self._busy if held else self._idle
            by_count[now_free] = by_count.get(now_free, 0) | bit
            self.most_free_gpus += max(now_free, 0) - max(free, 0)

    def gpus_free(self, nodes: NodeSet) -> int:
        """Return the free GPUs on these nodes; overallocated nodes count as 0."""
        return sum(
            free * (there & nodes).bit_count()
            for group in (self._busy, self._idle)
            for free, there in group.items()
            if free > 0
        )

    def with_free_gpus(self, nodes: NodeSet, gpus: int) -> NodeSet:
        """Return those of the nodes that have at least this many free GPUs."""
        found = 0
        for group in (self._busy, self._idle):
            for free, there in group.items():
                if free >= gpus:
                    found |= there
        return found & nodes

    @property
    def mark(self) -> int:
        """A hash of which nodes are idle and how many GPUs are free on each."""
        mark = sum(2 * free * there for free, there in self._busy.items())
        mark += sum((2 * free + 1) * there for free, there in self._idle.items())
        return mark % _MARKS

    # All nodes at once

    def table(self) -> Counts:
        """Return the free resources, with one column per node. Jobs on a node count negatively in
        row ``HOLDERS``.

        The table is not a copy; it is valid until the next ``take`` or ``give``.
        """
        if self._table is None:
            columns = [self._free_on(number) for number in range(len(self.names))]
            self._table = np.array(columns, np.int64).reshape(len(columns), -1).T.copy()
        else:
            for number in self._changed:
                self._table[:, number] = self._free_on(number)
        self._changed.clear()
        return self._table

    def _free_on(self, number: int) -> list[int]:
        gpus = self._gpus[number]
        return [
            -self._holders[number],
            self._cpus[number],
            self._memory_mb[number],
            self._free_gpus[number],
            0,
            *(gpus.get(gpu_type, 0) for gpu_type in self._row_of_type),
        ]

    def held(self, amount: Amount) -> list[int]:
        """Return what a job holds on a node as a column of ``table``."""
        gpus = amount.gpus
        by_type = (gpus.get(gpu_type, 0) for gpu_type in self._row_of_type)
        return [1, amount.cpus, amount.memory_mb, amount.gpu_count, 0, *by_type]

    def row_of(self, gpu_type: str) -> int:
        """Return the row of ``table`` that counts the GPUs a request for this type can take."""
        return GPUS if gpu_type == ANY_TYPE else self._row_of_type.get(gpu_type, NO_GPUS)

    def usable_by(self, request: Request, nodes: NodeSet) -> NodeSet:
        """Return the nodes on which a job may lie by its node list, or by its claim to blocks."""
        if len(request.required_nodes) >= request.min_nodes:
            nodes &= self.nodes(request.required_nodes)
        if request.whole_blocks:
            blocks = self.topology.base_blocks
            nodes &= sum(block for block in blocks if all(map(self.is_idle, numbers(block))))
        return nodes

    # Search orders

    def fragments(self, nodes: NodeSet) -> Iterator[int]:
        """Yield the busy nodes with free GPUs, most free GPUs first, then by name."""
        for free in sorted(self._busy, reverse=True):
            if free > 0:
                yield from numbers(self._busy[free] & nodes)

    def fullest_first(self, nodes: NodeSet, least: int) -> Iterator[int]:
        """Yield the nodes with at least ``least`` free GPUs, fewest first, then by name."""
        for free in sorted({*self._busy, *self._idle}):
            if free >= least:
                yield from numbers((self._busy.get(free, 0) | self._idle.get(free, 0)) & nodes)

    def tightest(self, nodes: NodeSet, gpus: int) -> int | None:
        """Return the node with the fewest free GPUs among those with at least ``gpus``; ties go to
        the first name."""
        busy, idle = _least(self._busy, nodes, gpus), _least(self._idle, nodes, gpus)
        if not busy and not idle:
            return None
        free = min(filter(None, (busy, idle)))
        return lowest((self._busy.get(free, 0) | self._idle.get(free, 0)) & nodes)

    def emptiest_first(self, nodes: NodeSet) -> Iterator[tuple[int, NodeSet, NodeSet]]:
        """Yield numbers of free GPUs, descending, with the idle and busy nodes that have them."""
        for free in sorted({*self._busy, *self._idle}, reverse=True):
            idle, busy = self._idle.get(free, 0) & nodes, self._busy.get(free, 0) & nodes
            if idle or busy:
                yield free, idle, busy

    # What fits

    def chunks_that_fit(self, number: int, request: Request) -> int:
        """Return how many chunks of the request fit on the node now, at most all of them."""
        if request.chunk.gpus and self._free_gpus[number] <= 0:
            return 0  # the common case on a busy cluster
        if request.exclusive and self._holders[number]:
            return 0
        return _chunks_that_fit(
            request, self._gpus[number], self._cpus[number], self._memory_mb[number]
        )

    def shortage(self, node: str, request: Request, leaving: Iterable[Amount]) -> Shortage:
        """Return the resources that keep a node from taking as many chunks as it could when empty.

        ``leaving`` are amounts held by jobs that count as gone.
        """
        number = self._number[node]
        gpus = Counter(self._gpus[number])
        cpus, memory_mb = self._cpus[number], self._memory_mb[number]
        for amount in leaving:
            gpus.update(amount.gpus)
            cpus += amount.cpus
            memory_mb += amount.memory_mb
        most = chunks_that_fit(self._total[number], request)
        if request.exclusive and most:
            return Shortage(frozenset({ANY_TYPE}), cpus=True, memory=True)
        chunk, extra = request.chunk, request.per_node
        return Shortage(
            frozenset(
                gpu_type
                for gpu_type, count in chunk.gpus.items()
                if _times(_gpus_of(gpu_type, gpus), count, most) < most
            ),
            cpus=_times(cpus - extra.cpus, chunk.cpus, most) < most,
            memory=_times(memory_mb - extra.memory_mb, chunk.memory_mb, most) < most,
        )

    def lay(self, chunks: Mapping[int, int], request: Request) -> Allocation:
        """Return the allocation for these numbers of chunks by node number."""
        if request.exclusive:
            return {self.names[number]: self._total[number] for number in chunks}
        chunk, extra = request.chunk, request.per_node
        laid = {}
        for number, count in chunks.items():
            wanted = {gpu_type: each * count for gpu_type, each in chunk.gpus.items()}
            laid[self.names[number]] = Amount(
                gpus=_typed(wanted, self._gpus[number]),
                cpus=chunk.cpus * count + extra.cpus,
                memory_mb=chunk.memory_mb * count + extra.memory_mb,
            )
        return laid


def draws_from(mark: int, count: int) -> Iterator[int]:
    """Yield pseudorandom numbers below ``count`` without end, seeded with ``mark``.

    This is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); placement must be deterministic.
    """
    while True:
        mark = (mark + _GOLDEN) & _64_BITS
        mixed = ((mark ^ mark >> 30) * 0xBF58476D1CE4E5B9) & _64_BITS
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _64_BITS
        yield (mixed ^ mixed >> 31) % count


def _least(group: Mapping[int, NodeSet], nodes: NodeSet, gpus: int) -> int:
    """Return the fewest free GPUs, at least ``gpus``, that any of the nodes has; 0 if none does."""
    least = 0
    for free, there in group.items():
        if free >= gpus and (not least or free < least) and there & nodes:
            least = free
    return least


def chunks_that_fit(free: Amount, request: Request) -> int:
    """Return how many chunks of a request fit into a free amount, within its per-node limit."""
    return _chunks_that_fit(request, free.gpus, free.cpus, free.memory_mb)


def _gpus_of(gpu_type: str, gpus: GpuCounts) -> int:
    """Return how many of these GPUs a request for this type can take."""
    return sum(gpus.values()) if gpu_type == ANY_TYPE else gpus.get(gpu_type, 0)


def _chunks_that_fit(request: Request, gpus: GpuCounts, cpus: int, memory_mb: int) -> int:
    chunk, extra = request.chunk, request.per_node
    limit = request.chunks
    if request.max_chunks_per_node is not None:
        limit = min(limit, request.max_chunks_per_node)
    limit = _times(cpus - extra.cpus, chunk.cpus, limit)
    limit = _times(memory_mb - extra.memory_mb, chunk.memory_mb, limit)
    for gpu_type, count in chunk.gpus.items():
        available = sum(gpus.values()) if gpu_type == ANY_TYPE else gpus.get(gpu_type, 0)
        limit = _times(available, count, limit)
    return limit


def _times(available: int, wanted: int, limit: int) -> int:
    """Return how many times ``wanted`` fits into ``available``, at most ``limit``."""
    if available < 0:
        return 0
    return min(limit, available // wanted) if wanted > 0 else limit


def _typed(wanted: GpuCounts, free: GpuCounts) -> GpuCounts:
    """Replace GPUs of any type with concrete types, the most plentiful first."""
    if len(free) == 1 and wanted.keys() == free.keys():
        return wanted  # as on most clusters
    untyped = wanted.get(ANY_TYPE, 0)
    taken = {gpu_type: count for gpu_type, count in wanted.items() if gpu_type != ANY_TYPE}
    for gpu_type, count in sorted(free.items(), key=lambda item: (-item[1], item[0])):
        some = min(untyped, count)
        if some > 0:
            taken[gpu_type] = taken.get(gpu_type, 0) + some
            untyped -= some
    return taken
