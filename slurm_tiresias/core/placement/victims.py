"""Which jobs to preempt so that a waiting job can start: few, and with the lowest ranks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from slurm_tiresias.core.placement.candidate_index import CandidateIndex
from slurm_tiresias.core.placement.candidate_matrix import (
    Candidate,
    Preemptor,
    Reclaimable,
    rank_of,
    widest_stay,
)
from slurm_tiresias.core.placement.choose import (
    fits,
    goes_by_count,
    place,
    place_anywhere,
    place_segment,
)
from slurm_tiresias.core.placement.free_resources import FreeResources
from slurm_tiresias.core.placement.node_set import NodeSet, lowest, node_set, numbers
from slurm_tiresias.core.placement.topology import Layout
from slurm_tiresias.model import Allocation, Amount, PlacementStyle, Request


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """A start by preemption: the allocation of the job, and its victims, all of them needed."""

    allocation: Allocation
    victims: tuple[Candidate, ...]


def find_victims(
    preemptor: Preemptor, free: FreeResources, index: CandidateIndex, last_resort: NodeSet = 0
) -> PreemptionPlan | None:
    """Return the cheapest set of victims found that lets a waiting job start.

    It prefers victims that lose less work, if that is weighed, then lower levels, then fewer GPUs,
    then later ranks. The search is greedy, and drops victims that turn out not to be needed.

    Parameters
    ----------
    preemptor
        The waiting job, and the nodes that it may use.
    free
        Free resources of each node; restored before the function returns.
    index
        The running jobs that may be preempted.
    last_resort
        Nodes to use only if no others suffice.

    Returns
    -------
    PreemptionPlan or None
        Without victims if the job fits as it is; None if preempting all candidates would not let
        it start.
    """
    layout = free.topology.layout(preemptor.request, preemptor.nodes)
    if layout is not None:
        found = _by_segment(layout, preemptor, free, index, last_resort)
        if found is None and layout.segments > 1 and not preemptor.request.whole_blocks:
            # A segment may have taken the nodes without which the next one has no room.
            on_any = {t.job_id: t for number in numbers(preemptor.nodes) for t in index.on(number)}
            candidates = filter(preemptor.may_preempt, on_any.values())
            found = _fewest_of(candidates, preemptor, free, last_resort)
        return found
    return _on_any_nodes(preemptor, free, index, last_resort)


def _on_any_nodes(
    preemptor: Preemptor, free: FreeResources, index: CandidateIndex, last_resort: NodeSet
) -> PreemptionPlan | None:
    room = _Room(preemptor, free, last_resort)
    if not room.has_required_nodes():
        return None
    if room.fits():
        return room.start_without([])
    if is_divisible(preemptor):
        return _from_anywhere(preemptor, free, index, room)
    return _node_by_node(preemptor, free, index, room)


def is_divisible(preemptor: Preemptor) -> bool:
    """Whether the job can use any GPUs, so that it does not matter which nodes they are on."""
    request = preemptor.request
    if request.chunk.gpu_count != 1 or request.exclusive:
        return False
    on_one_node = preemptor.nodes.bit_count() == 1
    at_will = on_one_node or (
        preemptor.style is not PlacementStyle.CONSOLIDATE and request.max_nodes is None
    )
    bound = request.required_nodes or request.min_nodes > 1 or request.max_chunks_per_node
    return request.chunks == 1 or (at_will and not bound)


class _Room:
    """Checks whether a job fits into the resources that are free now."""

    def __init__(self, preemptor: Preemptor, free: FreeResources, last_resort: NodeSet) -> None:
        self._request = preemptor.request
        self._style = preemptor.style
        self._nodes = preemptor.nodes
        self._free = free
        self._last_resort = last_resort
        self._counting = is_divisible(preemptor) and goes_by_count(preemptor.request)
        self._needs_no_other = self._request.min_nodes == 1 and not self._request.required_nodes

    def has_required_nodes(self) -> bool:
        required = self._request.required_nodes
        nodes = self._free.nodes(required)
        return not nodes & ~self._nodes and nodes.bit_count() == len(required)

    def fits(self, nodes: NodeSet | None = None) -> bool:
        if self._counting and self.missing_gpus() > 0:
            return False
        if nodes is not None and nodes.bit_count() == 1 and self._needs_no_other:
            return self._free.chunks_that_fit(lowest(nodes), self._request) >= self._request.chunks
        return fits(self._request, self._nodes if nodes is None else nodes, self._free)

    def start_without(self, candidates: Iterable[Candidate]) -> PreemptionPlan:
        """Return the plan for a job that fits now that these candidates have left."""
        allocation = place_anywhere(
            self._request, self._nodes, self._free, self._style, self._last_resort
        )
        assert allocation is not None
        return PreemptionPlan(allocation, tuple(sorted(candidates, key=rank_of)))

    def missing_gpus(self) -> int:
        """GPUs that must become free before the job can fit."""
        wanted = self._request.chunks * self._request.chunk.gpu_count
        return wanted - self._free.gpus_free(self._nodes)


# Jobs whose nodes must lie together


def _by_segment(
    layout: Layout,
    preemptor: Preemptor,
    free: FreeResources,
    index: CandidateIndex,
    last_resort: NodeSet,
) -> PreemptionPlan | None:
    """Find victims for one segment after the other, each where that costs least; then drop the
    victims that are not needed."""
    request = preemptor.request
    nodes = preemptor.nodes if request.whole_blocks else free.usable_by(request, preemptor.nodes)
    leaving: list[Candidate] = []
    placed: dict[str, Amount] = {}
    try:
        for _ in range(layout.segments):
            part = replace(preemptor, request=layout.part, nodes=nodes)
            plan = _for_segment(layout, part, free, index, last_resort)
            if plan is None:
                return None
            for candidate in plan.victims:
                free.give(candidate.allocation)
                leaving.append(candidate)
                if layout.segments > 1:
                    index.leave(candidate)
            free.take(plan.allocation)
            placed |= plan.allocation
            nodes &= ~free.nodes(plan.allocation)
    finally:
        free.give(placed)
        for candidate in leaving:
            free.take(candidate.allocation)
            if layout.segments > 1:
                index.enter(candidate)
    whole = PreemptionPlan(placed, tuple(sorted(leaving, key=rank_of)))
    return _fewest_of(leaving, preemptor, free, last_resort) or whole


def _fewest_of(
    candidates: Iterable[Candidate],
    preemptor: Preemptor,
    free: FreeResources,
    last_resort: NodeSet,
) -> PreemptionPlan | None:
    """Preempt those of the candidates that are needed; None if all of them do not suffice."""
    candidates = sorted(candidates, key=preemptor.stay_first())

    def found() -> Allocation | None:
        return place(preemptor.request, preemptor.nodes, free, preemptor.style, last_resort)

    with _without(free, candidates):
        if found() is None:
            return None
        needed = _stripped(free, candidates, lambda: found() is not None)
    with _without(free, needed):
        allocation = found()
    assert allocation is not None
    return PreemptionPlan(allocation, tuple(sorted(needed, key=rank_of)))


def _for_segment(
    layout: Layout,
    part: Preemptor,
    free: FreeResources,
    index: CandidateIndex,
    last_resort: NodeSet,
) -> PreemptionPlan | None:
    if not part.request.whole_blocks:
        idle = place_segment(layout, part.nodes, free, part.style, last_resort)
        if idle is not None:
            return PreemptionPlan(idle, ())
    cheapest = list(index.matrix(part.weighs_at_s).reclaimable(part).cheapest_first())
    search = _on_empty_blocks if part.request.whole_blocks else _on_any_nodes
    found = (
        search(replace(part, nodes=span), free, index, last_resort)
        for span in _spans_to_free(layout, part.nodes, cheapest)
    )
    return min(filter(None, found), key=lambda plan: part.cost(plan.victims), default=None)


def _spans_to_free(
    layout: Layout, nodes: NodeSet, cheapest: Sequence[tuple[int, int]]
) -> Iterator[NodeSet]:
    """Yield the spans on which a segment would have room after preemptions, each once: first those
    of the nodes on which preemptions cost least. ``cheapest`` are nodes with their chunks."""
    room, seen, count = dict(cheapest), {0}, layout.part.min_nodes
    while True:
        cheap = dict(cheapest[:count])
        for span in layout.spans(nodes, lambda number: cheap.get(number, 0)):  # noqa: B023
            if span in seen:
                continue
            seen.add(span)
            if sum(room.get(number, 0) for number in numbers(span)) >= layout.part.chunks:
                yield span
        if count >= len(cheapest):
            return
        count *= 2


def _on_empty_blocks(
    preemptor: Preemptor, free: FreeResources, index: CandidateIndex, last_resort: NodeSet
) -> PreemptionPlan | None:
    """Preempt all jobs in the blocks of these nodes."""
    span = preemptor.nodes
    blocks = sum(block for block in free.topology.base_blocks if block & span)
    leaving = {t.job_id: t for number in numbers(blocks) for t in index.on(number)}.values()
    if not all(map(preemptor.may_preempt, leaving)):
        return None
    with _without(free, leaving):
        nodes = free.usable_by(preemptor.request, span)
        allocation = place_anywhere(preemptor.request, nodes, free, preemptor.style, last_resort)
    return None if allocation is None else PreemptionPlan(allocation, tuple(leaving))


# Jobs that can use any GPUs


def _from_anywhere(
    preemptor: Preemptor, free: FreeResources, index: CandidateIndex, room: _Room
) -> PreemptionPlan | None:
    """Preempt those first that lose least for each GPU that is still missing, if that is weighed,
    or else those of the lowest levels; then the fewest GPUs, then the latest ranks."""
    leaving: list[Candidate] = []
    try:
        for candidate in _least_disturbing(preemptor, index, room):
            free.give(candidate.allocation)
            leaving.append(candidate)
            if room.fits():
                return _sweep(free, leaving, room, preemptor)
        return None
    finally:
        for candidate in leaving:
            free.take(candidate.allocation)


def _least_disturbing(
    preemptor: Preemptor, index: CandidateIndex, room: _Room
) -> Iterator[Candidate]:
    """Yield candidates one by one, each chosen by how many GPUs are missing at that point."""
    now_s = preemptor.weighs_at_s
    for widths in index.below(preemptor.level, now_s):
        first: dict[int, Candidate] = {}
        for gpus in widths:
            _advance(first, gpus, widths[gpus], preemptor)
        while first:
            missing = room.missing_gpus()
            narrow = [gpus for gpus in first if gpus <= missing]
            gpus = max(narrow, default=min(first))
            if now_s is not None and missing > 0:
                gpus = min(
                    first,
                    key=lambda g: (first[g].lost_s(now_s) * max(1.0, g / missing), -g),
                )
            yield first.pop(gpus)
            _advance(first, gpus, widths[gpus], preemptor)


def _advance(
    first: dict[int, Candidate], gpus: int, those: Iterator[Candidate], preemptor: Preemptor
) -> None:
    """Put the next candidate of this width that may be preempted into ``first``, if any is left."""
    for candidate in those:
        if candidate.nodes & preemptor.nodes and preemptor.may_preempt(candidate):
            first[gpus] = candidate
            return


def _sweep(
    free: FreeResources, leaving: list[Candidate], room: _Room, preemptor: Preemptor
) -> PreemptionPlan:
    """Drop the candidates that are not needed, those that should rather stay first.

    The candidates in ``leaving`` make enough room together. Dropped candidates are removed from it
    and take their GPUs again.
    """
    for candidate in sorted(leaving, key=preemptor.stay_first()):
        if len(leaving) == 1:
            break  # without any victim the job does not fit
        free.take(candidate.allocation)
        if room.fits():
            leaving.remove(candidate)
        else:
            free.give(candidate.allocation)
    return room.start_without(leaving)


# Jobs for which it matters which nodes become free


def _node_by_node(
    preemptor: Preemptor, free: FreeResources, index: CandidateIndex, room: _Room
) -> PreemptionPlan | None:
    """Add nodes, cheapest first, until the job fits; then drop the victims that are not needed."""

    def leaving(number: int) -> list[Candidate]:
        return [candidate for candidate in index.on(number) if preemptor.may_preempt(candidate)]

    stay_first = preemptor.stay_first()
    orders: list[Callable[[Candidate], Any]] = [widest_stay, rank_of]
    if preemptor.weighs_at_s is not None:
        orders.insert(0, stay_first)
    reclaimable = index.matrix(preemptor.weighs_at_s).reclaimable(preemptor)
    for enough in _ever_more_nodes(preemptor.request, free, reclaimable):
        involved = {t.job_id: t for number in numbers(enough) for t in leaving(number)}.values()
        with _without(free, involved):
            if not room.fits(enough):
                continue
            sweeps = [
                _stripped(free, sorted(involved, key=stay), lambda: room.fits(enough))  # noqa: B023
                for stay in orders
            ]
        needed = min(sweeps, key=preemptor.cost)
        if len(needed) > 1:
            # A victim that spans nodes frees GPUs elsewhere too, so others may not be needed.
            with _without(free, needed):
                needed = _stripped(free, sorted(needed, key=stay_first), room.fits)
        with _without(free, needed):
            return room.start_without(needed)
    return None


def _ever_more_nodes(
    request: Request, free: FreeResources, reclaimable: Reclaimable
) -> Iterator[NodeSet]:
    """Yield sets of nodes to try: single nodes that suffice, then growing sets of the cheapest."""
    if request.min_nodes == 1 and len(request.required_nodes) <= 1:
        yield from (1 << number for number, _ in reclaimable.cheapest_first(request.chunks))
    if reclaimable.chunks < request.chunks:
        return
    cheapest = reclaimable.cheapest_first()
    nodes, chunks = [], 0
    for number, here in cheapest:
        nodes.append(number)
        chunks += here
        if chunks >= request.chunks and len(nodes) >= request.min_nodes:
            break
    more = nodes
    while more:
        yield free.nodes(request.required_nodes) | node_set(nodes)
        more = [number for number, _ in islice(cheapest, len(nodes))]
        nodes += more


def _stripped(
    free: FreeResources, candidates: Sequence[Candidate], fits: Callable[[], bool]
) -> tuple[Candidate, ...]:
    """Return the candidates that are needed, after dropping the others in the given order.

    The resources of all candidates are free in ``free`` both before and after the call.
    """
    leaving: list[Candidate] = []
    staying: list[Candidate] = []
    for candidate in candidates:
        free.take(candidate.allocation)
        if fits():
            staying.append(candidate)
        else:
            free.give(candidate.allocation)
            leaving.append(candidate)
    for candidate in staying:
        free.give(candidate.allocation)
    return tuple(leaving)


@contextmanager
def _without(free: FreeResources, candidates: Collection[Candidate]) -> Iterator[None]:
    """Free the resources of these candidates while the context lasts."""
    for candidate in candidates:
        free.give(candidate.allocation)
    try:
        yield
    finally:
        for candidate in candidates:
            free.take(candidate.allocation)
