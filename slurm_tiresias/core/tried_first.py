"""Waiting jobs that Slurm tries first because their partitions have a higher PriorityTier.

Slurm offers idle resources to these jobs first. If one does not fit, backfill plans the nodes on
which it can start soonest, and lets other jobs start there only if they end before (``schedule()``
in src/slurmctld/job_scheduler.c, and sched/backfill). So a job of a lower PriorityTier must avoid
nodes where a job of a higher one would take the GPUs that are freed for it, and planned nodes that
it would not leave in time. Pure: no I/O and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from slurm_tiresias.core.placement.choose import place_on_any
from slurm_tiresias.core.placement.free_resources import FreeResources
from slurm_tiresias.core.placement.node_index import NodeIndex
from slurm_tiresias.core.placement.node_set import NodeSet, numbers
from slurm_tiresias.model import Allocation, Node, PlacementStyle, Request

MOST_PLANNED = 8
"""Number of different requests that are planned for, in the order in which Slurm tries them."""

STEPS_LOOKED_AT = 32
"""Placement is tried after each of the first 32 job ends, then after twice as many each time."""


class Holder(NamedTuple):
    """The allocation of a running job, and its latest end time."""

    allocation: Allocation
    ends_s: float


class Contender(NamedTuple):
    """The request of a waiting job, and the PriorityTier of its partition."""

    request: Request
    priority_tier: int


@dataclass(frozen=True, slots=True)
class _Planned:
    priority_tier: int
    gpus: int
    free_gpus: int
    """Idle GPUs on its nodes; on the single best node if the job must fit on one."""
    most_more: int
    """Most GPUs that a victim may free on its nodes beyond those needed by the preemptor."""
    nodes: frozenset[str]
    """The nodes that the job may use."""
    planned: frozenset[str]
    """The nodes on which it can start soonest."""
    starts_s: float


class TriedFirst:
    """The jobs that Slurm tries first in one observation, and the nodes they block for others."""

    def __init__(
        self, nodes: Iterable[Node], holders: Iterable[Holder], first: Sequence[Contender]
    ) -> None:
        """``first`` lists the jobs in the order in which Slurm tries them."""
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
        """Return the nodes on which Slurm would not start a job with this request, PriorityTier and
        latest end time."""
        kept: frozenset[str] = frozenset()
        for one in self._planned:
            if one.priority_tier <= priority_tier:
                continue
            if one.gpus <= one.free_gpus + request.gpu_count + one.most_more:
                kept |= one.nodes
            elif ends_s > one.starts_s or ends_s == math.inf:
                kept |= one.planned
        return kept


def _plan(
    one: Contender, node_index: NodeIndex, free: FreeResources, by_end: Sequence[Holder]
) -> _Planned:
    """Plan where and when a job can start if every running job uses its whole time limit."""
    request = one.request
    sets = node_index.sets_for(request, node_index.usable)
    nodes: NodeSet = 0
    for some in sets:
        nodes |= some
    spans = request.chunks > 1 and request.max_nodes != 1
    there = {free.names[number] for number in numbers(nodes)}
    free_gpus = _counted((max(free.free_gpus(number), 0) for number in numbers(nodes)), spans)
    held = ((a.gpu_count for node, a in h.allocation.items() if node in there) for h in by_end)
    widest = max((_counted(gpus, spans) for gpus in held), default=0)
    allocation, starts_s = None, math.inf
    looked_at = 0
    for step, holder in enumerate(by_end, start=1):
        if step - looked_at == 1:
            # The job did not fit at the last try, so this end is its earliest possible start.
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
        free_gpus,
        max(widest - 1, 0),
        frozenset(there),
        frozenset(allocation or ()),
        starts_s if allocation else math.inf,
    )


def _counted(gpus: Iterable[int], spans: bool) -> int:
    """Sum the GPUs for a job that may span nodes; take the maximum for one that may not."""
    return sum(gpus) if spans else max(gpus, default=0)
