"""Preemption budgets of simulated users, counted as the controller counts them."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_tiresias.config import PreemptionConfig
from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.features.losses import Loss, RecentLosses, lost_gpu_s
from slurm_tiresias.simulator.engine import SimJob


class Budgets:
    """The waiting and running jobs of each user, and the losses that they have caused."""

    def __init__(self, config: PreemptionConfig, gpus: int) -> None:
        self._losses = RecentLosses(config)
        self._gpus = gpus
        self._over: frozenset[str] = frozenset()
        self._jobs: dict[str, SimJob] = {}
        self._waiting: dict[str, dict[str, SimJob]] = {}
        """Waiting jobs by user and id."""

    def waits(self, job: SimJob) -> None:
        self._jobs[job.job_id] = job
        self._waiting.setdefault(job.user, {})[job.job_id] = job
        job.over_budget = job.user in self._over

    def ended(self, job: SimJob) -> None:
        del self._jobs[job.job_id]

    def changed(self, now_s: float) -> Iterable[SimJob]:
        """Update and yield the waiting jobs of users who have gone over their budget or are below
        it again."""
        before, self._over = self._over, self._losses.over_budget(now_s, self._gpus)
        for user in sorted(before ^ self._over):
            for job in list(self._waiting.get(user, {}).values()):
                job.over_budget = user in self._over
                yield job

    def carried_out(self, starts: Iterable[Start], now_s: float) -> None:
        """Record starts, and the losses of their victims."""
        for start in starts:
            job = self._jobs[start.job_id]
            del self._waiting[job.user][job.job_id]
            for victim in map(self._jobs.__getitem__, start.victims):
                if victim.user != job.user and victim.running_since_s is not None:
                    lost = lost_gpu_s(victim.width, now_s - victim.running_since_s)
                    self._losses.add(Loss(now_s, job.user, lost))

    @property
    def next_change_s(self) -> float:
        return self._losses.next_change_s


def budgets_of(config: PreemptionConfig, gpus: int) -> Budgets | None:
    """Return the budgets; None if preemption is not limited by a budget."""
    return Budgets(config, gpus) if config.budget_share > 0 else None
