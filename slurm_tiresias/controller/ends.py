"""The ends of jobs: each is reported once, when accounting has confirmed its service."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from slurm_tiresias.controller.accounts import Accounts
from slurm_tiresias.controller.in_hand import InHand
from slurm_tiresias.controller.runs import Runs
from slurm_tiresias.core.rank import Key, job_id_key
from slurm_tiresias.store.records import Sample


@dataclass(frozen=True, slots=True)
class Completion:
    """A job that has run and ended.

    ``tier`` is the last that was decided for it, ``jct_s`` the time from its submission to its end
    (JCT), and ``queued_s`` the part of that in which it did not run.
    """

    tier: int
    jct_s: float
    queued_s: float


class Ends:
    """Follows the jobs that have ended until their ends are reported."""

    def __init__(self, accounts: Accounts, runs: Runs, in_hand: InHand) -> None:
        self._in_hand = in_hand
        self._accounts = accounts
        self._runs = runs
        self._awaited: set[str] = set()
        """Ended jobs whose end is not reported yet: their service may be an estimate."""
        self._reported: set[str] = set()
        """Jobs whose end was reported, or came before the first observation, while Slurm shows
        them."""
        self._ended: list[Completion] = []

    def has_ended(self, key: str) -> None:
        """Note the end of a job; it is reported later."""
        self._awaited.add(key)

    def ended_before(self, key: str) -> None:
        """Note that a job ended before the first observation: it is not reported."""
        self._reported.add(key)

    def forget(self, key: str) -> None:
        """Drop a job whose id was given to another job."""
        self._awaited.discard(key)
        self._reported.discard(key)

    def keep(self, present: Collection[str]) -> None:
        """Forget which ends were reported of jobs that Slurm no longer shows."""
        self._reported.intersection_update(present)

    def take(self) -> list[Completion]:
        """Return the ends that have been confirmed since the last call."""
        for key in self._in_hand.each(list(self._awaited)):
            if not self._accounts.awaits_accounting(key):
                self.report(key)
        ended, self._ended = self._ended, []
        return ended

    def sample_of(self, key: str) -> Sample | None:
        """Return what there is to learn from a job; None unless it has run and ended."""
        account = self._accounts.of(key)
        if account is None or account.ended_s is None or not self._runs.of(key):
            return None
        ran_s, service_gpu_s = self._runs.executed_s(key), self._runs.attained_gpu_s(key)
        who = (account.user, account.name)
        return Sample(account.ended_s, *who, ran_s, service_gpu_s, account.time_limit_s)

    def in_order(self, gone: Iterable[str]) -> Sequence[tuple[str, Sample | None]]:
        """Return what there is to learn from jobs that have gone, in the order of their ends."""

        def by_end(one: tuple[str, Sample | None]) -> tuple[float, Key]:
            key, ended = one
            return ended.ended_s if ended else -math.inf, job_id_key(key)

        return sorted(((key, self.sample_of(key)) for key in gone), key=by_end)

    def report(self, key: str) -> None:
        """Report the end of a job, unless it was reported."""
        account = self._accounts.all[key]
        if key not in self._awaited or account.ended_s is None:
            return
        self._awaited.remove(key)
        if key in self._reported:
            return
        self._reported.add(key)
        runs = self._runs.of(key)
        if not runs:
            return
        # If there are fewer runs, the job was requeued and ended while it was pending.
        ended_by_run = len(runs) > account.restarts
        end_s = max(run.end_s or 0.0 for run in runs) if ended_by_run else account.ended_s
        jct_s = max(0.0, end_s - account.submitted_s)
        queued_s = max(0.0, jct_s - self._runs.executed_s(key))
        self._ended.append(Completion(account.tier, jct_s, queued_s))
