"""The core as a scheduler of the simulation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.engine import Engine
from slurm_tiresias.core.features.gittins import ServiceHistory
from slurm_tiresias.core.features.in_order import Past, make_features
from slurm_tiresias.core.features.losses import RecentLosses, losses_of
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.program_costs import CostHistory
from slurm_tiresias.model import JobAccount, JobState, Node, RunRecord
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.engine import SimJob
from slurm_tiresias.simulator.reports import Reports

BEGIN_TIME = "BeginTime"
"""Slurm's reason for a requeued job that may not start yet."""


class TiresiasScheduler:
    """Tells the core what happens in a simulation; what it chooses is carried out at once."""

    def __init__(
        self, policy: Policy, config: Config, nodes: Sequence[Node], reports: Reports | None = None
    ) -> None:
        self.policy = policy
        self._losses = RecentLosses(config.preemption)
        features = make_features(config, Past(self._losses))
        self._charging = features.charging
        self._features = features.in_order
        self._engine = Engine(policy, config, nodes, features=features.in_order, explains=False)
        self._reports = reports
        self._costs = CostHistory()
        self._costs_changed = False
        """Whether a preemption was measured since the last choice."""
        self._jobs: dict[str, SimJob] = {}

    def waits(self, job: SimJob, now_s: float) -> None:
        self._jobs[job.job_id] = job
        job.not_eligible = ""
        job.reports = self._reports is not None and self._reports.has(job)
        job.program_costs = self._costs.costs_of(*_program(job))
        self._engine.update(job, now_s)

    def runs(self, job: SimJob, now_s: float) -> None:
        if self._reports:
            self._reports.starts(job)
        self._engine.update(job, now_s)

    def moved(self, job: SimJob, now_s: float) -> None:
        if self._reports:
            self._reports.follow(job, now_s)
        self._engine.update(job, now_s)

    def preempted(self, job: SimJob, now_s: float) -> None:
        self._count_run(job, *job.runs[-1])
        job.not_eligible = BEGIN_TIME
        self._engine.update(job, now_s)
        if job.measured and (job.tells_saves or job.reports):
            self._costs.add(*_program(job), job.measured)
            self._costs_changed = True

    def ended(self, job: SimJob) -> None:
        assert job.running_since_s is not None
        job.settle(job.end_s)
        del self._jobs[job.job_id]
        self._engine.remove(job.job_id, job)
        if self._reports:
            self._reports.ended(job)
        self._count_run(job, job.running_since_s, job.end_s)

    def failed(self, job: SimJob, now_s: float) -> None:
        assert job.running_since_s is not None
        job.settle(now_s)
        since_s, ran_s = job.running_since_s, now_s - job.running_since_s
        account = JobAccount(job.job_id, 0, 0.0, 0.0, 0.0, 0, user=job.user, name=job.name)
        run = RunRecord(job.job_id, since_s, now_s, ran_s, job.gpus, confirmed=True)
        ended = replace(run, nodes=",".join(job.allocation), outcome="NODE_FAIL")
        for feature in self._features:
            feature.run_ended(account, ended)
        del self._jobs[job.job_id]
        self._engine.remove(job.job_id)
        self._count_run(job, since_s, now_s)

    def ended_in_grace(self, job: SimJob) -> None:
        self.ended(job)

    def _follow_costs(self, now_s: float) -> None:
        """Let all jobs know what preemptions of their programs cost now."""
        for job in self._jobs.values():
            costs = self._costs.costs_of(*_program(job))
            if costs != job.program_costs:
                job.program_costs = costs
                if job.state is JobState.RUNNING:
                    job.settle(now_s)
                    job.follow_stake()
                self._engine.update(job, now_s)

    def _count_run(self, job: SimJob, start_s: float, end_s: float) -> None:
        if self._charging:
            service_gpu_s = (end_s - start_s) * job.width
            self._charging.count(
                job.job_id, job.user, job.bank_account, start_s, end_s, service_gpu_s
            )

    def choose(self, now_s: float) -> Iterable[Start]:
        if self._costs_changed:
            self._costs_changed = False
            self._follow_costs(now_s)
        starts = self._engine.choose(now_s)
        for start in starts:
            for victim in map(self._jobs.__getitem__, start.victims):
                assert victim.running_since_s is not None
                ran_s = now_s - victim.running_since_s
                user = self._jobs[start.job_id].user
                for loss in losses_of(now_s, user, victim.user, victim.gpus, ran_s, 0.0):
                    self._losses.add(loss)
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
        return self._engine.next_wake_s


def _program(job: SimJob) -> tuple[str, str]:
    """Return the user and the name of a job; a job without a name is a program of its own."""
    return job.user, job.name or job.job_id


def tiresias(
    config: Config,
    nodes: Sequence[Node],
    history: ServiceHistory | None = None,
    reports: Reports | None = None,
) -> TiresiasScheduler:
    """Return Tiresias-L or Tiresias-G, according to the configuration.

    ``history`` is the distribution of service that the policy knows from the start; ``reports``
    are those of the jobs.
    """
    return TiresiasScheduler(make_policy(config.policy, history), config, nodes, reports)
