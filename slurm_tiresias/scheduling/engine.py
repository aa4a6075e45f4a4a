"""The scheduling engine: told what happens to jobs, it says which start and which are preempted.

An engine is fed events. A simulation does that while the service of its jobs grows (``live.py``),
``decide`` and the controller do it from snapshots (``planner.py``). Pure: no I/O and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Protocol

from slurm_tiresias.config import Config, PreemptionConfig
from slurm_tiresias.model import Allocation, Node, PlacementStyle, Protection, Request
from slurm_tiresias.placement.choose import style_of_skew
from slurm_tiresias.policy.job_rank import JobFacts, Key, UniqueRank
from slurm_tiresias.policy.policy import Policy
from slurm_tiresias.policy.protection import protected_for_s
from slurm_tiresias.scheduling.cluster import ClusterState, EquivalenceClass


class Schedulable(JobFacts, Protocol):
    """What the engine asks of a job, besides what its policy does; see ``model.JobView``."""

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


def protected_until_s(job: Schedulable, config: PreemptionConfig) -> float:
    """Until when a running job may not be preempted; infinite while what protects it lasts."""
    if job.protected_by is not None or 0 < config.max_per_job <= job.preemptions:
        return math.inf
    least_s = protected_for_s(job.preemptions, config)
    if least_s <= 0 or job.running_since_s is None:
        return -math.inf
    return job.running_since_s + least_s


def protection_of(job: Schedulable, now_s: float, config: PreemptionConfig) -> Protection | None:
    """What protects a running job from preemption now, if anything does."""
    if job.protected_by is not None:
        return job.protected_by
    if 0 < config.max_per_job <= job.preemptions:
        return Protection.MAX_PREEMPTIONS
    return Protection.MIN_RUN if now_s < protected_until_s(job, config) else None


class Engine:
    """Ranks jobs by a policy, and keeps what the choice of the next starts depends on."""

    def __init__(
        self,
        policy: Policy,
        config: Config,
        nodes: Iterable[Node],
        last_resort: Iterable[str] = (),
    ) -> None:
        """``last_resort``: nodes that are used only where no others will do."""
        self.policy = policy
        self.config = config
        self.state = ClusterState(
            nodes,
            last_resort=last_resort,
            most_victims=config.preemption.max_victims_per_cycle,
        )
        self._class_of: dict[Hashable, tuple[Request, EquivalenceClass]] = {}
        self._settled: dict[Hashable, tuple[Request, Hashable]] = {}
        """By shape, of what may be one task: as it is laid over nodes, and the shape of that."""

    # What happens

    def put_in_queue(self, job: Schedulable, rank: UniqueRank) -> EquivalenceClass:
        """A job waits and may be started, or waits with another rank or request than before."""
        job_class = self.class_of(job, rank.level)
        self.state.wait(rank, job_class)
        return job_class

    def put_on_nodes(self, job: Schedulable, rank: UniqueRank, now_s: float) -> None:
        """A job runs; its resources are booked already."""
        until_s = protected_until_s(job, self.config.preemption)
        if until_s <= now_s:
            until_s = -math.inf
        self.state.run(rank, job.allocation, job.width, until_s)

    # What a job is to the engine

    def class_of(self, job: Schedulable, level: Key) -> EquivalenceClass:
        """The jobs that have no room where this one has none."""
        request, style, only_idle = job.request, job.style, job.only_idle
        # Jobs that ask alike mostly share one request; to compare what it says would take longer.
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
        # The request is kept with it: the id of one that is gone may become another's.
        self._class_of[known_as] = request, job_class
        return job_class

    @property
    def known_requests(self) -> int:
        """How many requests are kept: a measure of what has piled up."""
        return len(self._class_of)
