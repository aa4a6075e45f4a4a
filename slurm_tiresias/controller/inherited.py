"""Service of other jobs that is charged to a job (``policy.charge``).

A job begins with the service that earlier jobs of its user or account used in the window before its
start.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_tiresias.config import PolicyConfig
from slurm_tiresias.controller.runs import Runs
from slurm_tiresias.core.features.charge import BY_JOB, EndedRun, RecentService, payer_of
from slurm_tiresias.model import JobAccount
from slurm_tiresias.store.ledger import Ledger


class InheritedService:
    """The service that jobs inherit from earlier ones; zero if each job is charged by itself."""

    def __init__(self, ledger: Ledger, policy: PolicyConfig, runs: Runs) -> None:
        self._ledger = ledger
        self._policy = policy
        self._runs = runs
        self._recent: RecentService | None = None
        self._settled_gpu_s: dict[str, float] = {}
        """The service that started jobs began with, in GPU-seconds: fixed at their first start."""
        self.counts = policy.charge != BY_JOB

    def begin(self, records: Mapping[str, JobAccount], now_s: float) -> None:
        """On the first call, read from the ledger the runs that jobs may have inherited."""
        if self.counts and self._recent is None:
            starts_s = (r.first_started_s for r in records.values() if r.ended_s is None)
            first_s = min((at_s for at_s in starts_s if at_s is not None), default=now_s)
            since_s = min(first_s, now_s) - self._policy.charge_window_s
            runs = self._ledger.runs.ended_since(since_s, self._policy.charge)
            self._recent = RecentService(self._policy.charge_window_s, runs)

    def note_ended_runs(self, records: Mapping[str, JobAccount]) -> None:
        """Record the runs that have ended; accounting may still correct their service."""
        if self._recent is None:
            return
        for key, record in records.items():
            payer = payer_of(self._policy.charge, record.user, record.account)
            for run in self._runs.of(key):
                if run.end_s is not None:
                    service_gpu_s = run.attained_gpu_s
                    self._recent.put(EndedRun(key, run.start_s, payer, run.end_s, service_gpu_s))

    def forget_all_but_recent(self, now_s: float) -> None:
        """Drop the runs that no longer count."""
        if self._recent is not None:
            self._recent.forget_all_but_recent(now_s)

    def let_go(self, key: str) -> None:
        """Forget a job that has ended, or whose id was given to another job."""
        self._settled_gpu_s.pop(key, None)

    def gpu_s(self, record: JobAccount, now_s: float) -> float:
        """Return the service charged to a job beyond its own; 0 after a promotion."""
        if self._recent is None or record.promotions:
            return 0.0
        payer = payer_of(self._policy.charge, record.user, record.account)
        if record.first_started_s is None:
            return self._recent.gpu_s(payer, now_s)
        if record.key not in self._settled_gpu_s:
            self._settled_gpu_s[record.key] = self._recent.gpu_s(payer, record.first_started_s)
        return self._settled_gpu_s[record.key]
