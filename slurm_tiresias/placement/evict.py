"""Who would have to leave so that a job can start: the fewest and the least important."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from slurm_tiresias.model import Allocation, PlacementStyle, Request
from slurm_tiresias.placement.choose import place
from slurm_tiresias.placement.pool import Pool


@dataclass(frozen=True, slots=True)
class Tenant:
    """A running job that may be asked to leave.

    ``level`` counts the preemption classes from the best, 0; ``rank`` all jobs.
    """

    job_id: str
    level: int
    rank: int
    allocation: Allocation
    gpus: int


class Tenancy:
    """Who sits on which node while a decision is being made."""

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        self._on: dict[str, list[Tenant]] = {}
        for tenant in tenants:
            for node in tenant.allocation:
                self._on.setdefault(node, []).append(tenant)

    def on(self, node: str) -> Sequence[Tenant]:
        return self._on.get(node, ())

    def leave(self, tenant: Tenant) -> None:
        for node in tenant.allocation:
            self._on[node].remove(tenant)


@dataclass(frozen=True, slots=True)
class Eviction:
    """A feasible start: where the job goes, and who leaves for it. No tenant leaves in vain."""

    allocation: Allocation
    tenants: tuple[Tenant, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """What one node could give at the most, and the tenants that would have to leave it."""

    node: str
    chunks: int
    cost: tuple[float, ...]


@dataclass(slots=True)
class Offers:
    """Offers made to one kind of job, each good until something changes on its node."""

    _made: dict[str, tuple[int, Offer | None]] = field(default_factory=dict)

    def of(self, node: str, stamp: int, make: Callable[[], Offer | None]) -> Offer | None:
        made = self._made.get(node)
        if made is None or made[0] != stamp:
            made = self._made[node] = (stamp, make())
        return made[1]


def find_eviction(
    request: Request,
    nodes: Collection[str],
    pool: Pool,
    tenancy: Tenancy,
    may_leave: Callable[[Tenant], bool],
    style: PlacementStyle,
    last_resort: Collection[str] = (),
    offers: Offers | None = None,
) -> Eviction | None:
    """Make room for a job by the cheapest set of tenants found, or None where even all do not do.

    The pool is left as it was. Nodes are collected cheapest first until the job fits; then every
    tenant that turns out not to be needed is put back, the most important first. ``offers`` may be
    kept between calls for jobs that ask alike and may evict the same tenants.
    """

    def fits(on: Collection[str]) -> Allocation | None:
        return place(request, on, pool, style, last_resort)

    def leaving(on: Collection[str]) -> list[Tenant]:
        found = {t.job_id: t for node in on for t in tenancy.on(node) if may_leave(t)}
        return list(found.values())

    if not request.required_nodes <= set(nodes):
        return None
    kept = offers if offers is not None else Offers()
    made = (
        kept.of(node, pool.stamp(node), lambda n=node: _offer(request, n, pool, leaving([n])))  # type: ignore[misc]
        for node in nodes
    )
    cheapest = sorted((offer for offer in made if offer), key=lambda o: (o.cost, o.node))
    for enough in _ever_more_nodes(request, cheapest):
        involved = leaving(enough)
        with _evicted(pool, involved):
            if fits(enough) is None:
                continue
        sweeps = [
            _sweep(pool, sorted(involved, key=keep), lambda: fits(enough))  # noqa: B023
            for keep in (_widest_stay, _most_important_stay)
        ]
        tenants = min(sweeps, key=disturbance).tenants
        # One that spans nodes frees room elsewhere too: the job may now fit without the others.
        return _sweep(pool, sorted(tenants, key=_most_important_stay), lambda: fits(nodes))
    return None


def _ever_more_nodes(request: Request, cheapest: Sequence[Offer]) -> Iterator[Collection[str]]:
    """Sets of nodes to try: single ones that suffice, then more and more of the cheapest."""
    if request.min_nodes == 1 and len(request.required_nodes) <= 1:
        yield from ([offer.node] for offer in cheapest if offer.chunks >= request.chunks)
    required = sorted(request.required_nodes)
    count, chunks = 0, 0
    while count < len(cheapest) and (chunks < request.chunks or count < request.min_nodes):
        chunks += cheapest[count].chunks
        count += 1
    if chunks < request.chunks:
        return
    while True:
        yield list(dict.fromkeys([*required, *(offer.node for offer in cheapest[:count])]))
        if count >= len(cheapest):
            return
        count = min(2 * count, len(cheapest))


def _offer(request: Request, node: str, pool: Pool, tenants: Sequence[Tenant]) -> Offer | None:
    """All that a node can give, for the fewest tenants leaving it."""
    leaving = sorted(tenants, key=_widest_stay)
    most = pool.chunks_without(node, request, leaving)
    if most == 0:
        return None
    for tenant in list(leaving):
        others = [other for other in leaving if other is not tenant]
        if pool.chunks_without(node, request, others) == most:
            leaving = others
    return Offer(node, most, _cost(leaving, most))


def _cost(leaving: Sequence[Tenant], chunks: int) -> tuple[float, ...]:
    """Idle room first; then the lowest levels; then the fewest GPUs disturbed per chunk."""
    if not leaving:
        return (0.0,)
    return (
        1.0,
        -min(tenant.level for tenant in leaving),
        sum(tenant.gpus for tenant in leaving) / chunks,
        len(leaving) / chunks,
        -min(tenant.rank for tenant in leaving),
    )


def _sweep(
    pool: Pool, tenants: Sequence[Tenant], fits: Callable[[], Allocation | None]
) -> Eviction:
    """Evict all, then put back, in this order, each that is not needed. All together must do."""
    leaving: list[Tenant] = []
    with _evicted(pool, tenants):
        allocation = fits()
        assert allocation is not None
        for tenant in tenants:
            pool.take(tenant.allocation)
            still = fits()
            if still is None:
                pool.give(tenant.allocation)
                leaving.append(tenant)
            else:
                allocation = still
        for tenant in tenants:
            if tenant not in leaving:
                pool.give(tenant.allocation)
    return Eviction(allocation, tuple(sorted(leaving, key=lambda tenant: tenant.rank)))


def _widest_stay(tenant: Tenant) -> tuple[int, ...]:
    return (tenant.level, -tenant.gpus, tenant.rank)


def _most_important_stay(tenant: Tenant) -> tuple[int, ...]:
    return (tenant.level, tenant.rank)


def disturbance(eviction: Eviction) -> tuple[int, ...]:
    """What an eviction does to others; less is better. The lowest levels count least."""
    tenants = eviction.tenants
    return (
        -min((tenant.level for tenant in tenants), default=0),
        sum(tenant.gpus for tenant in tenants),
        len(tenants),
    )


@contextmanager
def _evicted(pool: Pool, tenants: Sequence[Tenant]) -> Iterator[None]:
    """Hold a pool as if these tenants were gone, and put them back."""
    for tenant in tenants:
        pool.give(tenant.allocation)
    try:
        yield
    finally:
        for tenant in tenants:
            pool.take(tenant.allocation)
