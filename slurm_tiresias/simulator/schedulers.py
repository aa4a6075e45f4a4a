"""The controller's scheduling engine as a scheduler of the simulation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from slurm_tiresias.config import Config
from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.engine import Engine
from slurm_tiresias.core.features.gittins import ServiceHistory
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.model import JobState, Node
from slurm_tiresias.simulator.bounds import bounds_of
from slurm_tiresias.simulator.budgets import budgets_of
from slurm_tiresias.simulator.engine import SimJob
from slurm_tiresias.simulator.fair_share import fair_share_of
from slurm_tiresias.simulator.reports import Reports


class Decided:
    """A scheduler that feeds the engine with events and, like the controller, tracks inherited
    service and preemption budgets."""

    def __init__(
        self,
        policy: Policy,
        config: Config,
        nodes: Sequence[Node],
        reports: Reports | None = None,
    ) -> None:
        self.policy = policy
        self._engine = Engine(policy, config, nodes, explains=False)
        self._fair_share = fair_share_of(config.policy)
        gpus = sum(node.total.gpu_count for node in nodes)
        self._budgets = budgets_of(config.preemption, gpus)
        self._bounds = bounds_of(policy, config, gpus)
        self._reports = reports

    def waits(self, job: SimJob, now_s: float) -> None:
        if self._fair_share:
            if job.runs:
                self._fair_share.over(job, job.runs[-1])
            else:
                self._fair_share.comes(job, now_s)
        if self._budgets:
            self._budgets.waits(job)
        if self._bounds:
            self._bounds.waits(job, now_s)
        self._engine.update(job, now_s)

    def runs(self, job: SimJob, now_s: float) -> None:
        if self._reports:
            self._reports.starts(job)
        if self._bounds:
            self._bounds.starts(job, now_s)
        self._engine.update(job, now_s)
        if self._fair_share:
            # Its victims may have the same payer, whose recent service has then just changed.
            self._fair_share.starts(job)
            self._engine.update(job, now_s)

    def moved(self, job: SimJob, now_s: float) -> None:
        if self._reports:
            self._reports.follow(job, now_s)
        if self._bounds:
            self._bounds.moved(job, now_s)
        self._engine.update(job, now_s)

    def ended(self, job: SimJob) -> None:
        job.settle(job.end_s)
        self._engine.ended(job, job)
        if self._bounds:
            self._bounds.ended(job)
        if self._reports:
            self._reports.ended(job)
        if self._budgets:
            self._budgets.ended(job)
        if self._fair_share:
            assert job.running_since_s is not None
            self._fair_share.over(job, (job.running_since_s, job.end_s))

    def choose(self, now_s: float) -> Iterable[Start]:
        if self._fair_share:
            changed = {job.job_id: job for job in self._fair_share.charged_anew(now_s)}
            for job in self._fair_share.new_jobs:
                if self.policy.promotion.is_due(job, now_s):
                    changed[job.job_id] = job
            for job in changed.values():
                self._engine.update(job, now_s)
        if self._budgets:
            for job in self._budgets.changed(now_s):
                self._engine.update(job, now_s)
        if self._bounds:
            for job in self._bounds.now_at_bound(now_s):
                self._engine.update(job, now_s)
        starts = self._engine.choose(now_s)
        if self._budgets and starts:
            self._budgets.carried_out(starts, now_s)
        return starts

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        change_s = math.inf
        if job.state is JobState.RUNNING:
            if self._reports:
                change_s = min(change_s, self._reports.next_s(job))
            if job.tells_saves:
                change_s = min(change_s, job.next_save_s)
        return change_s

    def next_wake_s(self, now_s: float) -> float:
        next_s = self._engine.next_wake_s
        if self._budgets:
            next_s = min(next_s, self._budgets.next_change_s)
        if self._bounds:
            next_s = min(next_s, self._bounds.next_change_s)
        if self._fair_share is None:
            return next_s
        due_s = min(map(self.policy.promotion.due_s, self._fair_share.new_jobs), default=math.inf)
        return min(next_s, self._fair_share.next_change_s, due_s)


def tiresias(
    config: Config,
    nodes: Sequence[Node],
    history: ServiceHistory | None = None,
    reports: Reports | None = None,
) -> Decided:
    """Return Tiresias-L, Tiresias-G or Tiresias-H, according to the configuration.

    ``history`` is the distribution of service that the policy knows from the start; ``reports``
    are those of the jobs.
    """
    return Decided(make_policy(config.policy, history), config, nodes, reports)
