"""Who would have to leave so that a job can start: the fewest and the least important."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from slurm_tiresias.model import Allocation, PlacementStyle, Request
from slurm_tiresias.placement.choose import place
from slurm_tiresias.placement.pool import Pool


@dataclass(frozen=True, slots=True)
class Tenant:
    """A running job that may be asked to leave. A larger ``rank`` is a job further back."""

    job_id: str
    tier: int
    rank: int
    allocation: Allocation

    @property
    def gpus(self) -> int:
        return sum(amount.gpu_count for amount in self.allocation.values())


@dataclass(frozen=True, slots=True)
class Eviction:
    """A feasible start: where the job goes, and who leaves for it. No tenant leaves in vain."""

    allocation: Allocation
    tenants: tuple[Tenant, ...]


@dataclass(frozen=True, slots=True)
class _Offer:
    """What one node could give, and the tenants that would have to leave it."""

    node: str
    chunks: int
    leaving: tuple[Tenant, ...]

    def cost(self) -> tuple[float, ...]:
        """Idle room first; then the lowest tiers; then the fewest GPUs disturbed per chunk."""
        if not self.leaving:
            return (0.0,)
        return (
            1.0,
            -min(tenant.tier for tenant in self.leaving),
            sum(tenant.gpus for tenant in self.leaving) / self.chunks,
            len(self.leaving) / self.chunks,
            -min(tenant.rank for tenant in self.leaving),
        )


def find_eviction(
    request: Request,
    nodes: Collection[str],
    pool: Pool,
    tenants: Sequence[Tenant],
    style: PlacementStyle,
    last_resort: Collection[str] = (),
) -> Eviction | None:
    """Make room for a job by the cheapest set of tenants found, or None where even all do not do.

    The pool is left as it was. Nodes are collected cheapest first until the job fits; then every
    tenant that turns out not to be needed is put back, the most important first.
    """

    def fits(on: Collection[str]) -> Allocation | None:
        return place(request, on, pool, style, last_resort)

    here = [tenant for tenant in tenants if not tenant.allocation.keys().isdisjoint(nodes)]
    with _evicted(pool, here):
        if fits(nodes) is None:
            return None
    enough = _enough_nodes(request, nodes, pool, here, fits)
    involved = [tenant for tenant in here if not tenant.allocation.keys().isdisjoint(enough)]
    sweeps = (_widest_stay, _most_important_stay)
    evictions = [_sweep(pool, sorted(involved, key=keep), lambda: fits(enough)) for keep in sweeps]
    cheapest = min(evictions, key=_disturbance)
    # A tenant that spans nodes frees room elsewhere too: the job may now fit without the others.
    return _sweep(pool, sorted(cheapest.tenants, key=_most_important_stay), lambda: fits(nodes))


def _enough_nodes(
    request: Request,
    nodes: Collection[str],
    pool: Pool,
    tenants: Sequence[Tenant],
    fits: Callable[[Collection[str]], Allocation | None],
) -> Collection[str]:
    """The fewest of the cheapest nodes on which the job fits once their tenants have left.

    Where a single node can take the whole job, a single node does.
    """
    by_node: dict[str, list[Tenant]] = {node: [] for node in nodes}
    for tenant in tenants:
        for node in tenant.allocation.keys() & by_node.keys():
            by_node[node].append(tenant)
    made = (_offer(request, node, pool, by_node[node]) for node in nodes)
    offers = sorted((offer for offer in made if offer), key=lambda o: (o.cost(), o.node))
    with _evicted(pool, tenants):
        if request.min_nodes == 1:
            for offer in offers:
                if offer.chunks == request.chunks and fits([offer.node]) is not None:
                    return [offer.node]
        enough = sorted(request.required_nodes)
        for offer in offers:
            enough.append(offer.node)
            if fits(enough) is not None:
                return enough
    return nodes


def _offer(request: Request, node: str, pool: Pool, tenants: Sequence[Tenant]) -> _Offer | None:
    """The fewest tenants of one node that must leave for it to give all that it can."""
    with _evicted(pool, tenants):
        chunks = pool.chunks_that_fit(node, request)
    if chunks == 0:
        return None

    def gives_all() -> Allocation | None:
        return {} if pool.chunks_that_fit(node, request) >= chunks else None

    eviction = _sweep(pool, sorted(tenants, key=_widest_stay), gives_all)
    return _Offer(node, chunks, eviction.tenants)


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
    return (tenant.tier, -tenant.gpus, tenant.rank)


def _most_important_stay(tenant: Tenant) -> tuple[int, ...]:
    return (tenant.tier, tenant.rank)


def _disturbance(eviction: Eviction) -> tuple[int, ...]:
    tenants = eviction.tenants
    return (
        -min((tenant.tier for tenant in tenants), default=0),
        sum(tenant.gpus for tenant in tenants),
        len(tenants),
    )


class _evicted:  # noqa: N801  (reads as a phrase: with _evicted(pool, tenants))
    """Hold a pool as if these tenants were gone, and put them back."""

    def __init__(self, pool: Pool, tenants: Iterable[Tenant]) -> None:
        self._pool = pool
        self._tenants = list(tenants)

    def __enter__(self) -> None:
        for tenant in self._tenants:
            self._pool.give(tenant.allocation)

    def __exit__(self, *_: object) -> None:
        for tenant in self._tenants:
            self._pool.take(tenant.allocation)
