"""Waiting jobs that Slurm tries before others, for their partitions have a higher PriorityTier.

Slurm gives what becomes idle to such a job first. Where it does not fit, backfilling plans the
nodes on which it can start soonest, and starts on those only jobs that end before (``schedule()``
in src/slurmctld/job_scheduler.c, and sched/backfill). So a job of a lower PriorityTier is kept off
the nodes of a job that would take what is freed for it, and off planned nodes that it would not
leave in time. Pure: no I/O and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from slurm_tiresias.model import Allocation, Node, PlacementStyle, Request
from slurm_tiresias.placement.choose import place_on_any
from slurm_tiresias.placement.free_resources import FreeResources, NodeSet, numbers
from slurm_tiresias.placement.node_index import NodeIndex

MOST_PLANNED = 8
"""So many different requests are planned for, the first in line."""

STEPS_LOOKED_AT = 32
"""After so many ends of jobs a plan is looked for after twice as many each time."""


class Holder(NamedTuple):
    """A running job, and when it ends at the latest."""

    allocation: Allocation
    ends_s: float


class Contender(NamedTuple):
    """A waiting job, and the PriorityTier in which Slurm tries it."""

    request: Request
    priority_tier: int


@dataclass(frozen=True, slots=True)
class _Planned:
    priority_tier: int
    gpus: int
    idle_gpus: int
    """GPUs that it could take now if they were enough."""
    most_more: int
    """GPUs that a victim may free there beyond those for which it is preempted."""
    nodes: frozenset[str]
    """Those that may serve it."""
    planned: frozenset[str]
    """Those on which it can start soonest."""
    starts_s: float


class TriedFirst:
    """The jobs that Slurm tries first in one observation, and what they keep others from."""

    def __init__(
        self, nodes: Iterable[Node], holders: Iterable[Holder], first: Sequence[Contender]
    ) -> None:
        """``first``: the jobs in the order in which Slurm tries them."""
        self._planned: list[_Planned] = []
        everywhere = tuple(nodes)
        alike: dict[Hashable, Contender] = {}
        for one in first:
            alike.setdefault((one.request.shape, one.priority_tier), one)
        node_index = NodeIndex(everywhere)
        by_end = sorted(holders, key=lambda holder: holder.ends_s)
        for one in islice(alike.values(), MOST_PLANNED):
            free = FreeResources(everywhere)
            for holder in by_end:
                free.take(holder.allocation)
            self._planned.append(_plan(one, node_index, free, by_end))

    def kept_from(self, request: Request, priority_tier: int, ends_s: float) -> frozenset[str]:
        """The nodes on which a job that ends by then would not be started."""
        kept: frozenset[str] = frozenset()
        for one in self._planned:
            if one.priority_tier <= priority_tier:
                continue
            if one.gpus <= one.idle_gpus + request.gpu_count + one.most_more:
                kept |= one.nodes
            elif ends_s > one.starts_s or ends_s == math.inf:
                kept |= one.planned
        return kept


def _plan(
    one: Contender, node_index: NodeIndex, free: FreeResources, by_end: Sequence[Holder]
) -> _Planned:
    """Where and when a job can start, if every running job lasts as long as it may."""
    request = one.request
    sets = node_index.sets_for(request, node_index.usable)
    nodes: NodeSet = 0
    for some in sets:
        nodes |= some
    spans = request.chunks > 1 and request.max_nodes != 1
    there = {free.names[number] for number in numbers(nodes)}
    idle_gpus = _counted((max(free.free_gpus(number), 0) for number in numbers(nodes)), spans)
    held = ((a.gpu_count for node, a in h.allocation.items() if node in there) for h in by_end)
    widest = max((_counted(gpus, spans) for gpus in held), default=0)
    allocation, starts_s = None, math.inf
    looked_at = 0
    for step, holder in enumerate(by_end, start=1):
        if step - looked_at == 1:
            # The plan begins here at the earliest: it was not there when it was looked for last.
            starts_s = holder.ends_s
        free.give(holder.allocation)
        if step <= STEPS_LOOKED_AT or step >= 2 * looked_at or step == len(by_end):
            allocation = place_on_any(request, sets, free, PlacementStyle.CONSOLIDATE)
            looked_at = step
            if allocation is not None:
                break
    return _Planned(
        one.priority_tier,
        request.gpu_count,
        idle_gpus,
        max(widest - 1, 0),
        frozenset(there),
        frozenset(allocation or ()),
        starts_s if allocation else math.inf,
    )


def _counted(gpus: Iterable[int], spans: bool) -> int:
    """GPUs of several nodes, for a job that may span nodes or must fit on one."""
    return sum(gpus) if spans else max(gpus, default=0)
