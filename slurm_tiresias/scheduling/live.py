"""An engine for jobs whose service grows while it knows them, as in a simulation.

It follows by itself when ranks change: because a job crosses into another tier, because the order
of a tier drifts as jobs run on, and because a policy has learned from a job that ended.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from slurm_tiresias.config import Config
from slurm_tiresias.model import JobState, Node
from slurm_tiresias.policy.job_rank import Key, UniqueRank
from slurm_tiresias.policy.policy import EndedJob, Policy
from slurm_tiresias.scheduling.cluster import Start
from slurm_tiresias.scheduling.engine import Engine, Schedulable


class LiveJob(Schedulable, EndedJob, Protocol):
    """A job that keeps account of itself."""

    @property
    def id_key(self) -> Key:
        """Breaks ties between ranks."""
        ...

    @property
    def tier(self) -> int: ...

    def settle(self, now_s: float) -> None:
        """Bring its service up to date."""
        ...

    def enter_tier(self, tier: int, now_s: float) -> None:
        """Note that it enters a tier; its rank may follow from when it does."""
        ...

    def promote(self) -> None:
        """Count its service from zero again."""
        ...


J = TypeVar("J", bound=LiveJob)


class LiveEngine(Engine, Generic[J]):
    """Told of each event when it happens; what it says is to start or to leave, does."""

    def __init__(self, policy: Policy, config: Config, nodes: Iterable[Node]) -> None:
        super().__init__(policy, config, nodes)
        self._watched: dict[str, J] = {}
        """Running jobs whose ranks do not just change when ``next_change_s`` says."""
        self._of_user: dict[str, dict[str, J]] = {}
        """The jobs that wait or run, where the policy learns."""
        self._learned_of: set[tuple[str, str]] = set()
        """The users and names of the jobs of which the policy has learned since the last choice."""
        self._due: list[tuple[float, str]] = []
        self._due_s: dict[str, float] = {}
        """When ranks of running jobs may change next, where the policy learns: what it learns
        moves these times, which the caller could not follow."""

    # What happens

    def waits(self, job: J, now_s: float) -> None:
        """A job waits, or its rank or what is asked for it has changed."""
        if self.policy.promotion.is_due(job, now_s):
            job.promote()
        self.put_in_queue(job, self._rank(job, now_s))
        if self.policy.learns:
            self._of_user.setdefault(job.user, {})[job.job_id] = job

    def runs(self, job: J, now_s: float) -> None:
        """A start that was chosen has taken place."""
        self.put_on_nodes(job, self._rank(job, now_s), now_s)
        self._watch(job, now_s)

    def moved(self, job: J, now_s: float) -> None:
        """The service of a running job, up to date, may have changed its rank."""
        self.state.rerank(self._rank(job, now_s))
        self._watch(job, now_s)

    def ended(self, job: J) -> None:
        """A running job has ended; its service is up to date."""
        self.state.leave(job.job_id)
        self._forget(job.job_id)
        if self.policy.learns:
            self.policy.learn(job)
            self._learned_of.add((job.user, job.name))

    # What follows

    def choose(self, now_s: float) -> list[Start]:
        """Which jobs start now. The resources of the victims are taken for it."""
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
        """When the caller must tell of this job again though nothing happens to it."""
        if job.state is not JobState.RUNNING:
            return self.policy.promotion.due_s(job)
        return math.inf if self.policy.learns else now_s + self.policy.steady_for_s(job)

    @property
    def next_wake_s(self) -> float:
        """When to choose again though nothing happens."""
        while self._due and self._due_s.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        return min(self.state.next_try_s, self._due[0][0] if self._due else math.inf)

    # Ranks that change

    def _rank(self, job: J, now_s: float) -> UniqueRank:
        job_rank = self.policy.rank(job)
        if job_rank.tier != job.tier:
            job.enter_tier(job_rank.tier, now_s)
            job_rank = self.policy.rank(job)
        return UniqueRank(job_rank.level, job_rank.order_key, job.id_key, job.job_id)

    def _watch(self, job: J, now_s: float) -> None:
        if self.policy.learns:
            begins_s = max(now_s, job.running_since_s or now_s)
            due_s = begins_s + self.policy.steady_for_s(job)
            # A moment missed by a rounding error is reached with the next number there is.
            due_s = self._due_s[job.job_id] = max(due_s, math.nextafter(now_s, math.inf))
            if due_s < math.inf:
                heapq.heappush(self._due, (due_s, job.job_id))
            self._of_user.setdefault(job.user, {})[job.job_id] = job
        if self.policy.learns or self.policy.drifts_in(job.tier):
            self._watched[job.job_id] = job
        elif self._watched:
            self._watched.pop(job.job_id, None)

    def _forget(self, job_id: str) -> None:
        """A job runs no longer."""
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
            if self.policy.drifts_in(job.tier):
                job.settle(now_s)
                ranks.append(self._rank(job, now_s))
        self.state.rerank_all(ranks)
