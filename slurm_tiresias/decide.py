"""The one decision: a snapshot in, a plan out. Controller, shadow, simulator and explain share it.

Pure: no I/O, no clock, no logging, no randomness. The pass is Pseudocode 2 of the paper (page
491) over real nodes: walk the jobs in order; a running job keeps its nodes unless a job before
it claimed them; a waiting job takes idle GPUs first, then those of running jobs further back and
in a lower tier; what does not fit is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter

from slurm_tiresias.board import Board, Kind, Start
from slurm_tiresias.config import Config, PreemptionConfig
from slurm_tiresias.model import (
    NOWHERE,
    Action,
    Allocation,
    Decision,
    Guard,
    Job,
    JobState,
    PlacementStyle,
    Plan,
    Reason,
    Request,
    Snapshot,
)
from slurm_tiresias.placement.choose import style_of
from slurm_tiresias.placement.evict import Eviction
from slurm_tiresias.placement.pool import NodeSet
from slurm_tiresias.policy.standing import Policy, Rank, Standing, job_id_key
from slurm_tiresias.policy.tiers import deserves_promotion

MAX_BLOCKERS = 8
"""How many of the jobs in its way a decision names."""


def decide(snapshot: Snapshot, policy: Policy, config: Config) -> Plan:
    """Decide for every job of a snapshot whether it runs on, starts, is preempted or waits.

    The same snapshot, in whatever order its jobs and nodes come, gives the same plan. ``policy``
    is what ``policy.tiers.make_policy`` makes of the configuration, or a baseline.
    """
    return _Pass(snapshot, policy, config).plan()


@dataclass(slots=True, eq=False)
class _Ranked:
    """A managed job with its standing and its place in the whole order."""

    job: Job
    standing: Standing
    rank: Rank
    promoted: bool
    number: int = 0
    """Its place in the whole order, from 0."""


class _Pass:
    """The working state of one decision."""

    def __init__(self, snapshot: Snapshot, policy: Policy, config: Config) -> None:
        self._config = config
        self._now_s = snapshot.now_s
        self._ranked = _rank(snapshot, policy, config)
        # Those that are already on their way out no longer count as running.
        self._running = [
            ranked
            for ranked in self._ranked
            if ranked.job.state is JobState.RUNNING and not ranked.job.vacating_for
        ]
        self._by_id = {ranked.job.job_id: ranked for ranked in self._ranked}
        self._unmanaged = sorted(
            (job for job in snapshot.jobs if not job.managed), key=lambda j: job_id_key(j.job_id)
        )
        self._board = Board(
            snapshot.nodes,
            last_resort=_nodes_of(j for j in snapshot.jobs if j.state is JobState.COMPLETING),
            most_victims=config.preemption.max_victims_per_cycle,
        )
        self._fleet = self._board.fleet
        self._guards = self._guards_of_the_running()
        self._claims = self._standing_claims()
        self._refusals: dict[Kind, Decision] = {}
        self._kinds: dict[str, Kind] = {}
        self._kind_of: dict[Hashable, Kind] = {}
        self._of_one_task: dict[Hashable, tuple[Request, Hashable]] = {}

    def plan(self) -> Plan:
        self._set_up_the_board()
        chosen = self._board.choose(self._now_s, self._note_refusal)
        starts = {start.job_id: start for start in chosen}
        winners = {victim: start.job_id for start in chosen for victim in start.victims}
        decisions = {
            ranked.job.job_id: self._decide_one(ranked, starts, winners) for ranked in self._ranked
        }
        return Plan(decisions | {job.job_id: _leave(job) for job in self._unmanaged})

    def _standing_claims(self) -> dict[str, Allocation]:
        """What jobs claim that wait for nothing else, where their nodes are all there."""
        claims = {}
        for ranked in self._ranked:
            job = ranked.job
            if job.claim is None or job.state is not JobState.PENDING or _blocked_by_slurm(job):
                continue
            claimed = self._board.pool.nodes(job.claim)
            all_there = claimed.bit_count() == len(job.claim)
            if all_there and any(not claimed & ~nodes for nodes in self._usable_by(job.request)):
                claims[job.job_id] = job.claim
        return claims

    def _usable_by(self, request: Request) -> tuple[NodeSet, ...]:
        return self._fleet.sets_for(request, self._fleet.usable)

    # What the board is told

    def _set_up_the_board(self) -> None:
        for job in self._unmanaged:
            if job.state is JobState.RUNNING:
                self._board.book(job.allocation)
        for ranked in self._running:
            self._board.book(ranked.job.allocation)
            guarded_until_s = math.inf if ranked.job.job_id in self._guards else -math.inf
            self._board.run(
                ranked.rank, ranked.job.allocation, ranked.job.gpus_held, guarded_until_s
            )
        for claimed in self._claims.values():
            self._board.book(claimed)
        for ranked in self._ranked:
            if self._may_start(ranked.job):
                kind = self._kinds[ranked.job.job_id] = self._kind(ranked)
                self._board.wait(ranked.rank, kind)

    def _may_start(self, job: Job) -> bool:
        waits = job.state is JobState.PENDING and job.job_id not in self._claims
        return waits and not job.resting and not _blocked_by_slurm(job)

    def _kind(self, ranked: _Ranked) -> Kind:
        job, level = ranked.job, ranked.standing.level
        # Jobs that ask alike mostly share one request; to compare what it says would take longer.
        known_as = (id(job.request), job.style, job.skew, level, job.given_up)
        kind = self._kind_of.get(known_as)
        if kind is None:
            style = self._style(ranked)
            request, shape = self._settled(job.request)
            kind = self._kind_of[known_as] = self._board.kind(
                (level, style, job.given_up, shape), request, style, only_idle=job.given_up
            )
        return kind

    def _settled(self, request: Request) -> tuple[Request, Hashable]:
        """The request as it is to be laid over nodes, and its shape."""
        shape = request.shape
        if not request.may_be_one_task:
            return request, shape
        known = self._of_one_task.get(shape)
        if known is None:
            settled = self._fleet.on_one_node_if_any_can(request)
            known = self._of_one_task[shape] = settled, settled.shape
        return known

    def _guards_of_the_running(self) -> dict[str, Guard]:
        config = self._config.preemption
        guards = ((r.job.job_id, guard_of(r.job, self._now_s, config)) for r in self._running)
        return {job_id: guard for job_id, guard in guards if guard is not None}

    def _style(self, ranked: _Ranked) -> PlacementStyle:
        return style_of(ranked.job, self._config.placement)

    # What becomes of each job

    def _decide_one(
        self, ranked: _Ranked, starts: Mapping[str, Start], winners: Mapping[str, str]
    ) -> Decision:
        job = ranked.job
        if job.state is JobState.COMPLETING:
            return _verdict(ranked, Action.WAIT, Reason.COMPLETING)
        if job.state is JobState.RUNNING:
            return _running_on_or_out(ranked, winners)
        if blocked := _blocked_by_slurm(job):
            return _verdict(ranked, Action.WAIT, blocked, detail=job.not_eligible)
        if claimed := self._claims.get(job.job_id):
            return self._start(ranked, claimed, Reason.CLAIMED)
        if start := starts.get(job.job_id):
            reason = Reason.STARTS_PREEMPTING if start.victims else Reason.STARTS
            return self._start(ranked, start.allocation, reason, start.victims)
        if job.resting or job.given_up:
            return _verdict(ranked, Action.WAIT, Reason.GIVEN_UP)
        why = self._refusals[self._kinds[job.job_id]]
        return _verdict(ranked, Action.WAIT, why.reason, detail=why.detail, blockers=why.blockers)

    def _start(
        self, ranked: _Ranked, on: Allocation, reason: Reason, victims: tuple[str, ...] = ()
    ) -> Decision:
        style = self._style(ranked)
        return _verdict(ranked, Action.START, reason, start_on=on, style=style, victims=victims)

    # Why a job waits

    def _note_refusal(self, kind: Kind, rank: Rank, too_many: Eviction | None) -> None:
        if not kind.only_idle:
            self._refusals[kind] = self._why_it_waits(self._by_id[rank.job_id], kind, too_many)

    def _why_it_waits(self, ranked: _Ranked, kind: Kind, too_many: Eviction | None) -> Decision:
        request = kind.request
        if too_many:
            return self._guarded(ranked, too_many)
        if self._fleet.could_hold(request, self._fleet.usable):
            return self._who_is_in_the_way(ranked, kind)
        unreserved = replace(request, reserved_nodes=frozenset())
        if request.reserved_nodes and self._fleet.could_hold(unreserved, self._fleet.usable):
            return _verdict(ranked, Action.WAIT, Reason.RESERVED)
        if self._fleet.could_hold(unreserved):
            return _verdict(
                ranked, Action.WAIT, Reason.NO_NODES, detail="the nodes it needs are unavailable"
            )
        where = ", ".join(request.partitions) or "any partition"
        detail = f"asks for more than the nodes of {where} have"
        if not self._fleet.sets_for(unreserved):
            detail = f"no node of {where} may serve it"
        return _verdict(ranked, Action.WAIT, Reason.NEVER_FITS, detail=detail)

    def _who_is_in_the_way(self, ranked: _Ranked, kind: Kind) -> Decision:
        level = ranked.standing.level
        if self._board.may_have_room(kind, level):
            eviction = self._board.by_eviction(kind, level, even_guarded=True)
            if eviction is not None:
                return self._guarded(ranked, eviction)
        return _verdict(
            ranked, Action.WAIT, Reason.NO_ROOM, blockers=_first(self._holders(ranked, kind))
        )

    def _guarded(self, ranked: _Ranked, eviction: Eviction) -> Decision:
        guards = [
            (tenant.job_id, self._guards.get(tenant.job_id, Guard.MAX_VICTIMS))
            for tenant in eviction.tenants
        ]
        return _verdict(ranked, Action.WAIT, Reason.GUARDED, blockers=_first(guards))

    def _holders(self, ranked: _Ranked, kind: Kind) -> Iterator[tuple[str, Guard]]:
        """The jobs that hold what this one could use: managed ones first, as they rank."""
        for other in self._running:
            job = other.job
            if self._is_on(kind.nodes, job) and self._board.is_running(job.job_id):
                lower = other.standing.level > ranked.standing.level
                guard = self._guards.get(job.job_id) if lower else Guard.SAME_TIER
                if guard:
                    yield job.job_id, guard
        for job in self._unmanaged:
            if job.state is JobState.RUNNING and self._is_on(kind.nodes, job):
                yield job.job_id, Guard.UNMANAGED

    def _is_on(self, nodes: NodeSet, job: Job) -> bool:
        return bool(self._board.pool.nodes(job.allocation) & nodes)


def _running_on_or_out(ranked: _Ranked, winners: Mapping[str, str]) -> Decision:
    job = ranked.job
    if job.vacating_for:
        return _verdict(ranked, Action.WAIT, Reason.VACATING, preempted_for=job.vacating_for)
    if winner := winners.get(job.job_id):
        return _verdict(ranked, Action.PREEMPT, Reason.PREEMPTED, preempted_for=winner)
    return _verdict(ranked, Action.RUN_ON, Reason.RUNS_ON)


def guard_of(job: Job, now_s: float, config: PreemptionConfig) -> Guard | None:
    """What protects a running job from preemption now, if anything does."""
    if job.protected_by is not None:
        return job.protected_by
    if 0 < config.max_per_job <= job.preemptions:
        return Guard.MAX_PREEMPTIONS
    if job.running_since_s is not None and now_s - job.running_since_s < config.min_run_s:
        return Guard.MIN_RUN
    return None


def _rank(snapshot: Snapshot, policy: Policy, config: Config) -> list[_Ranked]:
    now_s = snapshot.now_s
    ranked = [_judged(job, now_s, policy, config) for job in snapshot.jobs if job.managed]
    ranked.sort(key=attrgetter("rank"))
    for number, one in enumerate(ranked):
        one.number = number
    return ranked


def _judged(job: Job, now_s: float, policy: Policy, config: Config) -> _Ranked:
    promoted = deserves_promotion(job, now_s, config.policy) and not _blocked_by_slurm(job)
    standing = policy.standing(_reset(job) if promoted else job)
    return _Ranked(job, standing, Rank.of(job.job_id, standing), promoted)


def _reset(job: Job) -> Job:
    """What a promotion makes of a job: all that counts back to zero (paper page 491)."""
    return replace(
        job,
        attained_since_promotion_gpu_s=0.0,
        executed_since_promotion_s=0.0,
        inherited_gpu_s=0.0,
    )


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
    start_on: Allocation = NOWHERE,
    style: PlacementStyle | None = None,
    victims: tuple[str, ...] = (),
    preempted_for: str = "",
    blockers: tuple[tuple[str, Guard], ...] = (),
) -> Decision:
    return Decision(
        ranked.job.job_id,
        action,
        reason,
        detail,
        ranked.standing.tier,
        ranked.number,
        start_on,
        style,
        victims,
        preempted_for,
        blockers,
        ranked.promoted,
    )


def _leave(job: Job) -> Decision:
    return Decision(job.job_id, Action.LEAVE, Reason.UNMANAGED, detail=job.unmanaged_because)


def _first(blockers: Iterable[tuple[str, Guard]]) -> tuple[tuple[str, Guard], ...]:
    return tuple(islice(blockers, MAX_BLOCKERS))


def _nodes_of(jobs: Iterable[Job]) -> frozenset[str]:
    return frozenset(node for job in jobs for node in job.allocation)
