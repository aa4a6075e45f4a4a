"""What each node could give if its tenants left, and what that would do to them.

A decision asks this of every node for hundreds of kinds of jobs. So tenants are kept in arrays
with a column for each node, and all nodes are asked at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from slurm_tiresias.model import Allocation, PlacementStyle, Request
from slurm_tiresias.placement.choose import goes_by_count
from slurm_tiresias.placement.pool import (
    CPUS,
    HOLDERS,
    MEMORY,
    Counts,
    NodeSet,
    Pool,
    columns,
    numbers,
)
from slurm_tiresias.policy.standing import Key, Rank

Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]

_GONE = -1
"""The level of who is not there: above all."""


@dataclass(slots=True, eq=False)
class Tenant:
    """A running job that may be asked to leave, unless it is guarded."""

    rank: Rank
    allocation: Allocation
    nodes: NodeSet
    gpus: int
    guarded: bool = False

    _seats: list[tuple[int, list[int]]] | None = field(default=None, repr=False)

    def seats_in(self, pool: Pool) -> list[tuple[int, list[int]]]:
        """The nodes, and what it holds on each as a column of ``Pool.table``."""
        if self._seats is None:
            held = self.allocation
            self._seats = [(n, pool.held(held[pool.names[n]])) for n in numbers(self.nodes)]
        return self._seats

    @property
    def job_id(self) -> str:
        return self.rank.job_id

    @property
    def level(self) -> Key:
        return self.rank.level


@dataclass(frozen=True, slots=True)
class Appeal:
    """A job of some level asks for room on some nodes; with ``even_guarded`` of the guarded too."""

    request: Request
    style: PlacementStyle
    nodes: NodeSet
    level: Key
    even_guarded: bool = False

    def may_leave(self, tenant: Tenant) -> bool:
        return tenant.rank.level > self.level and (self.even_guarded or not tenant.guarded)


class Seats:
    """The tenants of every node, those first who had rather stay."""

    def __init__(self, tenants: Iterable[Tenant], pool: Pool) -> None:
        self._pool = pool
        ranked = sorted(tenants, key=rank_of)
        self._place = {tenant.job_id: place for place, tenant in enumerate(ranked)}
        self._levels = sorted({tenant.level for tenant in ranked})
        number_of = {level: number for number, level in enumerate(self._levels)}
        self._level = np.array([*(number_of[tenant.level] for tenant in ranked), _GONE])
        self._guarded = np.array([*(tenant.guarded for tenant in ranked), False])
        self._gpus = np.array([*(tenant.gpus for tenant in ranked), 0])
        self._seat(sorted(ranked, key=widest_stay))

    def _seat(self, tenants: Iterable[Tenant]) -> None:
        taken = [0] * len(self._pool.names)
        at: list[int] = []
        who: list[int] = []
        held: list[Sequence[int]] = []
        for tenant in tenants:
            place = self._place[tenant.job_id]
            for number, holds in tenant.seats_in(self._pool):
                at.append(taken[number] * len(taken) + number)
                taken[number] += 1
                who.append(place)
                held.append(holds)
        seats = max(taken, default=0) * len(taken)
        rows = len(self._pool.table())
        who_sits = np.full(seats, len(self._place), np.intp)
        who_sits[at] = who
        self._who: Indices = who_sits.reshape(-1, len(taken))
        what_is_held = np.zeros((rows, seats), np.int64)
        if held:
            what_is_held[:, at] = np.array(held).T
        self._held: Counts = what_is_held.reshape(rows, -1, len(taken))

    def leave(self, tenant: Tenant) -> None:
        self._level[self._place[tenant.job_id]] = _GONE

    def unguard(self, tenant: Tenant) -> None:
        self._guarded[self._place[tenant.job_id]] = False

    def offers(self, appeal: Appeal) -> Offers:
        """What those nodes could give that a job asks."""
        may_leave = self._level >= bisect_right(self._levels, appeal.level)
        if not appeal.even_guarded:
            may_leave &= ~self._guarded
        demand = _Demand.of(appeal.request, self._pool)
        nodes = columns(appeal.nodes, len(self._pool.names))
        who = self._who[:, nodes]
        leaving = may_leave[who]
        held = self._held[demand.rows][:, :, nodes] * leaving
        free = self._pool.table()[demand.rows][:, nodes] + held.sum(axis=1)
        return Offers(self, demand, nodes, who, leaving, held, free)

    def costs(self, who: Indices, leaving: Flags, chunks: Counts) -> list[npt.NDArray[Any]]:
        """What leaving does to these tenants, node by node; what counts most comes first.

        Idle room first; then the lowest levels; then the fewest GPUs disturbed per chunk, and
        the fewest tenants; then the last.
        """
        nobody = len(self._place)
        first = np.where(leaving, who, nobody).min(axis=0, initial=nobody)
        return [
            np.any(leaving, axis=0),
            -self._level[first],
            (self._gpus[who] * leaving).sum(axis=0) / chunks,
            leaving.sum(axis=0) / chunks,
            -first,
        ]


class Offers:
    """What nodes could give at the most, and what that would do to their tenants.

    A column for each node: who sits there, who of them may leave, what these hold, and what is
    free once they have left.
    """

    def __init__(
        self,
        seats: Seats,
        demand: _Demand,
        nodes: Indices,
        who: Indices,
        leaving: Flags,
        held: Counts,
        free: Counts,
    ) -> None:
        self._seats = seats
        self._demand = demand
        self._nodes = nodes
        self._who, self._leaving, self._held, self._free = who, leaving, held, free
        self._chunks = demand.chunks_in(free)

    @property
    def chunks(self) -> int:
        """What all nodes could give together."""
        return int(self._chunks.sum())

    def cheapest_first(self, least: int = 1) -> Iterator[tuple[int, int]]:
        """The nodes that could give so many chunks, by what it would cost, and how many."""
        some = np.flatnonzero(self._chunks >= least)
        if not some.size:
            return
        who, chunks = self._who[:, some], self._chunks[some]
        costs = self._seats.costs(who, self._needed(some), chunks)
        for here in _in_order(costs):
            yield int(self._nodes[some[here]]), int(chunks[here])

    def _needed(self, some: Indices) -> Flags:
        """Who must leave of some nodes: each stays that can, in the order of the seats."""
        leaving, held = self._leaving[:, some], self._held[:, :, some]
        spare = self._free[:, some] - self._demand.of_chunks(self._chunks[some])
        for seat in range(len(leaving)):
            stays = leaving[seat] & (held[:, seat] <= spare).all(axis=0)
            leaving[seat] ^= stays
            spare -= held[:, seat] * stays
        return leaving


@dataclass(frozen=True, slots=True)
class _Demand:
    """What a request takes of each resource that matters, as rows of ``Pool.table``."""

    rows: list[int]
    chunk: list[int]
    once: list[int]
    """What comes on top of the chunks on every node."""
    most: int
    """Chunks that may be on one node."""

    @staticmethod
    def of(request: Request, pool: Pool) -> _Demand:
        chunk, extra = request.chunk, request.per_node
        takes = [(pool.row_of(kind), count, 0) for kind, count in chunk.gpus.items()]
        if not goes_by_count(request):
            takes.append((CPUS, chunk.cpus, extra.cpus))
            takes.append((MEMORY, chunk.memory_mb, extra.memory_mb))
        if request.exclusive:
            takes.append((HOLDERS, 0, 0))
        most = request.chunks
        if request.max_chunks_per_node is not None:
            most = min(most, request.max_chunks_per_node)
        rows, chunks, once = map(list, zip(*takes, strict=True))
        return _Demand(rows, chunks, once, most)

    def chunks_in(self, free: Counts) -> Counts:
        """How many chunks go into what is free."""
        chunks = np.full(free.shape[1], self.most)
        for row, chunk, once in zip(free, self.chunk, self.once, strict=True):
            left = row - once
            np.minimum(
                chunks, left // chunk if chunk else np.where(left < 0, 0, self.most), out=chunks
            )
        np.maximum(chunks, 0, out=chunks)
        return chunks

    def of_chunks(self, chunks: Counts) -> Counts:
        """What so many chunks take, node by node."""
        taken: Counts = np.outer(self.chunk, chunks)
        taken += np.array(self.once)[:, np.newaxis]
        return taken


def _in_order(keys: Sequence[npt.NDArray[Any]]) -> Iterator[int]:
    """Positions, one at least, by several keys, of which the first counts most.

    Most often nobody asks for the second position: the first is found without sorting.
    """
    best = np.arange(len(keys[0]))
    for key in keys:
        best = best[key[best] == key[best].min()]
    yield best[0]
    yield from np.lexsort(keys[::-1])[1:]


def rank_of(tenant: Tenant) -> Rank:
    return tenant.rank


def widest_stay(tenant: Tenant) -> tuple[Key, int, Rank]:
    return (tenant.rank.level, -tenant.gpus, tenant.rank)


def backwards(key: Key) -> Key:
    return tuple(-number for number in key)
