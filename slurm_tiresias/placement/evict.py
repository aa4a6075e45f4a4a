"""Who would have to leave so that a job can start: the fewest and the least important."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from slurm_tiresias.model import Allocation, PlacementStyle, Request
from slurm_tiresias.placement.choose import fits, goes_by_count, place
from slurm_tiresias.placement.pool import NodeSet, Pool, lowest, node_set, numbers
from slurm_tiresias.placement.seats import (
    Appeal,
    Offers,
    Tenant,
    backwards,
    rank_of,
    widest_stay,
)
from slurm_tiresias.placement.tenancy import Tenancy
from slurm_tiresias.policy.standing import Key


@dataclass(frozen=True, slots=True)
class Eviction:
    """A feasible start: where the job goes, and who leaves for it. No tenant leaves in vain."""

    allocation: Allocation
    tenants: tuple[Tenant, ...]


def find_eviction(
    appeal: Appeal, pool: Pool, tenancy: Tenancy, last_resort: NodeSet = 0
) -> Eviction | None:
    """Make room for a job by the cheapest set of tenants found, or None where even all do not do.

    The pool is left as it was.
    """
    room = _Room(appeal, pool, last_resort)
    if not room.has_required_nodes():
        return None
    if room.fits():
        return room.eviction_of([])
    if is_divisible(appeal):
        return _from_anywhere(appeal, pool, tenancy, room)
    return _node_by_node(appeal, pool, tenancy, room)


def is_divisible(appeal: Appeal) -> bool:
    """Whether any GPUs at all will do, so that it does not matter on which nodes they get free."""
    request = appeal.request
    if request.chunk.gpu_count != 1 or request.exclusive:
        return False
    on_one_node = appeal.nodes.bit_count() == 1
    at_will = on_one_node or (
        appeal.style is not PlacementStyle.CONSOLIDATE and request.max_nodes is None
    )
    bound = request.required_nodes or request.min_nodes > 1 or request.max_chunks_per_node
    return request.chunks == 1 or (at_will and not bound)


class _Room:
    """Whether a job would fit as things stand."""

    def __init__(self, appeal: Appeal, pool: Pool, last_resort: NodeSet) -> None:
        self._request, self._style, self._nodes = appeal.request, appeal.style, appeal.nodes
        self._pool = pool
        self._last_resort = last_resort
        self._counting = is_divisible(appeal) and goes_by_count(appeal.request)
        self._needs_no_other = self._request.min_nodes == 1 and not self._request.required_nodes

    def has_required_nodes(self) -> bool:
        required = self._request.required_nodes
        nodes = self._pool.nodes(required)
        return not nodes & ~self._nodes and nodes.bit_count() == len(required)

    def fits(self, nodes: NodeSet | None = None) -> bool:
        if self._counting and self.missing_gpus() > 0:
            return False
        if nodes is not None and nodes.bit_count() == 1 and self._needs_no_other:
            return self._pool.chunks_that_fit(lowest(nodes), self._request) >= self._request.chunks
        return fits(self._request, self._nodes if nodes is None else nodes, self._pool)

    def eviction_of(self, tenants: Iterable[Tenant]) -> Eviction:
        """The start of a job that fits, now that these are gone."""
        allocation = place(self._request, self._nodes, self._pool, self._style, self._last_resort)
        assert allocation is not None
        return Eviction(allocation, tuple(sorted(tenants, key=rank_of)))

    def missing_gpus(self) -> int:
        """GPUs that must get free before the job can fit at all."""
        wanted = self._request.chunks * self._request.chunk.gpu_count
        return wanted - self._pool.gpus_free(self._nodes)


# Where any GPUs will do


def _from_anywhere(appeal: Appeal, pool: Pool, tenancy: Tenancy, room: _Room) -> Eviction | None:
    """The lowest levels first; of a level, those that disturb the fewest GPUs; then the last."""
    leaving: list[Tenant] = []
    try:
        for tenant in _least_disturbing(appeal, tenancy, room):
            pool.give(tenant.allocation)
            leaving.append(tenant)
            if room.fits():
                return _sweep(pool, leaving, room)
        return None
    finally:
        for tenant in leaving:
            pool.take(tenant.allocation)


def _least_disturbing(appeal: Appeal, tenancy: Tenancy, room: _Room) -> Iterator[Tenant]:
    """Tenants one by one; what is still missing is looked at anew before each."""
    for widths in tenancy.below(appeal.level):
        while widths:
            missing = room.missing_gpus()
            narrow = [gpus for gpus in widths if gpus <= missing]
            gpus = narrow[-1] if narrow else next(iter(widths))
            tenant = next(
                (t for t in widths[gpus] if t.nodes & appeal.nodes and appeal.may_leave(t)), None
            )
            if tenant is None:
                del widths[gpus]
            else:
                yield tenant


def _sweep(pool: Pool, leaving: list[Tenant], room: _Room) -> Eviction:
    """Put back each that is not needed, the most important first. All together must do.

    Those that stay are taken out of ``leaving``, and hold their GPUs again.
    """
    for tenant in sorted(leaving, key=rank_of):
        if len(leaving) == 1:
            break  # the job did not fit with nobody gone
        pool.take(tenant.allocation)
        if room.fits():
            leaving.remove(tenant)
        else:
            pool.give(tenant.allocation)
    return room.eviction_of(leaving)


# Where it matters which nodes get free


def _node_by_node(appeal: Appeal, pool: Pool, tenancy: Tenancy, room: _Room) -> Eviction | None:
    """Nodes are collected cheapest first until the job fits; then those not needed are put back."""

    def leaving(number: int) -> list[Tenant]:
        return [tenant for tenant in tenancy.on(number) if appeal.may_leave(tenant)]

    offers = tenancy.seats().offers(appeal)
    for enough in _ever_more_nodes(appeal.request, pool, offers):
        involved = {t.job_id: t for number in numbers(enough) for t in leaving(number)}.values()
        with _evicted(pool, involved):
            if not room.fits(enough):
                continue
            sweeps = [
                _stripped(pool, sorted(involved, key=stay), lambda: room.fits(enough))  # noqa: B023
                for stay in (widest_stay, rank_of)
            ]
        needed = min(sweeps, key=_disturbance)
        if len(needed) > 1:
            # One that spans nodes frees room elsewhere too: the job may now fit without the others.
            with _evicted(pool, needed):
                needed = _stripped(pool, sorted(needed, key=rank_of), room.fits)
        with _evicted(pool, needed):
            return room.eviction_of(needed)
    return None


def _ever_more_nodes(request: Request, pool: Pool, offers: Offers) -> Iterator[NodeSet]:
    """Sets of nodes to try: single ones that suffice, then more and more of the cheapest."""
    if request.min_nodes == 1 and len(request.required_nodes) <= 1:
        yield from (1 << number for number, _ in offers.cheapest_first(request.chunks))
    if offers.chunks < request.chunks:
        return
    cheapest = offers.cheapest_first()
    nodes, chunks = [], 0
    for number, here in cheapest:
        nodes.append(number)
        chunks += here
        if chunks >= request.chunks and len(nodes) >= request.min_nodes:
            break
    more = nodes
    while more:
        yield pool.nodes(request.required_nodes) | node_set(nodes)
        more = [number for number, _ in islice(cheapest, len(nodes))]
        nodes += more


def _stripped(
    pool: Pool, tenants: Sequence[Tenant], fits: Callable[[], bool]
) -> tuple[Tenant, ...]:
    """Those of the evicted tenants that are needed: each, in this order, is put back if it can be.

    The pool, in which all of them are gone, is left as it was.
    """
    leaving: list[Tenant] = []
    staying: list[Tenant] = []
    for tenant in tenants:
        pool.take(tenant.allocation)
        if fits():
            staying.append(tenant)
        else:
            pool.give(tenant.allocation)
            leaving.append(tenant)
    for tenant in staying:
        pool.give(tenant.allocation)
    return tuple(leaving)


def _disturbance(tenants: Collection[Tenant]) -> tuple[Key, int, int]:
    """What leaving does to these tenants; less is better. The lowest levels count least."""
    best = min((tenant.rank.level for tenant in tenants), default=())
    return (backwards(best), sum(tenant.gpus for tenant in tenants), len(tenants))


def disturbance(eviction: Eviction) -> tuple[Key, int, int]:
    """What an eviction does to others, to compare it with another."""
    return _disturbance(eviction.tenants)


@contextmanager
def _evicted(pool: Pool, tenants: Collection[Tenant]) -> Iterator[None]:
    """Hold a pool as if these tenants were gone, and put them back."""
    for tenant in tenants:
        pool.give(tenant.allocation)
    try:
        yield
    finally:
        for tenant in tenants:
            pool.take(tenant.allocation)
