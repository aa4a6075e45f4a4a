"""The scheduling engine, which controller, shadow mode, simulator and ``explain`` share.

It is Pseudocode 2 of the paper (page 491) over real nodes. Jobs are visited in rank order: a
running job keeps its nodes unless a job before it preempts it; a waiting job takes idle GPUs first,
then those of later running jobs in lower tiers; a job that does not fit is skipped.

The engine is told of each change of a job or of the nodes, and looks again only at what the change
may affect. Its choices are those of a new engine that is told of everything as it is now. Pure: no
I/O and no clock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from slurm_tiresias.core.cluster import ClusterState, EquivalenceClass, Start
from slurm_tiresias.core.decisions import Decisions
from slurm_tiresias.core.entry import Entry, Role
from slurm_tiresias.core.features.feature import Feature
from slurm_tiresias.core.features.policy import EndedJob, Policy, rank_of
from slurm_tiresias.core.features.protections import protections
from slurm_tiresias.core.features.victim_rate import VictimRate
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.core.placement.choose import style_of
from slurm_tiresias.core.rank import JobRank, Key, UniqueRank
from slurm_tiresias.model import (
    NOWHERE,
    USUAL_STAKE,
    Allocation,
    JobState,
    Node,
    Plan,
    RecentVictims,
    Request,
    WorkAtStake,
)
from slurm_tiresias.settings import Config

MOST_LEFT_OVER = 1000
"""Outdated requests that may accumulate before the engine takes in all jobs anew."""

_ORDERS_WITHOUT_ENTRY = frozenset({"first-start", "running-first"})
"""The orders that do not depend on when a job entered its tier."""

JUST_BEFORE = 1.0 - 1e-12
"""A rank is looked at again slightly before it can change, whatever the rounding."""


class Engine:
    """The jobs and nodes of one cluster under one policy and configuration."""

    def __init__(
        self,
        policy: Policy,
        config: Config,
        nodes: Iterable[Node] = (),
        *,
        features: Sequence[Feature] = (),
        explains: bool = True,
    ) -> None:
        """Begin without jobs.

        ``features`` set facts of jobs before these are ranked; without one, its facts stay as they
        are. ``explains``: it can ``plan``, which gives the reason of every job; otherwise it can
        only ``choose``, and its owner carries out at once what it chooses.
        """
        self.policy = policy
        self.config = config
        self._features = features
        self._follow = _defined(features, "follow")
        self._forget = _defined(features, "forget")
        self._tick = _defined(features, "tick")
        self._changing = [each for each in features if _defines(each, "next_change_s")]
        self._avoiding = [each for each in features if _defines(each, "last_resort")]
        self._explains = explains
        self.promotes = not explains
        """Whether a promotion takes place when it is due. Otherwise the job is ranked as if it had
        been promoted, and its owner only watches."""
        self._entries: dict[str, Entry] = {}
        self._unmanaged: dict[str, tuple[Job, Allocation]] = {}
        """The unmanaged jobs, and what they hold."""
        self._begin(tuple(nodes), -math.inf)

    def _begin(self, nodes: tuple[Node, ...], now_s: float) -> None:
        """Begin with these nodes, and take in all jobs anew."""
        self._nodes = nodes
        for feature in self._features:
            feature.follow_nodes(nodes)
        self.state = ClusterState(
            nodes,
            victim_rate=VictimRate.of(self.config),
            has_tiers=self.policy.has_tiers,
        )
        self._decisions = Decisions(self.state, self.config) if self._explains else None
        self._class_of: dict[Hashable, tuple[Request, EquivalenceClass]] = {}
        self._settled: dict[Hashable, tuple[Request, Hashable]] = {}
        """For requests that may be one task, by shape: the request to place, and its shape."""
        self._completing: dict[str, Job] = {}
        self._ranks_when_needed = (
            not self._explains
            and self.policy.promotion.knob <= 0
            and self.config.policy.order in _ORDERS_WITHOUT_ENTRY
        )
        """Whether a rank may be looked at as late as it is needed, as the time of looking does not
        count."""
        self._due: list[tuple[float, str]] = []
        """Heap of (time at which the rank of a job may change, job id); some are outdated."""
        self._due_s: dict[str, float] = {}
        self._drifting: dict[str, Entry] = {}
        """Running jobs whose places among the others of their tiers change while they run."""
        self._of_user: dict[str, set[str]] = {}
        """Managed jobs by user; filled only if the policy learns."""
        self._outdated: set[str] = set()
        """Jobs whose ranks may have changed since they were ranked; some may be gone."""
        jobs = [entry.job for entry in self._entries.values()]
        jobs += [job for job, _ in self._unmanaged.values()]
        self._entries, self._unmanaged = {}, {}
        for job in jobs:
            self.update(job, now_s)

    # Changes

    def set_nodes(self, nodes: tuple[Node, ...], now_s: float) -> None:
        """Follow the nodes."""
        if not _same_nodes(self._nodes, nodes):
            self._begin(nodes, now_s)
        self._nodes = nodes

    def set_policy(self, policy: Policy, now_s: float) -> None:
        """Rank all jobs by another policy."""
        if policy != self.policy:
            self.policy = policy
            self._begin(self._nodes, now_s)

    def update(self, job: Job, now_s: float) -> None:
        """Take in a job, or any change of it; its service is up to date."""
        entry = self._entries.get(job.job_id)
        if job.job_id in self._unmanaged or (entry is not None and not job.managed):
            self.remove(job.job_id)
            entry = None
        if job.state is JobState.COMPLETING:
            self._completing[job.job_id] = job
        elif self._completing:
            self._completing.pop(job.job_id, None)
        if not job.managed:
            self._leave_alone(job)
            return
        for follow in self._follow:
            follow(job, now_s)
        role, holds = self._role_of(job)
        job_rank, promoted = self._judge(job, now_s)
        if entry is not None and self.promotes:
            # A promotion since the last plan stays to be told by the next one.
            promoted = promoted or entry.promoted
        rank = UniqueRank(job_rank.level, job_rank.order_key, job.id_key, job.job_id)
        if entry is None:
            entry = self._entries[job.job_id] = Entry(
                job, rank, job_rank.tier, promoted, role, holds
            )
            if self.policy.learns:
                self._of_user.setdefault(job.user, set()).add(job.job_id)
            self._put_in(entry, now_s)
        elif entry.role is role and self._stays(entry, job, rank, holds, now_s):
            if self._decisions and (role is not Role.RUNS or _is_told_anew(entry, job, job_rank)):
                self._decisions.undecided.add(job.job_id)
            entry.job, entry.tier, entry.promoted = job, job_rank.tier, promoted
            entry.leaves_because = job.leaves_because
        else:
            booked = entry.role is Role.STARTS and role is Role.RUNS
            if not booked:
                self._take_out(entry)
            elif rank.level > entry.rank.level:
                # By its start it fell behind jobs that were refused before.
                self.state.note_growth()
            entry.job, entry.rank, entry.tier = job, rank, job_rank.tier
            entry.promoted, entry.role, entry.holds = promoted, role, holds
            self._put_in(entry, now_s, booked=booked)
        self._look_ahead(entry, now_s)

    def served(self, job: Job, now_s: float) -> None:
        """Follow a running job of which nothing has changed but its service."""
        entry = self._entries.get(job.job_id)
        if entry is not None and job.executed_since_promotion_s >= entry.steady_until_s:
            self.update(job, now_s)

    def remove(self, job_id: str, ended: EndedJob | None = None) -> None:
        """Forget a job, and learn from it if it has run and ended."""
        self._completing.pop(job_id, None)
        if job_id in self._unmanaged:
            _, holds = self._unmanaged.pop(job_id)
            if holds:
                self.state.give_back(holds)
            if self._decisions:
                self._decisions.unmanaged_changed(runs=bool(holds))
            return
        entry = self._entries.pop(job_id, None)
        if entry is not None:
            self._take_out(entry)
            self._let_go(entry.job)
            if ended:
                entry.job.run_s = ended.run_s
            for forget in self._forget:
                forget(entry.job)
        if ended and self.policy.learns:
            for user in self.policy.learn(ended):
                self._outdated.update(self._of_user.get(user, ()))

    @property
    def jobs(self) -> list[Job]:
        """All jobs that the engine knows."""
        unmanaged = (job for job, _ in self._unmanaged.values())
        return [*(entry.job for entry in self._entries.values()), *unmanaged]

    def _leave_alone(self, job: Job) -> None:
        holds = NOWHERE
        if job.state is JobState.RUNNING:
            holds = self.state.free.closed_by(job.request, job.allocation)
        self._unmanaged[job.job_id] = job, holds
        if holds:
            self.state.book(holds)
        if self._decisions:
            self._decisions.leave_alone(job)
            self._decisions.unmanaged_changed(runs=bool(holds))

    def _put_in(self, entry: Entry, now_s: float, *, booked: bool = False) -> None:
        job = entry.job
        if self._decisions:
            self._decisions.enter(entry)
        match entry.role:
            case Role.WAITS:
                entry.job_class = self._class_for(job, entry.rank.level)
                self.state.wait(entry.rank, entry.job_class)
            case Role.HOLDS:
                self.state.book(entry.holds)
            case Role.RUNS:
                if not booked:
                    self.state.book(entry.holds)
                entry.protections = protections(job, self.config)
                entry.at_stake = self._at_stake(job)
                entry.leaves_because = job.leaves_because
                self.state.run(
                    entry.rank, entry.holds, job.gpus, now_s, entry.protections, entry.at_stake
                )

    def _take_out(self, entry: Entry) -> None:
        if self._decisions:
            self._decisions.leave(entry)
        match entry.role:
            case Role.WAITS:
                self.state.withdraw(entry.job.job_id)
            case Role.RUNS:
                self.state.leave(entry.job.job_id)
                self._drifting.pop(entry.job.job_id, None)
            case Role.HOLDS | Role.STARTS:
                self.state.give_back(entry.holds)

    def _let_go(self, job: Job) -> None:
        self._due_s.pop(job.job_id, None)
        self._drifting.pop(job.job_id, None)
        if self.policy.learns:
            self._of_user[job.user].discard(job.job_id)

    def _stays(
        self, entry: Entry, job: Job, rank: UniqueRank, holds: Allocation, now_s: float
    ) -> bool:
        """Follow a job that keeps its role; False if it must be taken out and put in again."""
        if entry.holds is not holds and entry.holds != holds:
            return False
        runs = entry.role is Role.RUNS
        moves = rank != entry.rank
        if moves and self._decisions:
            self._decisions.move(entry, rank)
        entry.rank = rank
        if runs:
            if moves:
                self.state.rerank(rank)
            guarded = protections(job, self.config)
            at_stake = self._at_stake(job)
            if guarded != entry.protections or at_stake != entry.at_stake:
                entry.protections, entry.at_stake = guarded, at_stake
                self.state.restake(job.job_id, now_s, guarded, at_stake)
                if self._decisions:
                    self._decisions.runners_changed = True
        elif entry.role is Role.WAITS:
            job_class = self._class_for(job, rank.level)
            if moves or job_class is not entry.job_class:
                entry.job_class = job_class
                self.state.wait(rank, job_class)
        return True

    def _at_stake(self, job: Job) -> WorkAtStake | None:
        """Return what a preemption of a running job would lose: its whole run if nothing is known,
        as the site may have no programs that save."""
        if job.at_stake is None and self.policy.has_tiers and job.running_since_s is not None:
            return WorkAtStake(job.running_since_s, math.inf, USUAL_STAKE.restart_s)
        return job.at_stake

    # Roles and ranks

    def _role_of(self, job: Job) -> tuple[Role, Allocation]:
        closed_by = self.state.free.closed_by
        if job.state is JobState.RUNNING:
            # A victim that is leaving no longer counts as running.
            runs = Role.RUNS, closed_by(job.request, job.allocation)
            return (Role.NONE, NOWHERE) if job.preemptor else runs
        if job.state is not JobState.PENDING or job.blocked_by_slurm:
            return Role.NONE, NOWHERE
        if job.nominated_to is not None and self._is_there(job, job.nominated_to):
            return Role.HOLDS, closed_by(job.request, job.nominated_to)
        return (Role.NONE if job.cools_down else Role.WAITS), NOWHERE

    def _is_there(self, job: Job, on: Allocation) -> bool:
        """Whether all nodes of a nomination exist and the job may use them."""
        node_index, nominated = self.state.node_index, self.state.free.nodes(on)
        if nominated.bit_count() != len(on):
            return False
        return any(
            not nominated & ~nodes for nodes in node_index.sets_for(job.request, node_index.usable)
        )

    def _judge(self, job: Job, now_s: float) -> tuple[JobRank, bool]:
        """Return the rank of a job, and whether it is to be promoted now.

        A job that enters another tier does so now, which may change its rank there.
        """
        due_s = self._promotion_due_s(job)
        if due_s > now_s:
            return self._ranked(job, now_s), False
        if self.promotes:
            job.promote(now_s)
            # An estimate, for one, no longer counts.
            for follow in self._follow:
                follow(job, now_s)
        else:
            # It enters the tier when it is promoted. Until then its rank is the same at all times.
            job = copy(job)
            job.tier = None
            job.promote(due_s)
        return self._ranked(job, now_s), self._explains

    def _promotion_due_s(self, job: Job) -> float:
        if not job.is_preemptible or job.blocked_by_slurm:
            return math.inf
        return self.policy.promotion.due_s(job)

    def _ranked(self, job: Job, now_s: float) -> JobRank:
        job_rank = rank_of(job, self.policy)
        if job_rank.tier != job.tier:
            if job.tier is not None:
                job.tier_entered_s = now_s
            job.tier = job_rank.tier
            job_rank = rank_of(job, self.policy)
        return job_rank

    def _look_ahead(self, entry: Entry, now_s: float) -> None:
        """Note when the rank of a job may change although nothing happens to it."""
        job, policy = entry.job, self.policy
        due_s = math.inf
        if entry.role is Role.RUNS:
            steady_s = policy.steady_for_s(job)
            entry.steady_until_s = (job.executed_since_promotion_s + steady_s) * JUST_BEFORE
            due_s = max(now_s, job.settled_s) + steady_s
            if policy.drifts_in(entry.tier, job):
                self._drifting[job.job_id] = entry
            elif self._drifting:
                self._drifting.pop(job.job_id, None)
        elif not entry.promoted:
            due_s = self._promotion_due_s(job)
        if due_s < math.inf:
            # Rounding may leave the job just short of the change; the next float reaches it.
            due_s = self._due_s[job.job_id] = max(due_s, math.nextafter(now_s, math.inf))
            heapq.heappush(self._due, (due_s, job.job_id))
        else:
            self._due_s.pop(job.job_id, None)

    def _follow_ticks(self, now_s: float) -> None:
        """Rank again the jobs whose facts the features have changed as time has passed."""
        for job_id in {job.job_id for tick in self._tick for job in tick(now_s)}:
            self._rank_again(job_id, now_s)

    def _follow_due(self, now_s: float, *, running: bool = True) -> None:
        """Rank again the jobs whose ranks may have changed by the passing of time, or by what the
        policy has learned: those that wait, or all."""
        outdated = self._outdated
        while self._due and self._due[0][0] <= now_s:
            due_s, job_id = heapq.heappop(self._due)
            if self._due_s.get(job_id) == due_s:
                outdated.add(job_id)
        due = set(outdated) if running else outdated.intersection(self.state.waiting)
        outdated -= due
        for job_id in due:
            self._rank_again(job_id, now_s)

    def _rank_again(self, job_id: str, now_s: float) -> None:
        entry = self._entries.get(job_id)
        if entry is None:
            return
        if entry.job.state is JobState.RUNNING:
            entry.job.settle(now_s)
        self.update(entry.job, now_s)

    def _follow_drift(self, now_s: float) -> None:
        ranks = []
        for entry in self._drifting.values():
            job = entry.job
            job.settle(now_s)
            job_rank = self._ranked(job, now_s)
            rank = UniqueRank(job_rank.level, job_rank.order_key, job.id_key, job.job_id)
            if rank != entry.rank:
                if self._decisions:
                    self._decisions.move(entry, rank)
                entry.rank = rank
                ranks.append(rank)
        self.state.rerank_all(ranks)

    # Equivalence classes

    def _class_for(self, job: Job, level: Key) -> EquivalenceClass:
        """Return the equivalence class of a job at this level."""
        request, style, only_idle = job.request, job.style, job.only_idle
        # Equal requests are mostly the same object, and ids compare faster than contents.
        known_as = (id(request), style, job.skew, level, only_idle)
        known = self._class_of.get(known_as)
        if known is not None:
            return known[1]
        style = style_of(job, self.config.placement)
        settled, shape = request, request.shape
        if request.may_be_one_task:
            if shape not in self._settled:
                settled = self.state.node_index.on_one_node_if_any_can(request)
                self._settled[shape] = settled, settled.shape
            settled, shape = self._settled[shape]
        key = (level, style, only_idle, shape)
        job_class = self.state.class_of(key, settled, style, only_idle=only_idle)
        # Keeping the request alive prevents another object from reusing its id.
        self._class_of[known_as] = request, job_class
        return job_class

    # Decisions

    def choose(self, now_s: float) -> list[Start]:
        """Choose the jobs that start now and their victims, as if all were carried out at once.

        The owner then tells of each start and of each victim with ``update``.
        """
        self._follow_ticks(now_s)
        if self._avoiding:
            avoided = {name for feature in self._avoiding for name in feature.last_resort}
            self.state.last_resort = self.state.free.nodes(avoided)
        self._follow_due(now_s, running=not self._ranks_when_needed)
        starts = self.state.choose(
            now_s,
            before_ranking=lambda: self._follow_due(now_s),
            before_preempting=lambda: self._follow_drift(now_s),
        )
        for start in starts:
            entry = self._entries[start.job_id]
            closed = self.state.free.closed_by(entry.job.request, start.allocation)
            entry.role, entry.holds = Role.STARTS, closed
            for victim in start.victims:
                self._entries[victim].role = Role.NONE
                self._due_s.pop(victim, None)
                self._drifting.pop(victim, None)
        return starts

    def plan(self, now_s: float, recent_victims: RecentVictims = RecentVictims()) -> Plan:  # noqa: B008
        """Decide for each job whether it keeps running, starts, is preempted or waits, and why.

        Starts and preemptions count once the engine is told of them; promotions do at once, if it
        ``promotes``.
        """
        assert self._decisions is not None
        if len(self._class_of) - len(self._entries) > MOST_LEFT_OVER:
            self._begin(self._nodes, now_s)
        self._follow_ticks(now_s)
        self._follow_due(now_s)
        self._follow_drift(now_s)
        # The last resort: nodes that complete other jobs, that must be booted first, or suspects.
        later = {node for job in self._completing.values() for node in job.allocation}
        later.update(node.name for node in self._nodes if node.powered_down)
        later.update(*(feature.last_resort for feature in self._avoiding))
        self.state.last_resort = self.state.free.nodes(later)
        self.state.recent_victims = recent_victims
        unmanaged = [job for job, _ in self._unmanaged.values()]
        plan = self._decisions.plan(self._entries, unmanaged, now_s)
        if self.promotes:
            for job_id in plan.promotions:
                entry = self._entries[job_id]
                entry.promoted = False
                self._decisions.undecided.add(job_id)
                self._look_ahead(entry, now_s)
        return plan

    @property
    def next_wake_s(self) -> float:
        """When to ``choose`` again even if nothing happens."""
        next_s = self.state.next_try_s
        if self.state.waiting or not self._ranks_when_needed:
            while self._due and self._due_s.get(self._due[0][1]) != self._due[0][0]:
                heapq.heappop(self._due)
            next_s = min(next_s, self._due[0][0] if self._due else math.inf)
        for feature in self._changing:
            next_s = min(next_s, feature.next_change_s)
        return next_s


def decide(snapshot: Snapshot, policy: Policy, config: Config) -> Plan:
    """Decide for each job of a snapshot whether it keeps running, starts, is preempted or waits.

    Parameters
    ----------
    snapshot
        All jobs and nodes at one time. Their order does not matter.
    policy
        ``features.make.make_policy(config.policy)``, or a baseline.
    config
        The settings for placement, preemption and promotion.

    Returns
    -------
    Plan
        A decision and its reason for each job of the snapshot.
    """
    engine = Engine(policy, config, snapshot.nodes)
    for job in snapshot.jobs:
        engine.update(job, snapshot.now_s)
    return engine.plan(snapshot.now_s, snapshot.recent_victims)


def _defines(feature: Feature, name: str) -> bool:
    """Whether a feature has its own form of an optional method."""
    return getattr(type(feature), name) is not getattr(Feature, name)


def _defined(features: Sequence[Feature], name: str) -> Sequence[Callable[..., Any]]:
    """Return a method of those features that have their own form of it: calls are frequent."""
    return [getattr(each, name) for each in features if _defines(each, name)]


def _is_told_anew(entry: Entry, job: Job, job_rank: JobRank) -> bool:
    """Whether the decision on a job that runs on is another one than before."""
    return job_rank.tier != entry.tier or job.leaves_because is not entry.leaves_because


def _same_nodes(before: tuple[Node, ...], now: tuple[Node, ...]) -> bool:
    """Whether the nodes are equal in all that decisions depend on."""
    return before is now or (
        len(before) == len(now)
        and all(
            a is b or a == (b if a.state == b.state else replace(b, state=a.state))
            for a, b in zip(before, now, strict=True)
        )
    )
