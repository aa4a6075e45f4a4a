"""The one decision: a snapshot in, a plan out. Controller, shadow, simulator and explain share it.

Pure: no I/O, no clock, no logging, no randomness. The pass is Pseudocode 2 of the paper (page
491) over real nodes: walk the jobs in order; a running job keeps its nodes unless a job before
it claimed them; a waiting job takes idle GPUs first, then those of running jobs further back and
in a lower tier; what does not fit is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_tiresias.board import Board, Kind, Start
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
from slurm_tiresias.placement.pool import Pool
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


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A managed job with its standing and its place in the whole order."""

    job: Job
    standing: Standing
    rank: Rank
    number: int
    """Its place in the whole order, from 0."""
    promoted: bool


class _Pass:
    """The working state of one decision."""

    def __init__(self, snapshot: Snapshot, policy: Policy, config: Config) -> None:
        self._config = config
        self._now_s = snapshot.now_s
        self._nodes = sorted(snapshot.nodes, key=lambda node: node.name)
        self._usable = [node for node in self._nodes if node.available]
        self._ranked = _rank(self._with_settled_requests(snapshot.jobs), policy, config)
        self._by_id = {ranked.job.job_id: ranked for ranked in self._ranked}
        self._unmanaged = sorted(
            (job for job in snapshot.jobs if not job.managed), key=lambda j: job_id_key(j.job_id)
        )
        self._board = Board(
            self._nodes,
            last_resort=_nodes_of(j for j in snapshot.jobs if j.state is JobState.COMPLETING),
            most_victims=config.preemption.max_victims_per_cycle,
        )
        self._guards = self._guards_of_the_running()
        self._claims = self._standing_claims()
        self._refusals: dict[Kind, Decision] = {}
        self._kinds: dict[str, Kind] = {}

    def plan(self) -> Plan:
        self._set_up_the_board()
        chosen = self._board.choose(self._now_s, self._note_refusal)
        starts = {start.job_id: start for start in chosen}
        winners = {victim: start.job_id for start in chosen for victim in start.victims}
        decisions = {
            ranked.job.job_id: self._decide_one(ranked, starts, winners) for ranked in self._ranked
        }
        return Plan(decisions | {job.job_id: _leave(job) for job in self._unmanaged})

    def _with_settled_requests(self, jobs: Iterable[Job]) -> Iterator[Job]:
        settled: dict[Hashable, Request] = {}
        for job in jobs:
            if job.request.may_be_one_task and job.state is JobState.PENDING:
                shape = _shape(job.request)
                if shape not in settled:
                    settled[shape] = on_one_node_if_any_can(job.request, self._nodes)
                job = replace(job, request=settled[shape])
            yield job

    def _standing_claims(self) -> dict[str, Allocation]:
        """What jobs claim that wait for nothing else, where their nodes are all there."""
        claims = {}
        for ranked in self._ranked:
            job = ranked.job
            if job.claim is None or job.state is not JobState.PENDING or _blocked_by_slurm(job):
                continue
            if any(
                job.claim.keys() <= set(names) for names in node_sets(job.request, self._usable)
            ):
                claims[job.job_id] = job.claim
        return claims

    # What the board is told

    def _set_up_the_board(self) -> None:
        for job in self._unmanaged:
            if job.state is JobState.RUNNING:
                self._board.book(job.allocation)
        for ranked in self._running():
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
        job, style = ranked.job, self._style(ranked)
        key = (ranked.standing.level, style, job.given_up, _shape(job.request))
        return self._board.kind(key, job.request, style, only_idle=job.given_up)

    def _running(self) -> Iterator[_Ranked]:
        """Running jobs that are not already on their way out."""
        for ranked in self._ranked:
            if ranked.job.state is JobState.RUNNING and not ranked.job.vacating_for:
                yield ranked

    def _guards_of_the_running(self) -> dict[str, Guard]:
        config = self._config.preemption
        guards = ((r.job.job_id, guard_of(r.job, self._now_s, config)) for r in self._running())
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
        return replace(why, job_id=job.job_id, rank=ranked.number, promoted=ranked.promoted)

    def _start(
        self, ranked: _Ranked, on: Allocation, reason: Reason, victims: tuple[str, ...] = ()
    ) -> Decision:
        style = self._style(ranked)
        return _verdict(ranked, Action.START, reason, start_on=on, style=style, victims=victims)

    # Why a job waits

    def _note_refusal(self, kind: Kind, rank: Rank) -> None:
        if not kind.only_idle:
            self._refusals[kind] = self._why_it_waits(self._by_id[rank.job_id], kind)

    def _why_it_waits(self, ranked: _Ranked, kind: Kind) -> Decision:
        request = kind.request
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
        return self._who_is_in_the_way(ranked, kind)

    def _who_is_in_the_way(self, ranked: _Ranked, kind: Kind) -> Decision:
        eviction = self._board.by_eviction(kind, ranked.standing.level, even_guarded=True)
        if eviction is not None:
            guards = [
                (tenant.job_id, self._guards.get(tenant.job_id, Guard.MAX_VICTIMS))
                for tenant in eviction.tenants
            ]
            return _verdict(ranked, Action.WAIT, Reason.GUARDED, blockers=_first(guards))
        return _verdict(ranked, Action.WAIT, Reason.NO_ROOM, blockers=self._holders(ranked, kind))

    def _holders(self, ranked: _Ranked, kind: Kind) -> tuple[tuple[str, Guard], ...]:
        """The jobs that hold what this one could use: managed ones first, as they rank."""
        holders: list[tuple[str, Guard]] = []
        for other in self._running():
            job = other.job
            there = self._board.pool.nodes(job.allocation) & kind.nodes
            if there and self._board.is_running(job.job_id):
                lower = other.standing.level > ranked.standing.level
                guard = self._guards.get(job.job_id) if lower else Guard.SAME_TIER
                if guard:
                    holders.append((job.job_id, guard))
        holders.extend(
            (job.job_id, Guard.UNMANAGED)
            for job in self._unmanaged
            if job.state is JobState.RUNNING and self._board.pool.nodes(job.allocation) & kind.nodes
        )
        return _first(holders)


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


def _rank(jobs: Iterable[Job], policy: Policy, config: Config) -> list[_Ranked]:
    judged = []
    for job in jobs:
        if job.managed:
            promoted = deserves_promotion(job, config.policy) and not _blocked_by_slurm(job)
            standing = policy.standing(_reset(job) if promoted else job)
            judged.append((Rank.of(job.job_id, standing), standing, job, promoted))
    judged.sort(key=lambda entry: entry[0])
    return [
        _Ranked(job, standing, rank, number, promoted)
        for number, (rank, standing, job, promoted) in enumerate(judged)
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
    victims: tuple[str, ...] = (),
    preempted_for: str = "",
    blockers: tuple[tuple[str, Guard], ...] = (),
) -> Decision:
    return Decision(
        job_id=ranked.job.job_id,
        action=action,
        reason=reason,
        detail=detail,
        tier=ranked.standing.tier,
        rank=ranked.number,
        start_on=start_on or {},
        style=style,
        victims=victims,
        preempted_for=preempted_for,
        blockers=blockers,
        promoted=ranked.promoted,
    )


def _leave(job: Job) -> Decision:
    return Decision(job.job_id, Action.LEAVE, Reason.UNMANAGED, detail=job.unmanaged_because)


def _first(blockers: Sequence[tuple[str, Guard]]) -> tuple[tuple[str, Guard], ...]:
    return tuple(blockers[:MAX_BLOCKERS])


def _nodes_of(jobs: Iterable[Job]) -> frozenset[str]:
    return frozenset(node for job in jobs for node in job.allocation)


def _fits_empty(request: Request, nodes: Sequence[Node]) -> bool:
    pool = Pool(nodes)
    sets = [pool.nodes(names) for names in node_sets(request, nodes)]
    return place_on_any(request, sets, pool, PlacementStyle.CONSOLIDATE) is not None


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
