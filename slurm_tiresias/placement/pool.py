"""What is free on each node while a decision is being made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from slurm_tiresias.model import ANY_TYPE, Allocation, Amount, GpuCounts, Node, Request


class Holder(Protocol):
    """Whoever holds something."""

    @property
    def allocation(self) -> Allocation: ...


class Pool:
    """Free GPUs by type, CPUs and memory of each node; taken from and given back to.

    A node may hold more than it has (it came back with fewer GPUs): its free amount is then
    negative, and nothing fits on it.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._total: dict[str, Amount] = {node.name: node.total for node in nodes}
        self._free = dict(self._total)
        self._free_gpus = {name: total.gpu_count for name, total in self._total.items()}
        self._holders = dict.fromkeys(self._total, 0)
        self._stamps = dict.fromkeys(self._total, 0)

    def free(self, node: str) -> Amount:
        return self._free[node]

    def free_gpus(self, node: str) -> int:
        """GPUs of all types that are free on the node."""
        return self._free_gpus[node]

    def is_idle(self, node: str) -> bool:
        """Whether nobody holds anything on the node."""
        return self._holders[node] == 0

    def stamp(self, node: str) -> int:
        """A number that changes whenever something is taken from or given back to the node."""
        return self._stamps[node]

    def take(self, allocation: Allocation) -> None:
        self._add(allocation, -1)

    def give(self, allocation: Allocation) -> None:
        self._add(allocation, +1)

    def _add(self, allocation: Allocation, sign: int) -> None:
        for node, amount in allocation.items():
            if node in self._free:
                self._free[node] = _sum(self._free[node], amount, sign)
                self._free_gpus[node] += sign * amount.gpu_count
                self._holders[node] -= sign
                self._stamps[node] += 1

    def chunks_that_fit(self, node: str, request: Request) -> int:
        """How many chunks of this request the node could take now; at most what it asks for."""
        if request.chunk.gpus and self._free_gpus[node] <= 0:
            return 0  # most nodes of a busy cluster: not worth a closer look
        if request.exclusive and not self.is_idle(node):
            return 0
        return chunks_that_fit(self._free[node], request)

    def chunks_without(self, node: str, request: Request, holders: Sequence[Holder]) -> int:
        """The same if these holders of something on the node were gone."""
        if request.exclusive and self._holders[node] > len(holders):
            return 0
        free = self._free[node]
        for holder in holders:
            free = _sum(free, holder.allocation[node], +1)
        return chunks_that_fit(free, request)

    def lay(self, chunks: Mapping[str, int], request: Request) -> Allocation:
        """The amounts that so many chunks on each node take."""
        if request.exclusive:
            return {node: self._total[node] for node in chunks}
        return {
            node: _amount_of(self._free[node], request, count) for node, count in chunks.items()
        }


def chunks_that_fit(free: Amount, request: Request) -> int:
    """How many chunks of a request go into a free amount; at most what it asks for a node."""
    chunk, extra = request.chunk, request.per_node
    limit = request.chunks
    if request.max_chunks_per_node is not None:
        limit = min(limit, request.max_chunks_per_node)
    limit = min(limit, _times(free.cpus - extra.cpus, chunk.cpus, limit))
    limit = min(limit, _times(free.memory_mb - extra.memory_mb, chunk.memory_mb, limit))
    for gpu_type, count in chunk.gpus.items():
        available = free.gpu_count if gpu_type == ANY_TYPE else free.gpus.get(gpu_type, 0)
        limit = min(limit, _times(available, count, limit))
    return max(0, limit)


def _times(available: int, wanted: int, limit: int) -> int:
    if available < 0:
        return 0
    return available // wanted if wanted > 0 else limit


def _amount_of(free: Amount, request: Request, chunks: int) -> Amount:
    wanted = {gpu_type: count * chunks for gpu_type, count in request.chunk.gpus.items()}
    return Amount(
        gpus=_typed(wanted, free.gpus),
        cpus=request.chunk.cpus * chunks + request.per_node.cpus,
        memory_mb=request.chunk.memory_mb * chunks + request.per_node.memory_mb,
    )


def _typed(wanted: GpuCounts, free: GpuCounts) -> GpuCounts:
    """Say which types GPUs of any type are taken from: the most plentiful first."""
    untyped = wanted.get(ANY_TYPE, 0)
    taken = {gpu_type: count for gpu_type, count in wanted.items() if gpu_type != ANY_TYPE}
    for gpu_type, count in sorted(free.items(), key=lambda item: (-item[1], item[0])):
        some = min(untyped, count)
        if some > 0:
            taken[gpu_type] = taken.get(gpu_type, 0) + some
            untyped -= some
    return taken


def _sum(left: Amount, right: Amount, sign: int) -> Amount:
    gpus = dict(left.gpus)
    for gpu_type, count in right.gpus.items():
        gpus[gpu_type] = gpus.get(gpu_type, 0) + sign * count
    return Amount(
        gpus=gpus,
        cpus=left.cpus + sign * right.cpus,
        memory_mb=left.memory_mb + sign * right.memory_mb,
    )
