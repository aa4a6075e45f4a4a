"""Which of the nodes that have room a job gets (paper section 3.3, pages 491-492)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from slurm_tiresias.config import PlacementConfig
from slurm_tiresias.model import Allocation, Job, Node, PlacementStyle, Request
from slurm_tiresias.placement.features import matches
from slurm_tiresias.placement.pool import Pool, chunks_that_fit


def style_of(job: Job, config: PlacementConfig) -> PlacementStyle:
    """Consolidate skewed models, spread the others (page 491: S_J > PACKLIMIT)."""
    if job.style is not None:
        return job.style
    if job.skew is None:
        return PlacementStyle(config.unknown_model)
    skewed = job.skew > config.pack_limit
    return PlacementStyle.CONSOLIDATE if skewed else PlacementStyle.SPREAD


def node_sets(request: Request, nodes: Iterable[Node]) -> list[list[str]]:
    """The nodes that Slurm would let the job run on: one set for each of its partitions.

    A job that names several partitions runs in one of them; sets that are alike come once, and
    empty ones not at all.
    """
    able = [
        node
        for node in nodes
        if node.name not in request.excluded_nodes and matches(request.features, node.features)
    ]
    sets = ([n.name for n in able if partition in n.partitions] for partition in request.partitions)
    return [list(names) for names in dict.fromkeys(map(tuple, sets)) if names]


def on_one_node_if_any_can(request: Request, nodes: Sequence[Node]) -> Request:
    """The request of what may be one task, kept from being split where a node could take it."""
    totals = {node.name: node.total for node in nodes}
    allowed = {name for names in node_sets(request, nodes) for name in names}
    if any(chunks_that_fit(totals[name], request) >= request.chunks for name in allowed):
        return replace(request, max_nodes=1)
    return request


def place(
    request: Request,
    nodes: Collection[str],
    pool: Pool,
    style: PlacementStyle,
    last_resort: Collection[str] = (),
) -> Allocation | None:
    """Lay a job over ``nodes``, or None where it does not fit.

    ``last_resort`` names nodes that are used only where no others do (they are still cleaning up
    after somebody).
    """
    room = {node: chunks for node in nodes if (chunks := pool.chunks_that_fit(node, request)) > 0}
    fresh = {node: chunks for node, chunks in room.items() if node not in last_resort}
    for candidates in (fresh, room) if len(fresh) < len(room) else (room,):
        chosen = _choose(request, candidates, pool, style)
        if chosen is not None:
            return pool.lay(chosen, request)
    return None


def place_on_any(
    request: Request,
    sets: Iterable[Collection[str]],
    pool: Pool,
    style: PlacementStyle,
    last_resort: Collection[str] = (),
) -> Allocation | None:
    """Lay a job over the first of these sets of nodes (``node_sets``) that has room for it."""
    places = (place(request, nodes, pool, style, last_resort) for nodes in sets)
    return next(filter(None, places), None)


def _choose(
    request: Request, room: Mapping[str, int], pool: Pool, style: PlacementStyle
) -> Mapping[str, int] | None:
    if not request.required_nodes <= room.keys():
        return None
    if style is PlacementStyle.SPREAD:
        spread = _fill(request, room, _fragments_first(room, pool))
        if spread is not None:
            return spread
    return _consolidate(request, room, pool)


def _fragments_first(room: Mapping[str, int], pool: Pool) -> list[str]:
    """Nodes in the order that leaves whole nodes to those who need them."""
    return sorted(room, key=lambda node: (pool.is_idle(node), pool.free_gpus(node), node))


def _consolidate(request: Request, room: Mapping[str, int], pool: Pool) -> Mapping[str, int] | None:
    """Fewest nodes; among those the tightest fit for what is left over."""
    largest_first = sorted(
        room,
        key=lambda node: (-room[node], pool.free_gpus(node), not pool.is_idle(node), node),
    )
    return _fill(request, room, largest_first, tightest=pool)


def _fill(
    request: Request,
    room: Mapping[str, int],
    order: Iterable[str],
    tightest: Pool | None = None,
) -> dict[str, int] | None:
    """Take nodes in this order, required ones first, until all chunks have a place.

    With ``tightest`` the node that takes the rest is the one with the least to spare.
    """
    waiting = [
        *sorted(request.required_nodes),
        *(n for n in order if n not in request.required_nodes),
    ]
    chosen: dict[str, int] = {}
    left = request.chunks
    while left > 0 or len(chosen) < request.min_nodes:
        if not waiting or len(chosen) == request.max_nodes:
            return None
        share = left - max(0, request.min_nodes - len(chosen) - 1)
        if share <= 0:
            return None
        node = waiting[0]
        if tightest is not None and node not in request.required_nodes and room[node] >= share:
            enough = (n for n in waiting if room[n] >= share)
            node = min(enough, key=lambda n: (tightest.free_gpus(n), n))
        waiting.remove(node)
        chosen[node] = min(share, room[node])
        left -= chosen[node]
    return None if any(node not in chosen for node in request.required_nodes) else chosen
