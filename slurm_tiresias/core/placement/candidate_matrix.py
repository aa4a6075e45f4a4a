"""The resources that preemption could free on each node, and the cost of freeing them.

A decision needs this for every node and hundreds of equivalence classes. So candidates are kept in
arrays with one column per node, and one array operation covers all nodes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from slurm_tiresias.core.features.protection import Shield, least_shield
from slurm_tiresias.core.placement.choose import goes_by_count
from slurm_tiresias.core.placement.free_resources import (
    CPUS,
    HOLDERS,
    MEMORY,
    Counts,
    FreeResources,
)
from slurm_tiresias.core.placement.node_set import NodeSet, columns, numbers
from slurm_tiresias.core.rank import Key, UniqueRank
from slurm_tiresias.model import (
    USUAL_STAKE,
    Allocation,
    PlacementStyle,
    Request,
    WorkAtStake,
)

Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]

_GONE = -1
"""The level of an empty cell; it sorts above all real levels."""


@dataclass(slots=True, eq=False)
class Candidate:
    """A running job that may be preempted, unless its shield protects it from the preemptor."""

    rank: UniqueRank
    allocation: Allocation
    nodes: NodeSet
    gpus: int
    shield: Shield = Shield.NONE
    at_stake: WorkAtStake | None = None
    """None if nothing is known of it: it then counts as ``USUAL_STAKE``."""

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

    def lost_s(self, now_s: float) -> float:
        """Return the running time that its preemption now would waste."""
        return (self.at_stake or USUAL_STAKE).lost_s(now_s)

    def lost_gpu_s(self, now_s: float) -> float:
        """Return the GPU-seconds that its preemption now would waste."""
        return self.gpus * self.lost_s(now_s)


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A waiting job that may preempt candidates of lower levels on some nodes.

    With ``even_protected``, protected candidates count as preemptible. ``weighs_at_s`` is the time
    for which losses of work are weighed; None if victims are chosen without regard to them.
    """

    request: Request
    style: PlacementStyle
    nodes: NodeSet
    level: Key
    even_protected: bool = False
    weighs_at_s: float | None = None

    def may_preempt(self, candidate: Candidate) -> bool:
        return candidate.rank.level > self.level and candidate.shield < self.stopped_by

    @property
    def stopped_by(self) -> int:
        """The least shield that protects from this preemptor."""
        return least_shield(self.level, even_protected=self.even_protected)

    def cost(self, candidates: Collection[Candidate]) -> tuple[float, Key, int, int]:
        """Return a sort key for the cost of preempting these candidates: the GPU-seconds wasted, if
        they are weighed, then the best level among them, then GPUs, then the number of candidates.

        Candidates of the lowest levels cost least. The sum does not depend on their order.
        """
        best = min((candidate.rank.level for candidate in candidates), default=())
        backwards = tuple(-number for number in best)
        lost_gpu_s = 0.0
        if (now_s := self.weighs_at_s) is not None:
            lost_gpu_s = math.fsum(candidate.lost_gpu_s(now_s) for candidate in candidates)
        gpus = sum(candidate.gpus for candidate in candidates)
        return (lost_gpu_s, backwards, gpus, len(candidates))

    def stay_first(self) -> Callable[[Candidate], Any]:
        """Return the sort key by which candidates that are not needed as victims are spared."""
        now_s = self.weighs_at_s
        return rank_of if now_s is None else lambda candidate: dearest_stay(candidate, now_s)


class CandidateMatrix:
    """The candidates on each node; those that should rather stay come first.

    ``weighs_at_s`` is as in ``Preemptor``.
    """

    def __init__(
        self,
        candidates: Iterable[Candidate],
        free: FreeResources,
        weighs_at_s: float | None = None,
    ) -> None:
        self._free = free
        ranked = sorted(candidates, key=rank_of)
        self._place = {candidate.job_id: place for place, candidate in enumerate(ranked)}
        self._levels = sorted({candidate.level for candidate in ranked})
        number_of = {level: number for number, level in enumerate(self._levels)}
        self._level = np.array([*(number_of[candidate.level] for candidate in ranked), _GONE])
        self._shield = np.array([*(candidate.shield for candidate in ranked), Shield.NONE])
        self._gpus = np.array([*(candidate.gpus for candidate in ranked), 0])
        self._lost_gpu_s: npt.NDArray[np.float64] | None = None
        if weighs_at_s is None:
            ranked.sort(key=widest_stay)
        else:
            lost_gpu_s = (candidate.lost_gpu_s(weighs_at_s) for candidate in ranked)
            self._lost_gpu_s = np.array([*lost_gpu_s, 0.0])
            ranked.sort(key=lambda candidate: dearest_stay(candidate, weighs_at_s))
        self._fill(ranked)

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

    def protect(self, candidate: Candidate) -> None:
        self._shield[self._place[candidate.job_id]] = candidate.shield

    def reclaimable(self, preemptor: Preemptor) -> Reclaimable:
        """Return what could be freed for a preemptor on the nodes that it may use."""
        may_leave = self._level >= bisect_right(self._levels, preemptor.level)
        may_leave &= self._shield < preemptor.stopped_by
        demand = _Demand.of(preemptor.request, self._free)
        nodes = columns(preemptor.nodes, len(self._free.names))
        who = self._who[:, nodes]
        leaving = may_leave[who]
        held = self._held[demand.rows][:, :, nodes] * leaving
        free = self._free.table()[demand.rows][:, nodes] + held.sum(axis=1)
        return Reclaimable(self, demand, nodes, who, leaving, held, free)

    def costs(self, who: Indices, leaving: Flags, chunks: Counts) -> list[npt.NDArray[Any]]:
        """Return the sort keys of each node's preemption cost, the most significant first.

        Nodes that need no preemption come first, then those with the least work lost per chunk, if
        that is weighed, then those whose victims have the lowest levels, then, per chunk, those
        with the fewest GPUs preempted and the fewest victims, and then the latest ranks.
        """
        none = len(self._place)
        first = np.where(leaving, who, none).min(axis=0, initial=none)
        keys: list[npt.NDArray[Any]] = [np.any(leaving, axis=0)]
        if self._lost_gpu_s is not None:
            keys.append((self._lost_gpu_s[who] * leaving).sum(axis=0) / chunks)
        keys.append(-self._level[first])
        keys.append((self._gpus[who] * leaving).sum(axis=0) / chunks)
        keys.append(leaving.sum(axis=0) / chunks)
        keys.append(-first)
        return keys


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


def dearest_stay(candidate: Candidate, now_s: float) -> tuple[float, Key, int, UniqueRank]:
    rank = candidate.rank
    return (-candidate.lost_gpu_s(now_s), rank.level, -candidate.gpus, rank)
