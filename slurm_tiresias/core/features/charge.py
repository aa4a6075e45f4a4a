"""Recent service by payer (user or account), which a payer's new jobs inherit."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

from slurm_tiresias.config import CHARGES
from slurm_tiresias.core.features.window import is_recent

BY_JOB, BY_USER, BY_ACCOUNT = CHARGES


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
        """When the first of these runs stops counting; infinite if there are none."""
        ends_s, _ = self._sums_of(payer)
        first = bisect_right(ends_s, at_s - self._window_s)
        return ends_s[first] + self._window_s if first < len(ends_s) else math.inf

    def _sums_of(self, payer: str) -> tuple[list[float], list[float]]:
        found = self._sums.get(payer)
        if found is None:
            of_payer = self._of_payer.get(payer, {}).values()
            runs = sorted((run.end_s, run.service_gpu_s) for run in of_payer)
            sums_gpu_s = accumulate((service_gpu_s for _, service_gpu_s in runs), initial=0.0)
            found = self._sums[payer] = [end_s for end_s, _ in runs], list(sums_gpu_s)
        return found
