"""Placement: which nodes a job gets (paper section 3.3, pages 491-492)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from slurm_tiresias.core.job import Job
from slurm_tiresias.core.placement.free_resources import FreeResources, draws_from
from slurm_tiresias.core.placement.node_set import NodeSet, first_from, node_set, numbers
from slurm_tiresias.core.placement.topology import Layout
from slurm_tiresias.model import ANY_TYPE, Allocation, Amount, PlacementStyle, Request
from slurm_tiresias.settings.placement import PlacementConfig


def style_of(job: Job, config: PlacementConfig) -> PlacementStyle:
    """Return the placement style of a job: its own, or else the style that its skew implies."""
    return job.style or style_of_skew(job.skew, config)


def style_of_skew(skew: float | None, config: PlacementConfig) -> PlacementStyle:
    """Return the style for a skew: consolidate models that are skewed (page 491: S_J >
    PACKLIMIT) or unknown (None), spread others."""
    skewed = skew is None or skew > config.pack_limit
    return PlacementStyle.CONSOLIDATE if skewed else PlacementStyle.SPREAD


def place(
    request: Request,
    nodes: NodeSet,
    free: FreeResources,
    style: PlacementStyle,
    last_resort: NodeSet = 0,
) -> Allocation | None:
    """Choose the nodes of a job that starts now.

    Parameters
    ----------
    request
        What the job asks for, as chunks of GPUs, CPUs and MiB of memory.
    nodes
        The nodes that it may use.
    free
        Free resources of each node; not changed.
    style
        Consolidated on few nodes, or spread over leftover GPUs (paper page 491).
    last_resort
        Nodes to use only if no others suffice, for example while they complete other jobs.

    Returns
    -------
    Allocation or None
        The resources that the job takes on each node; None if it does not fit.
    """
    layout = free.topology.layout(request, nodes)
    if layout is None:
        return place_anywhere(request, nodes, free, style, last_resort)
    placed: dict[str, Amount] = {}
    nodes = free.usable_by(request, nodes)
    try:
        for _ in range(layout.segments):
            found = place_segment(layout, nodes, free, style, last_resort)
            if found is None:
                return None
            free.take(found)
            placed |= found
            nodes &= ~free.nodes(found)
    finally:
        free.give(placed)
    return placed


def place_segment(
    layout: Layout, nodes: NodeSet, free: FreeResources, style: PlacementStyle, last_resort: NodeSet
) -> Allocation | None:
    """Place one segment of a job where it leaves the largest idle blocks to others."""
    part = layout.part
    gpus = part.chunks * part.chunk.gpu_count
    together = style is PlacementStyle.CONSOLIDATE
    best: tuple[tuple[int, ...], Allocation] | None = None
    for span in layout.spans(nodes, lambda number: free.chunks_that_fit(number, part)):
        there = free.gpus_free(span)
        found = place_anywhere(part, span, free, style, last_resort) if there >= gpus else None
        if found is None:
            continue
        used = free.nodes(found)
        key = (
            (used & last_resort) != 0,
            len(found) if together else 0,
            sum(map(free.is_idle, numbers(used))),
            sum(map(free.free_gpus, numbers(used))),
            there,
        )
        if best is None or key < best[0]:
            best = key, found
    return best and best[1]


def place_anywhere(
    request: Request,
    nodes: NodeSet,
    free: FreeResources,
    style: PlacementStyle,
    last_resort: NodeSet = 0,
) -> Allocation | None:
    """Choose the nodes of a job as ``place`` does, if any of them may be combined."""
    fresh = nodes & ~last_resort
    chosen = _choose(request, fresh, free, style)
    if chosen is None and fresh != nodes:
        chosen = _choose(request, nodes, free, style)
    return None if chosen is None else free.lay(chosen, request)


def fits(request: Request, nodes: NodeSet, free: FreeResources) -> bool:
    """Whether ``place_anywhere`` finds room for the job on these nodes, whatever the style."""
    return _Filling(request, nodes, free).over_few_nodes() is not None


def place_on_any(
    request: Request,
    sets: Iterable[NodeSet],
    free: FreeResources,
    style: PlacementStyle,
    last_resort: NodeSet = 0,
) -> Allocation | None:
    """Place a job on the first set of nodes (``NodeIndex.sets_for``) on which it fits."""
    for nodes in sets:
        allocation = place(request, nodes, free, style, last_resort)
        if allocation is not None:
            return allocation
    return None


def goes_by_count(request: Request) -> bool:
    """Whether the number of free GPUs alone decides where a job fits."""
    chunk, extra = request.chunk, request.per_node
    bound = request.required_nodes or request.exclusive or request.max_chunks_per_node
    untyped = chunk.gpus.keys() == {ANY_TYPE} and chunk.gpu_count > 0
    return untyped and not (
        bound
        or request.min_nodes > 1
        or chunk.cpus
        or chunk.memory_mb
        or extra.cpus
        or extra.memory_mb
    )


def _choose(
    request: Request, nodes: NodeSet, free: FreeResources, style: PlacementStyle
) -> Mapping[int, int] | None:
    """Return the number of chunks for each chosen node; None if the job does not fit."""
    chosen = None
    if style is PlacementStyle.SPREAD and request.chunks > 1:
        chosen = _Filling(request, nodes, free).over_fragments()
    elif style is PlacementStyle.RANDOM:
        chosen = _Filling(request, nodes, free).at_random()
    if chosen is not None:
        return chosen
    # Consolidated: the fewest nodes, and under one switch if that takes no more nodes. Among
    # several switches, the one with the fewest free GPUs wins.
    chosen = _Filling(request, nodes, free).over_few_nodes()
    if chosen is None or len(chosen) == 1 or not free.topology.switches:
        return chosen
    for under_one in _tightest_switches(request, nodes, free):
        together = _Filling(request, under_one, free).over_few_nodes()
        if together is not None and len(together) <= len(chosen):
            return together
    return chosen


def _tightest_switches(request: Request, nodes: NodeSet, free: FreeResources) -> list[NodeSet]:
    """Return the nodes of each switch with enough free GPUs, fewest free GPUs first."""
    gpus = request.chunks * request.chunk.gpu_count
    roomy = free.with_free_gpus(nodes, 1) if gpus else nodes
    there = (
        (free.gpus_free(roomy & switch), nodes & switch)
        for switch in free.topology.switches
        if roomy & switch
    )
    enough = [(count, under_one) for count, under_one in there if count >= gpus]
    return [under_one for _, under_one in sorted(enough, key=lambda pair: pair[0])]


class _Filling:
    """A partial placement of a job: the nodes chosen so far and the chunks left to place."""

    def __init__(self, request: Request, nodes: NodeSet, free: FreeResources) -> None:
        self._request = request
        self._free = free
        self._nodes = nodes
        self._left = request.chunks
        self._chosen: dict[int, int] = {}

    def over_fragments(self) -> Mapping[int, int] | None:
        """Place the job on free GPUs of busy nodes, the most free GPUs first, and fill each node.

        Nodes that the job would fill only in part are skipped, because that leaves smaller
        fragments; if the job cannot be placed without them, None is returned.
        """
        gpus = self._request.chunk.gpu_count
        if not gpus or not self._on_required_nodes():
            return None
        for number in self._free.fragments(self._nodes):
            if self._done():
                break
            room = self._room(number)
            used_up = room * gpus == self._free.free_gpus(number)
            if used_up and 0 < room <= self._share() and not self._take(number, room):
                return None
        return self._chosen if self._done() else None

    def over_few_nodes(self) -> Mapping[int, int] | None:
        """Place the job on the fewest nodes; the last chunks go where they fit most tightly."""
        if not self._on_required_nodes():
            return None
        while not self._done():
            share = self._share()
            number = self._tightest(share)
            if number is None:
                number = self._roomiest()
            if number is None or not self._take(number, self._room(number)):
                return None
        return self._chosen

    def at_random(self) -> Mapping[int, int] | None:
        """Place each chunk on the first node with room at or after a randomly drawn node.

        The draws are seeded with the state of the free resources, so equal states give equal
        placements.
        """
        if not self._on_required_nodes():
            return None
        roomy = self._free.with_free_gpus(self._nodes, self._request.chunk.gpu_count)
        draws = draws_from(self._free.mark, len(self._free.names))
        while self._left > 0:
            if len(self._chosen) == self._request.max_nodes:
                roomy &= node_set(self._chosen)
            if not roomy:
                return None
            number = first_from(roomy, next(draws))
            held = self._chosen.get(number, 0)
            if self._room(number) > held:
                self._chosen[number] = held + 1
                self._left -= 1
            else:
                roomy &= ~(1 << number)
        return self._chosen if self._done() else None

    def _done(self) -> bool:
        return self._left <= 0 and len(self._chosen) >= self._request.min_nodes

    def _room(self, number: int) -> int:
        return self._free.chunks_that_fit(number, self._request)

    def _share(self) -> int:
        """Most chunks the next node may take so that one is left for each further required node."""
        return self._left - max(0, self._request.min_nodes - len(self._chosen) - 1)

    def _take(self, number: int, room: int) -> bool:
        """Put chunks on a node if it has room; False if the job cannot be placed any more."""
        if room <= 0:
            return True
        share = self._share()
        if share <= 0 or len(self._chosen) == self._request.max_nodes:
            return False
        self._chosen[number] = min(share, room)
        self._left -= self._chosen[number]
        self._nodes &= ~(1 << number)
        return True

    def _on_required_nodes(self) -> bool:
        """Put chunks on the required nodes; False if that is impossible."""
        if not self._request.required_nodes:
            return True
        required = self._free.nodes(self._request.required_nodes)
        if required & ~self._nodes or required.bit_count() < len(self._request.required_nodes):
            return False
        for number in numbers(required):
            if self._room(number) <= 0 or not self._take(number, self._room(number)):
                return False
        return True

    def _tightest(self, share: int) -> int | None:
        """Return the node with the fewest free GPUs that can take the whole share."""
        gpus = share * self._request.chunk.gpu_count
        for number in self._free.fullest_first(self._nodes, gpus):
            if self._room(number) >= share > 0:
                return number
        return None

    def _roomiest(self) -> int | None:
        """Return the node with room for the most chunks; ties go to the fewest free GPUs."""
        gpus = self._request.chunk.gpu_count
        per_node = min(self._request.chunks, self._request.max_chunks_per_node or math.inf)
        best, most = None, 0
        for count, idle, busy in self._free.emptiest_first(self._nodes):
            bound = min(per_node, count // gpus) if gpus else per_node
            if bound < max(1, most):
                break
            here, room = self._roomiest_of((idle, busy), bound)
            if here is not None and room >= most:
                best, most = here, room
        return best

    def _roomiest_of(self, groups: Iterable[NodeSet], bound: float) -> tuple[int | None, int]:
        """Return the first of these nodes with room for the most chunks, and that number."""
        best, most = None, 0
        for nodes in groups:
            for number in numbers(nodes):
                room = self._room(number)
                if room > most:
                    best, most = number, room
                if room >= bound:
                    return best, most
        return best, most
