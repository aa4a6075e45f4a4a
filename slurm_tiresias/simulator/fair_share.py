"""The service that simulated jobs inherit from other jobs of their user or account."""

from __future__ import annotations

import math
from collections.abc import Iterator

from slurm_tiresias.config import PolicyConfig
from slurm_tiresias.core.features.charge import BY_JOB, EndedRun, RecentService, payer_of
from slurm_tiresias.simulator.engine import SimJob


class FairShareState:
    """Updates ``inherited_gpu_s`` of jobs that have not started yet, as the controller does."""

    def __init__(self, charge: str, window_s: float) -> None:
        self._charge_by = charge
        self._recent = RecentService(window_s)
        self._new: dict[str, dict[str, SimJob]] = {}
        """Jobs that have never run, by payer."""
        self._next_change_s: dict[str, float] = {}
        """When the inherited service next changes, by payer with finished runs."""

    def comes(self, job: SimJob, now_s: float) -> None:
        self._new.setdefault(self._payer_of(job), {})[job.job_id] = job
        self._charge(job, now_s)

    def starts(self, job: SimJob) -> None:
        """Fix the job's inherited service as of its first start."""
        new = self._new.get(self._payer_of(job), {})
        if new.pop(job.job_id, None) and job.first_started_s is not None:
            self._charge(job, job.first_started_s)

    def over(self, job: SimJob, run: tuple[float, float]) -> None:
        start_s, end_s = run
        service_gpu_s = (end_s - start_s) * job.width
        payer = self._payer_of(job)
        self._recent.put(EndedRun(job.job_id, start_s, payer, end_s, service_gpu_s))
        self._next_change_s[payer] = end_s

    def charged_anew(self, now_s: float) -> Iterator[SimJob]:
        """Update and yield the jobs whose inherited service has changed since the last call."""
        if self.next_change_s > now_s:
            return
        self._recent.forget_all_but_recent(now_s)
        for payer, at_s in self._next_change_s.items():
            if at_s <= now_s:
                self._next_change_s[payer] = self._recent.next_change_s(payer, now_s)
                for job in self._new.get(payer, {}).values():
                    self._charge(job, now_s)
                    yield job

    @property
    def new_jobs(self) -> Iterator[SimJob]:
        """The jobs that have never run."""
        return (job for jobs in self._new.values() for job in jobs.values())

    @property
    def next_change_s(self) -> float:
        changes_s = (at_s for payer, at_s in self._next_change_s.items() if self._new.get(payer))
        return min(changes_s, default=math.inf)

    def _payer_of(self, job: SimJob) -> str:
        return payer_of(self._charge_by, job.user, job.trace.account)

    def _charge(self, job: SimJob, at_s: float) -> None:
        inherited_gpu_s = self._recent.gpu_s(self._payer_of(job), at_s)
        job.inherited_gpu_s = 0.0 if job.promotions else inherited_gpu_s


def fair_share_of(config: PolicyConfig) -> FairShareState | None:
    """Return the fair-share state; None if charging is per job."""
    return (
        None if config.charge == BY_JOB else FairShareState(config.charge, config.charge_window_s)
    )
