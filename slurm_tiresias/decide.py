"""The one decision: a snapshot in, a plan out. Controller, shadow, simulator and explain share it.

Pure: no I/O, no clock, no logging, no randomness. The pass is Pseudocode 2 of the paper (page
491) over real nodes: walk the jobs in order; a running job keeps its nodes unless a job before
it claimed them; a waiting job takes idle GPUs first, then those of running jobs further back and
in a lower tier; what does not fit is skipped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from slurm_tiresias.config import Config, PreemptionConfig
from slurm_tiresias.model import (
    Action,
    Allocation,
    Decision,
    Guard,
    Job,
    JobState,
    Node,
    PlacementStyle,
    Plan,
    Reason,
    Request,
    Snapshot,
)
from slurm_tiresias.placement.choose import (
    node_sets,
    on_one_node_if_any_can,
    place_on_any,
    style_of,
)
from slurm_tiresias.placement.evict import (
    Eviction,
    Offers,
    Tenancy,
    Tenant,
    disturbance,
    find_eviction,
)
from slurm_tiresias.placement.pool import Pool
from slurm_tiresias.policy.standing import Policy, Standing, job_id_key
from slurm_tiresias.policy.tiers import deserves_promotion

MAX_BLOCKERS = 8
"""How many of the jobs in its way a decision names."""


def decide(snapshot: Snapshot, policy: Policy, config: Config) -> Plan:
    """Decide for every job of a snapshot whether it runs on, starts, is preempted or waits.

    The same snapshot, in whatever order its jobs and nodes come, gives the same plan. ``policy``
    is what ``policy.tiers.make_policy`` makes of the configuration, or a baseline.
    """
    return _Pass(snapshot, policy, config).plan()


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A managed job with its standing and its place in the whole order."""

    job: Job
    standing: Standing
    level: int
    rank: int
    promoted: bool


class _Pass:
    """The working state of one decision."""

    def __init__(self, snapshot: Snapshot, policy: Policy, config: Config) -> None:
        self._config = config
        self._now_s = snapshot.now_s
        self._nodes = sorted(snapshot.nodes, key=lambda node: node.name)
        self._usable = [node for node in self._nodes if node.available]
        self._ranked = _rank(self._with_settled_requests(snapshot.jobs), policy, config)
        self._unmanaged = sorted(
            (job for job in snapshot.jobs if not job.managed), key=lambda j: job_id_key(j.job_id)
        )
        self._pool = Pool(self._nodes)
        self._cleaning = _nodes_of(job for job in snapshot.jobs if job.state is JobState.COMPLETING)
        self._guards = self._guards_of_the_running()
        self._tenancy = Tenancy(map(_tenant, self._running()))
        self._offers: dict[Hashable, Offers] = defaultdict(Offers)
        self._victim_of: dict[str, str] = {}
        self._decisions: dict[str, Decision] = {}
        self._allowed: dict[Hashable, list[list[str]]] = {}
        self._hopeless: dict[Hashable, Decision] = {}

    def plan(self) -> Plan:
        self._take_what_is_held()
        for ranked in self._ranked:
            self._decisions[ranked.job.job_id] = self._decide_one(ranked)
        self._fill_what_is_left()
        for job in self._unmanaged:
            self._decisions[job.job_id] = _leave(job)
        return Plan(self._decisions)

    def _with_settled_requests(self, jobs: Iterable[Job]) -> Iterator[Job]:
        settled: dict[Hashable, Request] = {}
        for job in jobs:
            if job.request.may_be_one_task and job.state is JobState.PENDING:
                shape = _shape(job.request)
                if shape not in settled:
                    settled[shape] = on_one_node_if_any_can(job.request, self._nodes)
                job = replace(job, request=settled[shape])
            yield job

    def _take_what_is_held(self) -> None:
        """Book every running job but those on their way out, and every claim still in flight."""
        for job in (*self._unmanaged, *(ranked.job for ranked in self._ranked)):
            if job.state is JobState.RUNNING and not job.vacating_for:
                self._pool.take(job.allocation)
        for ranked in self._ranked:
            if claimed := self._standing_claim(ranked.job):
                self._pool.take(claimed)

    def _standing_claim(self, job: Job) -> Allocation | None:
        """What a job claims, while it waits for nothing else and its nodes are all there."""
        if job.claim is None or job.state is not JobState.PENDING or _blocked_by_slurm(job):
            return None
        sets = self._node_sets(job.request)
        stands = any(job.claim.keys() <= set(nodes) for nodes in sets)
        return job.claim if stands else None

    def _decide_one(self, ranked: _Ranked) -> Decision:
        job = ranked.job
        if job.state is JobState.COMPLETING:
            return _verdict(ranked, Action.WAIT, Reason.COMPLETING)
        if job.state is JobState.RUNNING:
            return self._decide_running(ranked)
        if blocked := _blocked_by_slurm(job):
            return _verdict(ranked, Action.WAIT, blocked, detail=job.not_eligible)
        if claimed := self._standing_claim(job):
            return self._start(ranked, claimed, Reason.CLAIMED)
        if job.resting:
            return _verdict(ranked, Action.WAIT, Reason.GIVEN_UP)
        if job.given_up:
            given_up = _verdict(ranked, Action.WAIT, Reason.GIVEN_UP)
            return self._start_on_idle(ranked) or given_up
        return self._decide_waiting(ranked)

    def _decide_running(self, ranked: _Ranked) -> Decision:
        job = ranked.job
        if job.vacating_for:
            return _verdict(ranked, Action.WAIT, Reason.VACATING, preempted_for=job.vacating_for)
        if winner := self._victim_of.get(job.job_id):
            return _verdict(ranked, Action.PREEMPT, Reason.PREEMPTED, preempted_for=winner)
        return _verdict(ranked, Action.RUN_ON, Reason.RUNS_ON)

    def _decide_waiting(self, ranked: _Ranked) -> Decision:
        alike = (ranked.level, self._style(ranked), _shape(ranked.job.request))
        if known := self._hopeless.get(alike):
            return replace(
                known, job_id=ranked.job.job_id, rank=ranked.rank, promoted=ranked.promoted
            )
        decision = self._start_on_idle(ranked) or self._start_by_preempting(ranked)
        if decision is None:
            decision = self._why_it_waits(ranked)
            self._hopeless[alike] = decision
        return decision

    def _start_on_idle(self, ranked: _Ranked) -> Decision | None:
        request = ranked.job.request
        allocation = self._place(request, self._style(ranked))
        if allocation is None:
            return None
        self._pool.take(allocation)
        return self._start(ranked, allocation, Reason.STARTS)

    def _start_by_preempting(self, ranked: _Ranked) -> Decision | None:
        eviction = self._evict(ranked, even_guarded=False)
        if eviction is None or not self._may_preempt(len(eviction.tenants)):
            return None
        self._commit(ranked, eviction)
        victims = tuple(tenant.job_id for tenant in eviction.tenants)
        return replace(
            self._start(ranked, eviction.allocation, Reason.STARTS_PREEMPTING), victims=victims
        )

    def _commit(self, ranked: _Ranked, eviction: Eviction) -> None:
        for tenant in eviction.tenants:
            self._pool.give(tenant.allocation)
            self._tenancy.leave(tenant)
            self._victim_of[tenant.job_id] = ranked.job.job_id
        self._pool.take(eviction.allocation)
        self._hopeless.clear()

    def _start(self, ranked: _Ranked, on: Allocation, reason: Reason) -> Decision:
        return _verdict(ranked, Action.START, reason, start_on=on, style=self._style(ranked))

    def _fill_what_is_left(self) -> None:
        """Offer what is idle once more: a later preemption may have freed more than it needed."""
        if not self._victim_of:
            return
        full: set[Hashable] = set()
        for ranked in self._ranked:
            alike = (self._style(ranked), _shape(ranked.job.request))
            waits = self._decisions[ranked.job.job_id].reason in (Reason.NO_ROOM, Reason.GUARDED)
            if not waits or alike in full:
                continue
            if decision := self._start_on_idle(ranked):
                self._decisions[ranked.job.job_id] = decision
            else:
                full.add(alike)

    # Who may be preempted

    def _running(self) -> list[_Ranked]:
        """Running jobs that are not already on their way out."""
        return [
            ranked
            for ranked in self._ranked
            if ranked.job.state is JobState.RUNNING and not ranked.job.vacating_for
        ]

    def _guards_of_the_running(self) -> dict[str, Guard]:
        config = self._config.preemption
        guards = ((r.job.job_id, guard_of(r.job, self._now_s, config)) for r in self._running())
        return {job_id: guard for job_id, guard in guards if guard is not None}

    def _may_preempt(self, more: int) -> bool:
        bound = self._config.preemption.max_victims_per_cycle
        return len(self._victim_of) + more <= bound

    def _evict(self, ranked: _Ranked, *, even_guarded: bool) -> Eviction | None:
        """Room made by jobs of a lower tier, or None; the pool stays as it is."""
        level = ranked.level

        def may_leave(tenant: Tenant) -> bool:
            return tenant.level > level and (even_guarded or tenant.job_id not in self._guards)

        request, style = ranked.job.request, self._style(ranked)
        found = (
            find_eviction(
                request,
                nodes,
                self._pool,
                self._tenancy,
                may_leave,
                style,
                self._cleaning,
                self._offers[level, even_guarded, _shape(request), number],
            )
            for number, nodes in enumerate(self._node_sets(request))
        )
        return min(filter(None, found), key=disturbance, default=None)

    # Where jobs fit

    def _style(self, ranked: _Ranked) -> PlacementStyle:
        return style_of(ranked.job, self._config.placement)

    def _place(self, request: Request, style: PlacementStyle) -> Allocation | None:
        sets = self._node_sets(request)
        return place_on_any(request, sets, self._pool, style, self._cleaning)

    def _node_sets(self, request: Request) -> list[list[str]]:
        key = (request.partitions, request.features, request.excluded_nodes)
        if key not in self._allowed:
            self._allowed[key] = node_sets(request, self._usable)
        return self._allowed[key]

    # Why a job waits

    def _why_it_waits(self, ranked: _Ranked) -> Decision:
        request = ranked.job.request
        if not _fits_empty(request, self._nodes):
            where = ", ".join(request.partitions) or "any partition"
            detail = f"asks for more than the nodes of {where} have"
            if not node_sets(request, self._nodes):
                detail = f"no node of {where} may serve it"
            return _verdict(ranked, Action.WAIT, Reason.NEVER_FITS, detail=detail)
        if not _fits_empty(request, self._usable):
            return _verdict(
                ranked, Action.WAIT, Reason.NO_NODES, detail="the nodes it needs are unavailable"
            )
        return self._who_is_in_the_way(ranked)

    def _who_is_in_the_way(self, ranked: _Ranked) -> Decision:
        eviction = self._evict(ranked, even_guarded=True)
        if eviction is not None:
            guards = [
                (tenant.job_id, self._guards.get(tenant.job_id, Guard.MAX_VICTIMS))
                for tenant in eviction.tenants
            ]
            return _verdict(ranked, Action.WAIT, Reason.GUARDED, blockers=_first(guards))
        return _verdict(ranked, Action.WAIT, Reason.NO_ROOM, blockers=self._holders(ranked))

    def _holders(self, ranked: _Ranked) -> tuple[tuple[str, Guard], ...]:
        """The jobs that hold what this one could use: managed ones first, as they rank."""
        nodes = {node for some in self._node_sets(ranked.job.request) for node in some}
        holders: list[tuple[str, Guard]] = []
        for other in self._running():
            job = other.job
            if not nodes.isdisjoint(job.allocation) and job.job_id not in self._victim_of:
                lower = other.level > ranked.level
                guard = self._guards.get(job.job_id) if lower else Guard.SAME_TIER
                if guard:
                    holders.append((job.job_id, guard))
        holders.extend(
            (job.job_id, Guard.UNMANAGED)
            for job in self._unmanaged
            if job.state is JobState.RUNNING and not nodes.isdisjoint(job.allocation)
        )
        return _first(holders)


def guard_of(job: Job, now_s: float, config: PreemptionConfig) -> Guard | None:
    """What protects a running job from preemption now, if anything does."""
    if job.protected_by is not None:
        return job.protected_by
    if 0 < config.max_per_job <= job.preemptions:
        return Guard.MAX_PREEMPTIONS
    if job.running_since_s is not None and now_s - job.running_since_s < config.min_run_s:
        return Guard.MIN_RUN
    return None


def _rank(jobs: Iterable[Job], policy: Policy, config: Config) -> list[_Ranked]:
    judged = []
    for job in jobs:
        if job.managed:
            promoted = deserves_promotion(job, config.policy) and not _blocked_by_slurm(job)
            judged.append((policy.standing(_reset(job) if promoted else job), job, promoted))
    judged.sort(key=lambda entry: (entry[0].level, entry[0].order, job_id_key(entry[1].job_id)))
    levels = {level: number for number, level in enumerate(sorted({j[0].level for j in judged}))}
    return [
        _Ranked(job, standing, levels[standing.level], rank, promoted)
        for rank, (standing, job, promoted) in enumerate(judged)
    ]


def _reset(job: Job) -> Job:
    """What a promotion makes of a job: both counters back to zero (paper page 491)."""
    return replace(job, attained_since_promotion_gpu_s=0.0, executed_since_promotion_s=0.0)


def _blocked_by_slurm(job: Job) -> Reason | None:
    if job.held:
        return Reason.HELD
    return Reason.SLURM_WAITS if job.not_eligible else None


def _verdict(
    ranked: _Ranked,
    action: Action,
    reason: Reason,
    *,
    detail: str = "",
    start_on: Allocation | None = None,
    style: PlacementStyle | None = None,
    preempted_for: str = "",
    blockers: tuple[tuple[str, Guard], ...] = (),
) -> Decision:
    return Decision(
        job_id=ranked.job.job_id,
        action=action,
        reason=reason,
        detail=detail,
        tier=ranked.standing.tier,
        rank=ranked.rank,
        start_on=start_on or {},
        style=style,
        preempted_for=preempted_for,
        blockers=blockers,
        promoted=ranked.promoted,
    )


def _leave(job: Job) -> Decision:
    return Decision(job.job_id, Action.LEAVE, Reason.UNMANAGED, detail=job.unmanaged_because)


def _tenant(ranked: _Ranked) -> Tenant:
    job = ranked.job
    return Tenant(job.job_id, ranked.level, ranked.rank, job.allocation, job.gpus_held)


def _first(blockers: Sequence[tuple[str, Guard]]) -> tuple[tuple[str, Guard], ...]:
    return tuple(blockers[:MAX_BLOCKERS])


def _nodes_of(jobs: Iterable[Job]) -> frozenset[str]:
    return frozenset(node for job in jobs for node in job.allocation)


def _fits_empty(request: Request, nodes: Sequence[Node]) -> bool:
    sets = node_sets(request, nodes)
    return place_on_any(request, sets, Pool(nodes), PlacementStyle.CONSOLIDATE) is not None


def _shape(request: Request) -> Hashable:
    """Two requests of one shape fit in the same places."""
    return (
        tuple(sorted(request.chunk.gpus.items())),
        request.chunk.cpus,
        request.chunk.memory_mb,
        request.chunks,
        request.per_node.cpus,
        request.per_node.memory_mb,
        request.max_chunks_per_node,
        request.min_nodes,
        request.max_nodes,
        request.may_be_one_task,
        request.exclusive,
        request.features,
        request.required_nodes,
        request.excluded_nodes,
        request.partitions,
    )
