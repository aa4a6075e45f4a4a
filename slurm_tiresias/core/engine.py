"""The scheduling engine: takes events about jobs and chooses which jobs start or are preempted.

In a simulation the events come from jobs whose service grows (``live.py``); in ``decide`` and the
controller they are the differences between snapshots (``planner.py``). Pure: no I/O and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Protocol

from slurm_tiresias.config import LEAST_LOSS, Config, PreemptionConfig
from slurm_tiresias.core.cluster import ClusterState, EquivalenceClass
from slurm_tiresias.core.features.job_rank import JobFacts, Key, UniqueRank
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.protection import Protected, before_save, protected_for_s
from slurm_tiresias.core.features.victim_rate import VictimRate
from slurm_tiresias.core.placement.candidate_matrix import least_shield
from slurm_tiresias.core.placement.choose import style_of_skew
from slurm_tiresias.model import (
    Allocation,
    FairStanding,
    Learned,
    Node,
    PlacementStyle,
    Protection,
    Request,
    WorkAtStake,
)


class Schedulable(JobFacts, Protocol):
    """The job attributes that the engine reads, besides those of its policy; see
    ``model.JobView``."""

    @property
    def request(self) -> Request: ...
    @property
    def style(self) -> PlacementStyle | None: ...
    @property
    def skew(self) -> float | None: ...
    @property
    def only_idle(self) -> bool: ...
    @property
    def allocation(self) -> Allocation: ...
    @property
    def running_since_s(self) -> float | None: ...
    @property
    def preemptions(self) -> int: ...
    @property
    def protected_by(self) -> Protection | None: ...
    @property
    def learned(self) -> Learned: ...
    @property
    def fair(self) -> FairStanding: ...
    @property
    def at_stake(self) -> WorkAtStake | None: ...


def protected_until_s(job: Schedulable, config: PreemptionConfig) -> float:
    """Return the time at which a running job's protection from preemption ends.

    ``-inf`` if it has none; ``inf`` if the protection does not end with time.
    """
    if job.protected_by is not None or 0 < config.max_per_job <= job.preemptions:
        return math.inf
    redoing_until_s = job.learned.redoing_until_s
    return max(
        min_run_until_s(job, config),
        -math.inf if redoing_until_s is None else redoing_until_s,
        _kept_until_s(job),
    )


def _kept_until_s(job: Schedulable) -> float:
    """Return until when a run is kept because the job is near the bound on its slowdown; a run that
    leaves its GPUs idle is not."""
    return -math.inf if job.ranks_last else job.fair.kept_until_s


def min_run_until_s(job: Schedulable, config: PreemptionConfig) -> float:
    """Return when a running job's minimum run time is over; ``-inf`` if it has none."""
    least_s = protected_for_s(job.preemptions, config, job.learned)
    if least_s <= 0 or job.running_since_s is None:
        return -math.inf
    return job.running_since_s + least_s


def protections(job: Schedulable, config: Config) -> list[Protected]:
    """Return when a running job may not be preempted."""
    until_s = protected_until_s(job, config.preemption)
    always = [Protected(-math.inf, until_s)] if until_s > -math.inf else []
    return [*always, *before_save(job.at_stake, config)]


def protection_of(job: Schedulable, now_s: float, config: Config, level: Key) -> Protection | None:
    """Return what protects a running job now from preemptors of a level; None if nothing does."""
    if job.protected_by is not None:
        return job.protected_by
    if 0 < config.preemption.max_per_job <= job.preemptions:
        return Protection.MAX_PREEMPTIONS
    if now_s < min_run_until_s(job, config.preemption):
        return Protection.MIN_RUN
    if now_s < _kept_until_s(job):
        return Protection.AT_BOUND
    if now_s < protected_until_s(job, config.preemption):
        return Protection.REDOING_WORK
    least = least_shield(level, even_protected=False)
    for save in before_save(job.at_stake, config):
        if save.shield >= least and save.holds(now_s):
            return Protection.SAVE_DUE
    return None


class Engine:
    """A cluster state whose waiting jobs are grouped into equivalence classes by this engine."""

    def __init__(
        self,
        policy: Policy,
        config: Config,
        nodes: Iterable[Node],
        last_resort: Iterable[str] = (),
    ) -> None:
        """``last_resort`` names nodes that are used only if no others suffice."""
        self.policy = policy
        self.config = config
        self.state = ClusterState(
            nodes,
            last_resort=last_resort,
            victim_rate=VictimRate.of(config),
            weighs_losses=config.preemption.victims == LEAST_LOSS,
        )
        self._class_of: dict[Hashable, tuple[Request, EquivalenceClass]] = {}
        self._settled: dict[Hashable, tuple[Request, Hashable]] = {}
        """For requests that may be one task, by shape: the request to place, and its shape."""

    # Events

    def put_in_queue(self, job: Schedulable, rank: UniqueRank) -> EquivalenceClass:
        """Add a waiting job that may be started, or change its rank or request."""
        job_class = self.class_of(job, rank.level)
        self.state.wait(rank, job_class)
        return job_class

    def put_on_nodes(self, job: Schedulable, rank: UniqueRank, now_s: float) -> None:
        """Add a running job whose resources are booked already."""
        self.state.run(
            rank,
            job.allocation,
            job.width,
            now_s,
            protections(job, self.config),
            job.at_stake,
        )

    def restake(self, job: Schedulable, now_s: float) -> None:
        """Follow what a running job has at stake, and when it is protected."""
        self.state.restake(job.job_id, now_s, protections(job, self.config), job.at_stake)

    # Equivalence classes

    def class_of(self, job: Schedulable, level: Key) -> EquivalenceClass:
        """Return the equivalence class of a job at this level."""
        request, style, only_idle = job.request, job.style, job.only_idle
        # Equal requests are mostly the same object, and ids compare faster than contents.
        known_as = (id(request), style, job.skew, level, only_idle)
        known = self._class_of.get(known_as)
        if known is not None:
            return known[1]
        style = style or style_of_skew(job.skew, self.config.placement)
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

    @property
    def known_requests(self) -> int:
        """Number of requests kept; it shows how many outdated ones have accumulated."""
        return len(self._class_of)
