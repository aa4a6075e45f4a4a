"""An engine for jobs whose service grows while they run, as in a simulation.

It updates ranks itself when a job changes tiers, when the order of a tier changes as its jobs run,
and when the policy has learned from a job that ended.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from slurm_tiresias.config import Config
from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.engine import Engine, Schedulable
from slurm_tiresias.core.features.job_rank import Key, UniqueRank
from slurm_tiresias.core.features.policy import EndedJob, Policy, rank_of
from slurm_tiresias.model import JobState, Node


class LiveJob(Schedulable, EndedJob, Protocol):
    """A job that tracks its own service and tier."""

    @property
    def id_key(self) -> Key:
        """Key that breaks ties between ranks."""
        ...

    @property
    def tier(self) -> int: ...

    def settle(self, now_s: float) -> None:
        """Bring the attained service up to date."""
        ...

    def enter_tier(self, tier: int, now_s: float) -> None:
        """Record when the job enters a tier; its rank may depend on that time."""
        ...

    def promote(self) -> None:
        """Reset the charged service to zero."""
        ...


J = TypeVar("J", bound=LiveJob)


class LiveEngine(Engine, Generic[J]):
    """An engine that is notified of each event when it happens.

    Its caller carries out the starts and preemptions that ``choose`` returns.
    """

    def __init__(self, policy: Policy, config: Config, nodes: Iterable[Node]) -> None:
        super().__init__(policy, config, nodes)
        self._watched: dict[str, J] = {}
        """Running jobs whose ranks may change at times other than ``next_change_s``."""
        self._of_user: dict[str, dict[str, J]] = {}
        """Waiting and running jobs by user; filled only if the policy learns."""
        self._learned_of: set[tuple[str, str]] = set()
        """(User, name) of the jobs that the policy has learned from since the last ``choose``."""
        self._due: list[tuple[float, str]] = []
        self._due_s: dict[str, float] = {}
        """When the ranks of running jobs may change next; filled only if the policy learns. What it
        learns changes these times, so the caller cannot track them with ``next_change_s``."""

    # Events

    def waits(self, job: J, now_s: float) -> None:
        """Add a waiting job, or update its rank and request. A promotion that is due is applied."""
        if self.policy.promotion.is_due(job, now_s):
            job.promote()
        self.put_in_queue(job, self._rank(job, now_s))
        if self.policy.learns:
            self._of_user.setdefault(job.user, {})[job.job_id] = job

    def runs(self, job: J, now_s: float) -> None:
        """Record that a start chosen by ``choose`` has taken place."""
        self.put_on_nodes(job, self._rank(job, now_s), now_s)
        self._watch(job, now_s)

    def moved(self, job: J, now_s: float) -> None:
        """Update the rank of a running job, its protection and what it has at stake; its service is
        up to date."""
        self.state.rerank(self._rank(job, now_s))
        if job.at_stake is not None or self.config.policy.max_slowdown > 0:
            self.restake(job, now_s)
        self._watch(job, now_s)

    def ended(self, job: J) -> None:
        """Remove a running job that has ended and whose service is up to date."""
        self.state.leave(job.job_id)
        self._forget(job.job_id)
        if self.policy.learns:
            self.policy.learn(job)
            self._learned_of.add((job.user, job.name))

    # Decisions

    def choose(self, now_s: float) -> list[Start]:
        """Choose the jobs that start now and their victims, as ``ClusterState.choose`` does."""
        if self.policy.learns:
            self._follow_what_was_learned(now_s)
        if not self._watched:
            return self.state.choose(now_s)
        starts = self.state.choose(now_s, before_preempting=lambda: self._follow_drift(now_s))
        for start in starts:
            for victim in start.victims:
                self._forget(victim)
        return starts

    def next_change_s(self, job: J, now_s: float) -> float:
        """When the caller must report this job again (``waits`` or ``moved``) without an event."""
        if job.state is not JobState.RUNNING:
            return self.policy.promotion.due_s(job)
        return math.inf if self.policy.learns else now_s + self.policy.steady_for_s(job)

    @property
    def next_wake_s(self) -> float:
        """When to call ``choose`` again even if no event happens."""
        while self._due and self._due_s.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        return min(self.state.next_try_s, self._due[0][0] if self._due else math.inf)

    # Ranks that change

    def _rank(self, job: J, now_s: float) -> UniqueRank:
        job_rank = rank_of(job, self.policy)
        if job_rank.tier != job.tier:
            job.enter_tier(job_rank.tier, now_s)
            job_rank = rank_of(job, self.policy)
        return UniqueRank(job_rank.level, job_rank.order_key, job.id_key, job.job_id)

    def _watch(self, job: J, now_s: float) -> None:
        if self.policy.learns:
            begins_s = max(now_s, job.running_since_s or now_s)
            due_s = begins_s + self.policy.steady_for_s(job)
            # Rounding may leave the job just short of the change; the next float reaches it.
            due_s = self._due_s[job.job_id] = max(due_s, math.nextafter(now_s, math.inf))
            if due_s < math.inf:
                heapq.heappush(self._due, (due_s, job.job_id))
            self._of_user.setdefault(job.user, {})[job.job_id] = job
        if self.policy.learns or self.policy.drifts_in(job.tier, job):
            self._watched[job.job_id] = job
        elif self._watched:
            self._watched.pop(job.job_id, None)

    def _forget(self, job_id: str) -> None:
        job = self._watched.pop(job_id, None)
        if job is not None and self.policy.learns:
            del self._of_user[job.user][job_id]
            self._due_s.pop(job_id, None)

    def _follow_what_was_learned(self, now_s: float) -> None:
        affected = {
            job_id: job
            for user, name in self._learned_of
            for job_id, job in self._of_user[user].items()
            if self.policy.is_judged_by(job, name)
        }
        self._learned_of.clear()
        while self._due and self._due[0][0] <= now_s:
            due_s, job_id = heapq.heappop(self._due)
            if self._due_s.get(job_id) == due_s:
                affected[job_id] = self._watched[job_id]
        for job in affected.values():
            if job.state is JobState.RUNNING:
                job.settle(now_s)
                self.moved(job, now_s)
            else:
                self.waits(job, now_s)

    def _follow_drift(self, now_s: float) -> None:
        ranks = []
        for job in self._watched.values():
            if self.policy.drifts_in(job.tier, job):
                job.settle(now_s)
                ranks.append(self._rank(job, now_s))
        self.state.rerank_all(ranks)
