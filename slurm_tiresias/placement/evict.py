"""Who would have to leave so that a job can start: the fewest and the least important."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from slurm_tiresias.model import Allocation, PlacementStyle, Request
from slurm_tiresias.placement.choose import goes_by_count, place
from slurm_tiresias.placement.pool import NodeSet, Pool, numbers
from slurm_tiresias.policy.standing import Key, Rank


@dataclass(slots=True, eq=False)
class Tenant:
    """A running job that may be asked to leave, unless it is guarded."""

    rank: Rank
    allocation: Allocation
    nodes: NodeSet
    gpus: int
    guarded: bool = False

    @property
    def job_id(self) -> str:
        return self.rank.job_id

    @property
    def level(self) -> Key:
        return self.rank.level


class Tenancy:
    """Who sits where, by node and by level.

    Most jobs come and go without anybody asking for their room: tenants are filed only when
    somebody does.
    """

    def __init__(self, pool: Pool, tenants: Iterable[Tenant] = ()) -> None:
        self._new: dict[str, Tenant] = {tenant.job_id: tenant for tenant in tenants}
        self._on: list[dict[str, Tenant]] = [{} for _ in pool.names]
        self._levels: dict[Key, dict[int, list[tuple[Rank, Tenant]]]] = {}
        self._gpus: dict[Key, int] = {}

    def enter(self, tenant: Tenant) -> None:
        self._new[tenant.rank.job_id] = tenant

    def leave(self, tenant: Tenant) -> None:
        if self._new.pop(tenant.rank.job_id, None) is None:
            self._take_off_file(tenant)

    def on(self, number: int) -> Collection[Tenant]:
        self._file_new()
        return self._on[number].values()

    def gpus_below(self, level: Key) -> int:
        """GPUs held by jobs of lower levels, guarded or not."""
        if self._new:
            self._file_new()
        below = 0
        for other, gpus in self._gpus.items():
            if other > level:
                below += gpus
        return below

    def below(self, level: Key) -> Iterator[dict[int, Iterator[Tenant]]]:
        """For each lower level, the lowest first: its tenants by GPUs, the last of them first."""
        self._file_new()
        for other in sorted((other for other in self._levels if other > level), reverse=True):
            widths = self._levels[other]
            yield {gpus: (t for _, t in reversed(widths[gpus])) for gpus in sorted(widths)}

    def _file_new(self) -> None:
        for tenant in self._new.values():
            for number in numbers(tenant.nodes):
                self._on[number][tenant.job_id] = tenant
            level = tenant.rank.level
            alike = self._levels.setdefault(level, {}).setdefault(tenant.gpus, [])
            insort(alike, (tenant.rank, tenant))
            self._gpus[level] = self._gpus.get(level, 0) + tenant.gpus
        self._new.clear()

    def _take_off_file(self, tenant: Tenant) -> None:
        for number in numbers(tenant.nodes):
            del self._on[number][tenant.job_id]
        level = tenant.rank.level
        widths = self._levels[level]
        alike = widths[tenant.gpus]
        del alike[bisect_left(alike, (tenant.rank,))]
        self._gpus[level] -= tenant.gpus
        if not alike:
            del widths[tenant.gpus]
            if not widths:
                del self._levels[level], self._gpus[level]


@dataclass(frozen=True, slots=True)
class Eviction:
    """A feasible start: where the job goes, and who leaves for it. No tenant leaves in vain."""

    allocation: Allocation
    tenants: tuple[Tenant, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """What one node could give at the most, and what that would do to its tenants."""

    number: int
    chunks: int
    cost: tuple[float, ...]


@dataclass(slots=True)
class Offers:
    """Offers made to one kind of job, each good until something changes on its node."""

    _made: dict[int, tuple[int, Offer | None]] = field(default_factory=dict)

    def of(self, number: int, stamp: int, make: Callable[[int], Offer | None]) -> Offer | None:
        made = self._made.get(number)
        if made is None or made[0] != stamp:
            made = self._made[number] = (stamp, make(number))
        return made[1]


@dataclass(frozen=True, slots=True)
class Appeal:
    """A job of some level asks for room on some nodes; with ``even_guarded`` of the guarded too."""

    request: Request
    style: PlacementStyle
    nodes: NodeSet
    level: Key
    even_guarded: bool = False

    def may_leave(self, tenant: Tenant) -> bool:
        return tenant.rank.level > self.level and (self.even_guarded or not tenant.guarded)


def find_eviction(
    appeal: Appeal,
    pool: Pool,
    tenancy: Tenancy,
    last_resort: NodeSet = 0,
    offers: Offers | None = None,
) -> Eviction | None:
    """Make room for a job by the cheapest set of tenants found, or None where even all do not do.

    The pool is left as it was. ``offers`` may be kept between calls that differ in nothing.
    """
    room = _Room(appeal, pool, last_resort)
    if not room.has_required_nodes():
        return None
    if room.fits():
        return room.eviction_of([])
    if is_divisible(appeal):
        return _from_anywhere(appeal, pool, tenancy, room)
    return _node_by_node(appeal, pool, tenancy, room, offers if offers is not None else Offers())


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

    def has_required_nodes(self) -> bool:
        required = self._request.required_nodes
        nodes = self._pool.nodes(required)
        return not nodes & ~self._nodes and nodes.bit_count() == len(required)

    def place(self, nodes: NodeSet | None = None) -> Allocation | None:
        on = self._nodes if nodes is None else nodes
        return place(self._request, on, self._pool, self._style, self._last_resort)

    def fits(self, nodes: NodeSet | None = None) -> bool:
        if self._counting:
            return self.missing_gpus() <= 0
        return self.place(nodes) is not None

    def eviction_of(self, tenants: Iterable[Tenant]) -> Eviction:
        """The start of a job that fits, now that these are gone."""
        allocation = self.place()
        assert allocation is not None
        return Eviction(allocation, tuple(sorted(tenants, key=_rank_of)))

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
    for tenant in sorted(leaving, key=_rank_of):
        if len(leaving) == 1:
            break  # the job did not fit with nobody gone
        pool.take(tenant.allocation)
        if room.fits():
            leaving.remove(tenant)
        else:
            pool.give(tenant.allocation)
    return room.eviction_of(leaving)


# Where it matters which nodes get free


def _node_by_node(
    appeal: Appeal, pool: Pool, tenancy: Tenancy, room: _Room, offers: Offers
) -> Eviction | None:
    """Nodes are collected cheapest first until the job fits; then those not needed are put back."""

    def leaving(number: int) -> list[Tenant]:
        return [tenant for tenant in tenancy.on(number) if appeal.may_leave(tenant)]

    def without(number: int, tenants: Collection[Tenant]) -> int:
        return pool.chunks_without(number, appeal.request, tenants)

    def without_by_count(number: int, tenants: Collection[Tenant]) -> int:
        name = pool.names[number]
        gpus = sum(tenant.allocation[name].gpu_count for tenant in tenants)
        free = pool.free_gpus(number) + gpus
        return max(0, min(appeal.request.chunks, free // appeal.request.chunk.gpu_count))

    chunks_without = without_by_count if goes_by_count(appeal.request) else without

    def make(number: int) -> Offer | None:
        return _offer(number, leaving(number), chunks_without)

    made = (offers.of(number, pool.stamp(number), make) for number in numbers(appeal.nodes))
    cheapest = sorted((offer for offer in made if offer), key=lambda o: (o.cost, o.number))
    for enough in _ever_more_nodes(appeal.request, pool, cheapest):
        involved = {t.job_id: t for number in numbers(enough) for t in leaving(number)}.values()
        with _evicted(pool, involved):
            if not room.fits(enough):
                continue
            sweeps = [
                _stripped(pool, sorted(involved, key=stay), lambda: room.fits(enough))  # noqa: B023
                for stay in (_widest_stay, _rank_of)
            ]
        needed = min(sweeps, key=_disturbance)
        # One that spans nodes frees room elsewhere too: the job may now fit without the others.
        with _evicted(pool, needed):
            needed = _stripped(pool, sorted(needed, key=_rank_of), room.fits)
        with _evicted(pool, needed):
            return room.eviction_of(needed)
    return None


def _ever_more_nodes(request: Request, pool: Pool, cheapest: Sequence[Offer]) -> Iterator[NodeSet]:
    """Sets of nodes to try: single ones that suffice, then more and more of the cheapest."""
    if request.min_nodes == 1 and len(request.required_nodes) <= 1:
        yield from (1 << offer.number for offer in cheapest if offer.chunks >= request.chunks)
    required = pool.nodes(request.required_nodes)
    count, chunks = 0, 0
    while count < len(cheapest) and (chunks < request.chunks or count < request.min_nodes):
        chunks += cheapest[count].chunks
        count += 1
    if chunks < request.chunks:
        return
    while True:
        yield required | sum(1 << offer.number for offer in cheapest[:count]) & ~required
        if count >= len(cheapest):
            return
        count = min(2 * count, len(cheapest))


def _offer(
    number: int,
    tenants: Sequence[Tenant],
    chunks_without: Callable[[int, Collection[Tenant]], int],
) -> Offer | None:
    """All that a node can give, for the fewest tenants leaving it."""
    leaving = sorted(tenants, key=_widest_stay)
    most = chunks_without(number, leaving)
    if most == 0:
        return None
    for tenant in list(leaving):
        others = [other for other in leaving if other is not tenant]
        if chunks_without(number, others) == most:
            leaving = others
    return Offer(number, most, _cost(leaving, most))


def _cost(leaving: Sequence[Tenant], chunks: int) -> tuple[float, ...]:
    """Idle room first; then the lowest levels; then the fewest GPUs disturbed per chunk."""
    if not leaving:
        return (0.0,)
    first = min(leaving, key=_rank_of)
    return (
        1.0,
        *_reversed(first.rank.level),
        sum(tenant.gpus for tenant in leaving) / chunks,
        len(leaving) / chunks,
        *_reversed((*first.rank.order, *first.rank.id_key)),
    )


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


def _rank_of(tenant: Tenant) -> Rank:
    return tenant.rank


def _widest_stay(tenant: Tenant) -> tuple[Key, int, Rank]:
    return (tenant.rank.level, -tenant.gpus, tenant.rank)


def _reversed(key: Key) -> Key:
    return tuple(-number for number in key)


def _disturbance(tenants: Collection[Tenant]) -> tuple[Key, int, int]:
    """What leaving does to these tenants; less is better. The lowest levels count least."""
    best = min((tenant.rank.level for tenant in tenants), default=())
    return (_reversed(best), sum(tenant.gpus for tenant in tenants), len(tenants))


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
