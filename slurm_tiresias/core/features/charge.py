"""Recent service by payer (user or account), which a payer's new jobs inherit."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

from slurm_tiresias.core.features.feature import Feature
from slurm_tiresias.core.features.window import CLOCKS_DIFFER_S, is_recent
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import JobAccount, RunRecord
from slurm_tiresias.settings.policy import CHARGES, PolicyConfig

BY_JOB, BY_USER, BY_ACCOUNT = CHARGES

CHARGE_WINDOW_S = 86_400.0
"""How long a finished run counts: a day, so that a user who is away overnight begins afresh."""


def payer_of(charge: str, user: str, account: str) -> str:
    """Billing key under ``policy.charge``: ``user X`` or ``account Y``; "" if charging is per job.
    A job without an account is charged to its user."""
    if charge == BY_ACCOUNT and account:
        return f"account {account}"
    return f"user {user}" if charge != BY_JOB and user else ""


class EndedRun(NamedTuple):
    """A finished run and its GPU-seconds; the job ended or was preempted."""

    job_id: str
    start_s: float
    payer: str
    end_s: float
    service_gpu_s: float


class RecentService:
    """The service of finished runs by payer. A run counts until ``window_s`` after its end."""

    def __init__(self, window_s: float, runs: Iterable[EndedRun] = ()) -> None:
        self._window_s: Final = window_s
        self._runs: Final[dict[tuple[str, float], EndedRun]] = {}
        self._of_payer: Final[dict[str, dict[tuple[str, float], EndedRun]]] = {}
        self._sums: Final[dict[str, tuple[list[float], list[float]]]] = {}
        """Cache by payer: sorted ends of its runs, and cumulative GPU-seconds starting at 0."""
        for run in runs:
            self.put(run)

    def put(self, run: EndedRun) -> None:
        """Add or replace the measurement of a finished run. Runs without a payer are ignored."""
        key = run.job_id, run.start_s
        if run.payer and self._runs.get(key) != run:
            self._forget(key)
            self._runs[key] = run
            self._of_payer.setdefault(run.payer, {})[key] = run
            self._sums.pop(run.payer, None)

    def forget_all_but_recent(self, now_s: float) -> None:
        """Drop the runs that no longer count."""
        window_s = self._window_s
        over = [k for k, run in self._runs.items() if not is_recent(run.end_s, now_s, window_s)]
        for key in over:
            self._forget(key)

    def _forget(self, key: tuple[str, float]) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            del self._of_payer[run.payer][key]
            self._sums.pop(run.payer, None)

    def gpu_s(self, payer: str, at_s: float) -> float:
        """GPU-seconds of the payer's runs that ended in the window before this time."""
        ends_s, sums_gpu_s = self._sums_of(payer)
        first = bisect_right(ends_s, at_s - self._window_s)
        return sums_gpu_s[bisect_right(ends_s, at_s)] - sums_gpu_s[first]

    def next_change_s(self, payer: str, at_s: float) -> float:
        """When a run of the payer next starts or stops counting; infinite if none will."""
        ends_s, _ = self._sums_of(payer)
        next_one, oldest = bisect_right(ends_s, at_s), bisect_right(ends_s, at_s - self._window_s)
        next_end_s = ends_s[next_one] if next_one < len(ends_s) else math.inf
        over_s = ends_s[oldest] + self._window_s if oldest < len(ends_s) else math.inf
        return min(next_end_s, over_s)

    def _sums_of(self, payer: str) -> tuple[list[float], list[float]]:
        found = self._sums.get(payer)
        if found is None:
            of_payer = self._of_payer.get(payer, {}).values()
            runs = sorted((run.end_s, run.service_gpu_s) for run in of_payer)
            sums_gpu_s = accumulate((service_gpu_s for _, service_gpu_s in runs), initial=0.0)
            found = self._sums[payer] = [end_s for end_s, _ in runs], list(sums_gpu_s)
        return found


class Charging(Feature):
    """Sets ``inherited_gpu_s``: the service of earlier jobs of a job's user or account that is
    charged to it too.

    A job inherits what they used in the window before its first start, or before now while it has
    never run and is not about to start; a promotion ends that.
    """

    def __init__(
        self, config: PolicyConfig, runs: Iterable[EndedRun] = (), now_s: float = math.inf
    ) -> None:
        """``runs`` have ended before; those after ``now_s`` are of a clock that was ahead."""
        runs = [run for run in runs if run.end_s <= now_s + CLOCKS_DIFFER_S]
        self._charge_by = config.charge
        self._recent = RecentService(CHARGE_WINDOW_S, runs)
        self._payers: dict[str, str] = {}
        """The payers of jobs. The account of a job may be changed."""
        self._new: dict[str, dict[str, Job]] = {}
        """Jobs that have never run, by payer."""
        self._settled_gpu_s: dict[str, float] = {}
        """What started jobs inherit: fixed at their first start."""
        self._next_change_s = dict.fromkeys((run.payer for run in runs), -math.inf)
        """When what is inherited next changes, by payer with ended runs."""

    def run_ended(self, account: JobAccount, run: RunRecord) -> None:
        if run.end_s is not None:
            who = run.key, account.user, account.account
            self.count(*who, run.start_s, run.end_s, run.attained_gpu_s)

    def count(
        self,
        job_id: str,
        user: str,
        account: str,
        start_s: float,
        end_s: float,
        service_gpu_s: float,
    ) -> None:
        """Count a run that has ended. Its figures may be corrected later."""
        payer = payer_of(self._charge_by, user, account)
        self._recent.put(EndedRun(job_id, start_s, payer, end_s, service_gpu_s))
        self._next_change_s[payer] = min(end_s, self._next_change_s.get(payer, math.inf))

    def follow(self, job: Job, now_s: float) -> None:
        payer = payer_of(self._charge_by, job.user, job.bank_account)
        is_known = job.job_id in self._payers
        before = self._payers.get(job.job_id, payer)
        self._payers[job.job_id] = payer
        if before != payer or job.first_started_s is not None:
            self._new.get(before, {}).pop(job.job_id, None)
        if job.first_started_s is None:
            self._new.setdefault(payer, {})[job.job_id] = job
            if job.promotions:
                job.inherited_gpu_s = 0.0
            elif not (is_known and job.nominated_to):
                # Otherwise the runs of its own victims would rank it down before its start.
                job.inherited_gpu_s = self._recent.gpu_s(payer, now_s)
            return
        if job.job_id not in self._settled_gpu_s:
            # A run that ended at that moment, as a victim's does, may not be known of yet.
            before_s = math.nextafter(job.first_started_s, -math.inf)
            self._settled_gpu_s[job.job_id] = self._recent.gpu_s(payer, before_s)
        job.inherited_gpu_s = 0.0 if job.promotions else self._settled_gpu_s[job.job_id]

    def forget(self, job: Job) -> None:
        self._new.get(self._payers.pop(job.job_id), {}).pop(job.job_id, None)
        self._settled_gpu_s.pop(job.job_id, None)

    def tick(self, now_s: float) -> Iterable[Job]:
        if self.next_change_s > now_s:
            return
        self._recent.forget_all_but_recent(now_s)
        for payer, at_s in self._next_change_s.items():
            if at_s <= now_s:
                self._next_change_s[payer] = self._recent.next_change_s(payer, now_s)
                yield from list(self._new.get(payer, {}).values())

    @property
    def next_change_s(self) -> float:
        changes_s = (at_s for payer, at_s in self._next_change_s.items() if self._new.get(payer))
        return min(changes_s, default=math.inf)
