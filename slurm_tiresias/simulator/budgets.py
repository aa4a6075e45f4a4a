"""Which simulated users may have jobs preempted, as the controller keeps account of it."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_tiresias.config import PreemptionConfig
from slurm_tiresias.policy.losses import Loss, RecentLosses, lost_gpu_s
from slurm_tiresias.scheduling.cluster import Start
from slurm_tiresias.simulator.engine import SimJob


class Budgets:
    """Knows the jobs of each user that wait or run, and what they have made others lose."""

    def __init__(self, config: PreemptionConfig, gpus: int) -> None:
        self._losses = RecentLosses(config)
        self._gpus = gpus
        self._over: frozenset[str] = frozenset()
        self._jobs: dict[str, SimJob] = {}
        self._waiting: dict[str, dict[str, SimJob]] = {}
        """By user."""

    def waits(self, job: SimJob) -> None:
        self._jobs[job.job_id] = job
        self._waiting.setdefault(job.user, {})[job.job_id] = job
        job.only_idle = job.user in self._over

    def ended(self, job: SimJob) -> None:
        del self._jobs[job.job_id]

    def changed(self, now_s: float) -> Iterable[SimJob]:
        """The waiting jobs of users who have come to their budget, or below it again."""
        before, self._over = self._over, self._losses.over_budget(now_s, self._gpus)
        for user in sorted(before ^ self._over):
            for job in list(self._waiting.get(user, {}).values()):
                job.only_idle = user in self._over
                yield job

    def carried_out(self, starts: Iterable[Start], now_s: float) -> None:
        """Take in who starts, and who leaves for it."""
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
    """None where there is no bound."""
    return Budgets(config, gpus) if config.budget_share > 0 else None
