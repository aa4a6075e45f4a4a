"""Who runs, who waits and what is free: all that the choice of the next starts depends on.

``decide`` sets a board up anew for every snapshot. A caller that follows a cluster event by event
(the simulator) keeps one, tells it what changes, and is then told only what follows from that: the
same starts and victims, without looking at every job again. Pure: no I/O and no clock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from slurm_tiresias.model import ANY_TYPE, Allocation, Amount, Node, PlacementStyle, Request
from slurm_tiresias.placement.choose import goes_by_count, place_on_any
from slurm_tiresias.placement.evict import Eviction, disturbance, find_eviction
from slurm_tiresias.placement.fleet import Fleet
from slurm_tiresias.placement.pool import NodeSet, Pool
from slurm_tiresias.placement.seats import Appeal, Tenant
from slurm_tiresias.placement.tenancy import Tenancy
from slurm_tiresias.policy.standing import Key, Rank


@dataclass(slots=True, eq=False)
class Kind:
    """Waiting jobs that ask alike: where the first of them does not fit, none does."""

    number: int
    request: Request
    style: PlacementStyle
    sets: tuple[NodeSet, ...]
    """The nodes it may use, one set for each of its partitions."""
    only_idle: bool
    """Nobody is asked to leave for these."""
    nodes: NodeSet = 0
    gpus: int = 0
    whole: Amount | None = None
    """What it takes where one node takes it all, if any node with so many free GPUs will do."""
    waiting: list[Rank] = field(default_factory=list)
    """A heap; ranks that are no longer those of a waiting job lie in it until they come up."""
    refused: Key | None = None
    """The level of the first of them when it was last refused; None: not since room grew."""

    def __post_init__(self) -> None:
        for nodes in self.sets:
            self.nodes |= nodes
        self.gpus = self.request.chunks * self.request.chunk.gpu_count


class Start(NamedTuple):
    """A job that starts now, where, and who leaves for it."""

    job_id: str
    allocation: Allocation
    victims: tuple[str, ...] = ()


Refused = Callable[[Kind, Rank, Eviction | None], None]


class Board:
    """The state of a cluster between decisions.

    ``last_resort`` are nodes used only where no others will do. Whoever calls ``choose`` carries
    out what it says: every start has its GPUs taken and every victim has given them back.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        last_resort: Iterable[str] = (),
        most_victims: float = math.inf,
    ) -> None:
        everywhere = sorted(nodes, key=lambda node: node.name)
        self.fleet = Fleet(everywhere)
        self.pool = Pool(everywhere)
        self._last_resort = self.pool.nodes(last_resort)
        self.most_victims = most_victims
        self._tenancy = Tenancy(self.pool)
        self._tenants: dict[str, Tenant] = {}
        self._lapses: list[tuple[float, str, Tenant]] = []
        self._kinds: dict[Hashable, Kind] = {}
        self._waiting: dict[str, tuple[Rank, Kind]] = {}
        self._to_try: set[Kind] = set()
        self._room_grew = False

    # What changes

    def kind(
        self, key: Hashable, request: Request, style: PlacementStyle, *, only_idle: bool = False
    ) -> Kind:
        """The jobs that go by this key; all of them ask alike."""
        kind = self._kinds.get(key)
        if kind is None:
            sets = self.fleet.sets_for(request, self.fleet.usable)
            kind = self._kinds[key] = Kind(len(self._kinds), request, style, sets, only_idle)
            if self._any_node_will_do(kind):
                kind.whole = Amount({ANY_TYPE: kind.gpus})
        return kind

    def _any_node_will_do(self, kind: Kind) -> bool:
        together = kind.style is PlacementStyle.CONSOLIDATE or (
            kind.style is PlacementStyle.SPREAD and kind.request.chunks == 1
        )
        alike = not self._last_resort and not self.pool.has_types and len(kind.sets) == 1
        return together and alike and goes_by_count(kind.request)

    def wait(self, rank: Rank, kind: Kind) -> None:
        """A job waits, or waits with another rank than before."""
        self._waiting[rank.job_id] = (rank, kind)
        heapq.heappush(kind.waiting, rank)
        if kind.refused is None or rank.level < kind.refused:
            self._to_try.add(kind)

    def book(self, allocation: Allocation) -> None:
        """Somebody has these GPUs."""
        self.pool.take(allocation)

    def run(
        self, rank: Rank, allocation: Allocation, gpus: int, guarded_until_s: float = -math.inf
    ) -> None:
        """The job that has booked these GPUs may be asked to leave, once it is not guarded."""
        guarded = guarded_until_s > -math.inf
        tenant = Tenant(rank, allocation, self.pool.nodes(allocation), gpus, guarded)
        self._tenants[rank.job_id] = tenant
        self._tenancy.enter(tenant)
        if guarded and guarded_until_s < math.inf:
            heapq.heappush(self._lapses, (guarded_until_s, rank.job_id, tenant))

    def rerank(self, rank: Rank) -> None:
        """A running job has come to stand elsewhere."""
        tenant = self._tenants[rank.job_id]
        if tenant.rank == rank:
            return
        self._room_grew |= rank.level > tenant.rank.level
        self._tenancy.leave(tenant)
        tenant.rank = rank
        self._tenancy.enter(tenant)

    def leave(self, job_id: str) -> None:
        """A running job has ended."""
        tenant = self._tenants.pop(job_id)
        self._tenancy.leave(tenant)
        self.pool.give(tenant.allocation)
        self._room_grew = True

    def is_running(self, job_id: str) -> bool:
        """Whether the job runs and has not been chosen to leave."""
        return job_id in self._tenants

    @property
    def next_try_s(self) -> float:
        """When to choose again though nobody comes or goes: at once, or when a guard ends."""
        if self._room_grew:
            return -math.inf
        return self._next_lapse_s() if self._lapses else math.inf

    def _next_lapse_s(self) -> float:
        """When the next guard ends that somebody may be waiting for."""
        while self._lapses and self._tenants.get(self._lapses[0][1]) is not self._lapses[0][2]:
            heapq.heappop(self._lapses)
        return self._lapses[0][0] if self._lapses and self._waiting else math.inf

    @property
    def kinds(self) -> Iterable[Kind]:
        return list(self._kinds.values())

    # What follows from it

    def choose(
        self,
        now_s: float,
        refused: Refused | None = None,
        before_evictions: Callable[[], None] = lambda: None,
    ) -> list[Start]:
        """The jobs that start now, in the order of their ranks, and who leaves for each.

        ``refused`` is told the first job of every kind that has no room, as things stand at its
        turn, and who would leave for it but for the limit of victims. ``before_evictions`` is
        called, once, before anybody is looked at who might leave: the last moment to ``rerank``.
        """
        if not self._waiting:
            self._room_grew = False
            self._to_try.clear()
            return []
        if self._lapses:
            self._end_guards(now_s)
        if not self._room_grew and not self._to_try:
            return []
        if len(self._waiting) == 1:
            start = self._start_at_once()
            if start:
                return [start]
        to_try = self.kinds if self._room_grew else list(self._to_try)
        self._room_grew = False
        self._to_try = set()
        one = _Round(self, refused, before_evictions)
        one.offer_to(to_try)
        if one.victims:
            one.offer_what_is_left()
        self._room_grew |= bool(one.short_of_victims)
        return one.starts

    def _start_at_once(self) -> Start | None:
        """The start of the only job that waits, if it needs nobody to leave."""
        ((rank, kind),) = self._waiting.values()
        allocation = self.on_idle(kind) if self.pool.most_free_gpus >= kind.gpus else None
        if allocation is None:
            return None
        self.pool.take(allocation)
        self._waiting.clear()
        kind.waiting.clear()
        kind.refused = None
        self._to_try.clear()
        self._room_grew = False
        return Start(rank.job_id, allocation)

    def _end_guards(self, now_s: float) -> None:
        while self._lapses and self._next_lapse_s() <= now_s:
            _, _, tenant = heapq.heappop(self._lapses)
            self._tenancy.unguard(tenant)
            self._room_grew = True

    def first(self, kind: Kind) -> Rank | None:
        """The first of the waiting jobs of a kind."""
        while kind.waiting:
            rank = kind.waiting[0]
            current = self._waiting.get(rank.job_id)
            if current is not None and current[0] is rank:
                return rank
            heapq.heappop(kind.waiting)
        return None

    def may_have_room(self, kind: Kind, level: Key) -> bool:
        """Whether there are GPUs enough, idle or to be had; that they fit is another matter."""
        missing = kind.gpus - self.pool.most_free_gpus
        return missing <= 0 or (not kind.only_idle and self._tenancy.gpus_below(level) >= missing)

    def on_idle(self, kind: Kind) -> Allocation | None:
        """Where a job of this kind fits now, with nobody gone."""
        if kind.whole:
            number = self.pool.tightest(kind.nodes, kind.gpus)
            if number is not None and not self.pool.lacks_cpus_or_memory(number):
                return {self.pool.names[number]: kind.whole}
        return place_on_any(kind.request, kind.sets, self.pool, kind.style, self._last_resort)

    def by_eviction(self, kind: Kind, level: Key, *, even_guarded: bool = False) -> Eviction | None:
        """Room made by jobs of lower levels; the pool stays as it is."""
        if not self._tenancy.anybody_below(level):
            return None
        best = None
        for nodes in kind.sets:
            appeal = Appeal(kind.request, kind.style, nodes, level, even_guarded)
            found = find_eviction(appeal, self.pool, self._tenancy, self._last_resort)
            if found and (best is None or disturbance(found) < disturbance(best)):
                best = found
        return best

    def start(self, kind: Kind, rank: Rank, allocation: Allocation) -> None:
        """Carry out one start."""
        self.pool.take(allocation)
        heapq.heappop(kind.waiting)
        del self._waiting[rank.job_id]

    def evict(self, tenant: Tenant) -> None:
        self._tenancy.leave(tenant)
        self.pool.give(tenant.allocation)
        del self._tenants[tenant.job_id]


class _Round:
    """One walk over the waiting jobs, in the order of their ranks."""

    __slots__ = (
        "_before_evictions",
        "_board",
        "_heads",
        "_patient",
        "_refused",
        "_seen",
        "short_of_victims",
        "starts",
        "victims",
    )

    def __init__(
        self,
        board: Board,
        refused: Refused | None,
        before_evictions: Callable[[], None],
    ) -> None:
        self._board = board
        self._before_evictions: Callable[[], None] | None = before_evictions
        self._refused = refused
        self.starts: list[Start] = []
        self.victims = 0
        self._heads: list[tuple[Rank, int, Kind]] = []
        self._seen: set[Kind] = set()
        self.short_of_victims: list[Kind] = []
        """Kinds for which more would have to leave than may in one cycle."""
        self._patient: list[Kind] = []

    def offer_to(self, kinds: Iterable[Kind]) -> None:
        """Let the first of each kind try, the best of all next, until nobody more fits."""
        self._join(kinds)
        while self._heads:
            rank, _, kind = heapq.heappop(self._heads)
            start = self._try(kind, rank)
            if start is None:
                continue
            self._note(start, kind)
            if start.victims:
                # They may have freed more than was needed, also for those who were refused before.
                self._join(kind for kind in self._board.kinds if kind not in self._seen)

    def offer_what_is_left(self) -> None:
        """Once all have had their turn: for those who could not ask anybody to leave."""
        self._join([*self.short_of_victims, *self._patient])
        while self._heads:
            rank, _, kind = heapq.heappop(self._heads)
            if start := self._try_idle(kind, rank):
                self._note(start, kind)

    def _join(self, kinds: Iterable[Kind]) -> None:
        for kind in kinds:
            rank = self._board.first(kind) if kind.waiting else None
            if rank is None:
                continue
            if self._refused is None and not self._board.may_have_room(kind, rank.level):
                # Unless somebody leaves there will be no more room when its turn comes.
                kind.refused = rank.level
                self._seen.discard(kind)
                continue
            self._seen.add(kind)
            heapq.heappush(self._heads, (rank, kind.number, kind))

    def _note(self, start: Start, kind: Kind) -> None:
        self.starts.append(start)
        if kind.waiting:
            self._join([kind])

    def _try(self, kind: Kind, rank: Rank) -> Start | None:
        kind.refused = None
        eviction = None
        if self._board.may_have_room(kind, rank.level):
            start = self._try_idle(kind, rank)
            if start:
                return start
            eviction = self._eviction(kind, rank)
            if eviction and self.victims + len(eviction.tenants) <= self._board.most_victims:
                return self._start_evicting(kind, rank, eviction)
        kind.refused = rank.level
        if kind.only_idle:
            self._patient.append(kind)
        elif eviction:
            self.short_of_victims.append(kind)
        if self._refused:
            self._refused(kind, rank, eviction)
        return None

    def _try_idle(self, kind: Kind, rank: Rank) -> Start | None:
        allocation = self._board.on_idle(kind)
        if allocation is None:
            return None
        self._board.start(kind, rank, allocation)
        return Start(rank.job_id, allocation)

    def _eviction(self, kind: Kind, rank: Rank) -> Eviction | None:
        """Whose leaving would make room."""
        if kind.only_idle:
            return None
        if self._before_evictions:
            self._before_evictions()
            self._before_evictions = None
        return self._board.by_eviction(kind, rank.level)

    def _start_evicting(self, kind: Kind, rank: Rank, eviction: Eviction) -> Start:
        for tenant in eviction.tenants:
            self._board.evict(tenant)
        self.victims += len(eviction.tenants)
        self._board.start(kind, rank, eviction.allocation)
        victims = tuple(tenant.job_id for tenant in eviction.tenants)
        return Start(rank.job_id, eviction.allocation, victims)
