"""Who sits where: the running jobs that may be asked to leave."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator

from slurm_tiresias.placement.pool import Pool, numbers
from slurm_tiresias.placement.seats import Seats, Tenant
from slurm_tiresias.policy.standing import Key, Rank


class Tenancy:
    """Who sits where, by node and by level.

    Most jobs come and go without anybody asking for their room: tenants are filed only when
    somebody does.
    """

    def __init__(self, pool: Pool, tenants: Iterable[Tenant] = ()) -> None:
        self._pool = pool
        self._seats: Seats | None = None
        self._new: dict[str, Tenant] = {tenant.job_id: tenant for tenant in tenants}
        self._on: list[dict[str, Tenant]] = [{} for _ in pool.names]
        self._levels: dict[Key, dict[int, list[tuple[Rank, Tenant]]]] = {}
        self._gpus: dict[Key, int] = {}
        self._guarded_gpus: dict[Key, int] = {}

    def enter(self, tenant: Tenant) -> None:
        self._new[tenant.rank.job_id] = tenant

    def leave(self, tenant: Tenant) -> None:
        if self._new.pop(tenant.rank.job_id, None) is None:
            self._take_off_file(tenant)

    def on(self, number: int) -> Collection[Tenant]:
        self._file_new()
        return self._on[number].values()

    def gpus_below(self, level: Key, *, even_guarded: bool) -> int:
        """GPUs held by jobs of lower levels that may be preempted; with ``even_guarded`` by all."""
        if self._new:
            self._file_new()
        below = 0
        for other, gpus in self._gpus.items():
            if other > level:
                below += gpus if even_guarded else gpus - self._guarded_gpus[other]
        return below

    def anybody_below(self, level: Key) -> bool:
        """Whether a job of a lower level runs, guarded or not."""
        self._file_new()
        return any(other > level for other in self._levels)

    def below(self, level: Key) -> Iterator[dict[int, Iterator[Tenant]]]:
        """For each lower level, the lowest first: its tenants by GPUs, the last of them first."""
        self._file_new()
        for other in sorted((other for other in self._levels if other > level), reverse=True):
            widths = self._levels[other]
            yield {gpus: (t for _, t in reversed(widths[gpus])) for gpus in sorted(widths)}

    def unguard(self, tenant: Tenant) -> None:
        """What protected the tenant has come to its end."""
        tenant.guarded = False
        if tenant.job_id in self._new:
            return
        self._guarded_gpus[tenant.level] -= tenant.gpus
        if self._seats is not None:
            self._seats.unguard(tenant)

    def reorder(self, moved: Iterable[tuple[Tenant, Rank]]) -> None:
        """Tenants have other ranks than before, of the same levels."""
        self._file_new()
        self._seats = None
        for tenant, rank in moved:
            tenant.rank = rank
        for widths in self._levels.values():
            for alike in widths.values():
                alike[:] = [(tenant.rank, tenant) for _, tenant in alike]
                alike.sort()

    def seats(self) -> Seats:
        """All tenants as arrays; good until another one comes."""
        self._file_new()
        if self._seats is None:
            alike = (some for widths in self._levels.values() for some in widths.values())
            self._seats = Seats((tenant for some in alike for _, tenant in some), self._pool)
        return self._seats

    def _file_new(self) -> None:
        if self._new:
            self._seats = None
        for tenant in self._new.values():
            for number in numbers(tenant.nodes):
                self._on[number][tenant.job_id] = tenant
            level = tenant.rank.level
            alike = self._levels.setdefault(level, {}).setdefault(tenant.gpus, [])
            insort(alike, (tenant.rank, tenant))
            self._gpus[level] = self._gpus.get(level, 0) + tenant.gpus
            guarded_gpus = tenant.gpus if tenant.guarded else 0
            self._guarded_gpus[level] = self._guarded_gpus.get(level, 0) + guarded_gpus
        self._new.clear()

    def _take_off_file(self, tenant: Tenant) -> None:
        if self._seats is not None:
            self._seats.leave(tenant)
        for number in numbers(tenant.nodes):
            del self._on[number][tenant.job_id]
        level = tenant.rank.level
        widths = self._levels[level]
        alike = widths[tenant.gpus]
        del alike[bisect_left(alike, (tenant.rank,))]
        self._gpus[level] -= tenant.gpus
        if tenant.guarded:
            self._guarded_gpus[level] -= tenant.gpus
        if not alike:
            del widths[tenant.gpus]
            if not widths:
                del self._levels[level], self._gpus[level], self._guarded_gpus[level]
