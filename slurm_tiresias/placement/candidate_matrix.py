"""The resources that preemption could free on each node, and the cost of freeing them.

A decision needs this for every node and hundreds of equivalence classes. So candidates are kept in
arrays with one column per node, and one array operation covers all nodes.
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
from slurm_tiresias.placement.free_resources import (
    CPUS,
    HOLDERS,
    MEMORY,
    Counts,
    FreeResources,
    NodeSet,
    columns,
    numbers,
)
from slurm_tiresias.policy.job_rank import Key, UniqueRank

Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]

_GONE = -1
"""The level of an empty cell; it sorts above all real levels."""


@dataclass(slots=True, eq=False)
class Candidate:
    """A running job that may be preempted, unless it is protected."""

    rank: UniqueRank
    allocation: Allocation
    nodes: NodeSet
    gpus: int
    protected: bool = False

    _cells: list[tuple[int, list[int]]] | None = field(default=None, repr=False)

    def cells_in(self, free: FreeResources) -> list[tuple[int, list[int]]]:
        """Return its node numbers, each with the amounts held there in the rows of
        ``FreeResources.table``."""
        if self._cells is None:
            held = self.allocation
            self._cells = [(n, free.held(held[free.names[n]])) for n in numbers(self.nodes)]
        return self._cells

    @property
    def job_id(self) -> str:
        return self.rank.job_id

    @property
    def level(self) -> Key:
        return self.rank.level


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A waiting job that may preempt candidates of lower levels on some nodes.

    With ``even_protected``, protected candidates count as preemptible.
    """

    request: Request
    style: PlacementStyle
    nodes: NodeSet
    level: Key
    even_protected: bool = False

    def may_preempt(self, candidate: Candidate) -> bool:
        return candidate.rank.level > self.level and (
            self.even_protected or not candidate.protected
        )


class CandidateMatrix:
    """The candidates on each node; those that should rather stay come first."""

    def __init__(self, candidates: Iterable[Candidate], free: FreeResources) -> None:
        self._free = free
        ranked = sorted(candidates, key=rank_of)
        self._place = {candidate.job_id: place for place, candidate in enumerate(ranked)}
        self._levels = sorted({candidate.level for candidate in ranked})
        number_of = {level: number for number, level in enumerate(self._levels)}
        self._level = np.array([*(number_of[candidate.level] for candidate in ranked), _GONE])
        self._protected = np.array([*(candidate.protected for candidate in ranked), False])
        self._gpus = np.array([*(candidate.gpus for candidate in ranked), 0])
        self._fill(sorted(ranked, key=widest_stay))

    def _fill(self, candidates: Iterable[Candidate]) -> None:
        taken = [0] * len(self._free.names)
        at: list[int] = []
        who: list[int] = []
        held: list[Sequence[int]] = []
        for candidate in candidates:
            place = self._place[candidate.job_id]
            for number, holds in candidate.cells_in(self._free):
                at.append(taken[number] * len(taken) + number)
                taken[number] += 1
                who.append(place)
                held.append(holds)
        cells = max(taken, default=0) * len(taken)
        rows = len(self._free.table())
        places = np.full(cells, len(self._place), np.intp)
        places[at] = who
        self._who: Indices = places.reshape(-1, len(taken))
        amounts = np.zeros((rows, cells), np.int64)
        if held:
            amounts[:, at] = np.array(held).T
        self._held: Counts = amounts.reshape(rows, -1, len(taken))

    def leave(self, candidate: Candidate) -> None:
        self._level[self._place[candidate.job_id]] = _GONE

    def unprotect(self, candidate: Candidate) -> None:
        self._protected[self._place[candidate.job_id]] = False

    def reclaimable(self, preemptor: Preemptor) -> Reclaimable:
        """Return what could be freed for a preemptor on the nodes that it may use."""
        may_leave = self._level >= bisect_right(self._levels, preemptor.level)
        if not preemptor.even_protected:
            may_leave &= ~self._protected
        demand = _Demand.of(preemptor.request, self._free)
        nodes = columns(preemptor.nodes, len(self._free.names))
        who = self._who[:, nodes]
        leaving = may_leave[who]
        held = self._held[demand.rows][:, :, nodes] * leaving
        free = self._free.table()[demand.rows][:, nodes] + held.sum(axis=1)
        return Reclaimable(self, demand, nodes, who, leaving, held, free)

    def costs(self, who: Indices, leaving: Flags, chunks: Counts) -> list[npt.NDArray[Any]]:
        """Return the sort keys of each node's preemption cost, the most significant first.

        Nodes that need no preemption come first, then those whose victims have the lowest levels,
        then those with the fewest GPUs preempted per chunk, the fewest victims per chunk and the
        latest ranks.
        """
        none = len(self._place)
        first = np.where(leaving, who, none).min(axis=0, initial=none)
        return [
            np.any(leaving, axis=0),
            -self._level[first],
            (self._gpus[who] * leaving).sum(axis=0) / chunks,
            leaving.sum(axis=0) / chunks,
            -first,
        ]


class Reclaimable:
    """The most that preemption could free on each node, and its cost.

    Each array has one column per node: the candidates there, which of them may be preempted, what
    those hold, and what is free once they have left.
    """

    def __init__(
        self,
        matrix: CandidateMatrix,
        demand: _Demand,
        nodes: Indices,
        who: Indices,
        leaving: Flags,
        held: Counts,
        free: Counts,
    ) -> None:
        self._matrix = matrix
        self._demand = demand
        self._nodes = nodes
        self._who, self._leaving, self._held, self._free = who, leaving, held, free
        self._chunks = demand.chunks_in(free)

    @property
    def chunks(self) -> int:
        """Total number of chunks that the nodes could hold."""
        return int(self._chunks.sum())

    def cheapest_first(self, least: int = 1) -> Iterator[tuple[int, int]]:
        """Yield the nodes that could hold at least ``least`` chunks, cheapest first, with how many
        chunks each could hold."""
        some = np.flatnonzero(self._chunks >= least)
        if not some.size:
            return
        who, chunks = self._who[:, some], self._chunks[some]
        costs = self._matrix.costs(who, self._needed(some), chunks)
        for here in _in_order(costs):
            yield int(self._nodes[some[here]]), int(chunks[here])

    def _needed(self, some: Indices) -> Flags:
        """Mark the candidates that must leave these nodes; earlier rows stay if possible."""
        leaving, held = self._leaving[:, some], self._held[:, :, some]
        spare = self._free[:, some] - np.outer(self._demand.chunk, self._chunks[some])
        spare -= np.array(self._demand.once)[:, np.newaxis]
        for row in range(len(leaving)):
            stays = leaving[row] & (held[:, row] <= spare).all(axis=0)
            leaving[row] ^= stays
            spare -= held[:, row] * stays
        return leaving


@dataclass(frozen=True, slots=True)
class _Demand:
    """The demand of a request for each relevant resource (a row of ``FreeResources.table``)."""

    rows: list[int]
    chunk: list[int]
    once: list[int]
    """Amount needed once per node, in addition to the chunks."""
    most: int
    """Maximum number of chunks on one node."""

    @staticmethod
    def of(request: Request, free: FreeResources) -> _Demand:
        chunk, extra = request.chunk, request.per_node
        takes = [(free.row_of(kind), count, 0) for kind, count in chunk.gpus.items()]
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
        """Return the number of chunks that fit into the free resources of each node."""
        chunks = np.full(free.shape[1], self.most)
        for row, chunk, once in zip(free, self.chunk, self.once, strict=True):
            left = row - once
            np.minimum(
                chunks, left // chunk if chunk else np.where(left < 0, 0, self.most), out=chunks
            )
        np.maximum(chunks, 0, out=chunks)
        return chunks


def _in_order(keys: Sequence[npt.NDArray[Any]]) -> Iterator[int]:
    """Yield the positions sorted by several keys, the most significant first. Not for empty keys.

    Most callers need only the first position, so it is found without sorting.
    """
    best = np.arange(len(keys[0]))
    for key in keys:
        best = best[key[best] == key[best].min()]
    yield best[0]
    yield from np.lexsort(keys[::-1])[1:]


def rank_of(candidate: Candidate) -> UniqueRank:
    return candidate.rank


def widest_stay(candidate: Candidate) -> tuple[Key, int, UniqueRank]:
    return (candidate.rank.level, -candidate.gpus, candidate.rank)
