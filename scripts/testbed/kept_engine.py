"""An engine that is kept from snapshot to snapshot, and told only of what differs."""

from __future__ import annotations

import math

from slurm_tiresias.core.engine import Engine
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.model import Plan
from slurm_tiresias.settings import Config


class KeptEngine:
    """A job is unchanged if its object is the same."""

    def __init__(self, policy: Policy, config: Config) -> None:
        self._policy, self._config = policy, config
        self._engine = Engine(policy, config)
        self._jobs: dict[int, Job] = {}
        """By identity."""
        self._now_s = -math.inf

    def plan(self, snapshot: Snapshot, policy: Policy | None = None) -> Plan:
        """Plan as the controller does; ``policy`` replaces the previous one."""
        self._policy, now_s = policy or self._policy, snapshot.now_s
        if now_s < self._now_s:
            self._engine, self._jobs = Engine(self._policy, self._config), {}
        self._now_s, before = now_s, self._jobs
        self._jobs = dict(zip(map(id, snapshot.jobs), snapshot.jobs, strict=True))
        come = [self._jobs[one] for one in self._jobs.keys() - before.keys()]
        there = {job.job_id for job in come}
        for one in before.keys() - self._jobs.keys():
            if before[one].job_id not in there:
                self._engine.remove(before[one].job_id)
        self._engine.set_nodes(snapshot.nodes, now_s)
        self._engine.set_policy(self._policy, now_s)
        for job in come:
            self._engine.update(job, now_s)
        return self._engine.plan(now_s, snapshot.recent_victims)
