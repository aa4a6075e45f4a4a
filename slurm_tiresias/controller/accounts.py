"""The accounts of jobs in memory: who they are, and whether an id still belongs to the same job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from slurm_tiresias.controller import bands
from slurm_tiresias.controller.in_hand import InHand
from slurm_tiresias.controller.prospects import why_cannot_be_requeued
from slurm_tiresias.controller.runs import Runs
from slurm_tiresias.core.lifecycle.tracker import shifted
from slurm_tiresias.model import JobAccount, JobSpec, JobStatus, Lane
from slurm_tiresias.settings import Config
from slurm_tiresias.store.changes import Changes
from slurm_tiresias.store.ledger import changed

STATE_SAVED_WITHIN_S = 60.0
"""slurmctld saves its state every few seconds. If it is killed, it comes back without what happened
and without the writes since its last save, and with node lists that had been removed."""


class Accounts:
    """The accounts of managed jobs."""

    def __init__(self, changes: Changes, config: Config, runs: Runs, in_hand: InHand) -> None:
        self._changes = changes
        self._ledger = changes.ledger
        self._written_as = config.priority.write
        self._runs = runs
        self._in_hand = in_hand
        self._accounts = self._ledger.jobs.live()
        self.all: Mapping[str, JobAccount] = MappingProxyType(self._accounts)
        """The accounts by job."""

    def of(self, key: str) -> JobAccount | None:
        """Return the account of a job; None if it is not in memory."""
        return self._accounts.get(key)

    def ended(self) -> Sequence[str]:
        """Return the keys of the jobs that have ended and are still in memory."""
        return [key for key, account in self._accounts.items() if account.ended_s is not None]

    def owner_of(self, key: str) -> tuple[str, str] | None:
        """Return the user and the name of a job; None if it is unknown."""
        account = self._accounts.get(key) or self._ledger.jobs.one(key)
        return (account.user, account.name) if account else None

    def put(self, account: JobAccount) -> None:
        """Replace a job's account; it is committed with the other changes."""
        if self._accounts.get(account.key) != account:
            self._accounts[account.key] = account
            self._changes.put(self._ledger.jobs, account)

    def known(self, key: str) -> JobAccount | None:
        """Return a job's account; that of a job which ended long ago is read from the ledger."""
        if key not in self._accounts:
            for account in self._changes.of(self._ledger.jobs, key):
                self._accounts[key] = account
                self._runs.fetch(key)
        return self._accounts.get(key)

    def open(self, job: JobStatus) -> None:
        """Open the account of a new job."""
        # Slurm resets the submission at a requeue: accounting knows the original one.
        account = JobAccount.opened(job, self._ledger.next_number())
        # If nothing is known of a run, the priority with which it started may show whether it was
        # managed.
        written_as = self._written_as
        preemptible = written_as == "pinned" and bands.starts_managed(job.priority, written_as)
        if why_cannot_be_requeued(job.spec) and not preemptible:
            account = replace(account, lane=Lane.IDLE_ONLY)
        self.put(account)

    def follow(self, account: JobAccount, spec: JobSpec) -> None:
        """Follow what may be changed of a job: its account, partition and time limit."""
        # A submission time before the first one shows that the clock was set back.
        self.put(
            changed(
                account,
                account=spec.account,
                partition=",".join(spec.partitions),
                time_limit_s=spec.time_limit_s,
                born_after_s=min(account.born_after_s, max(0.0, spec.submit_s)),
            )
        )

    def is_another_job(self, job: JobStatus, account: JobAccount) -> bool:
        """Whether Slurm has given the id of a job to a new one.

        Until its first requeue a job's submission time never changes. A job that ended and was
        requeued by hand is still the same: it has one restart more. A job with fewer restarts than
        before is the same if it was submitted before what was last seen of it: a slurmctld that was
        killed has forgotten a requeue. If a job ended before it was submitted, Slurm's clock was
        set back, so its times cannot be compared.
        """
        submit_s = job.spec.submit_s
        if not job.restarts:
            exact = account.born_after_s > 0.0
            return submit_s != account.submitted_s if exact else submit_s > account.submitted_s
        if job.state is None and job.end_s is not None and job.end_s < submit_s:
            return False
        if job.restarts < account.restarts:
            # Start times, unlike ``queued_s``, are not shifted when the clock is set.
            starts_s = (run.start_s for run in self._runs.of(job.key))
            return submit_s > max(account.queued_s, *starts_s, account.submitted_s)
        if job.restarts > account.restarts or account.ended_s is None:
            return False
        # A slurmctld that was killed comes back with a job that has ended since its last save, and
        # requeues it if its node has failed.
        its_owner = (job.spec.user, job.spec.name) == (account.user, account.name)
        return submit_s > account.ended_s + (STATE_SAVED_WITHIN_S if its_owner else 0.0)

    def ran_s(self, key: str, restarts: int) -> float:
        """Return how long the run after this many restarts lasted; 0.0 if runs are missing."""
        account, mine = self.of(key), self._runs.in_order(key)
        if account is None or len(mine) != account.restarts + 1 or restarts >= len(mine):
            return 0.0
        return mine[restarts].elapsed_s

    def is_doubtful(self, key: str) -> bool:
        """Whether a run of the job is missing, or an ended run is only estimated."""
        account = self._accounts[key]
        missing = account.accounted_restarts < account.restarts
        return missing or any(
            not run.confirmed and run.end_s is not None for run in self._runs.of(key)
        )

    def awaits_accounting(self, key: str) -> bool:
        """Whether accounting may still change what is known of the job."""
        return self._runs.has_accounting and self.is_doubtful(key)

    def drop(self, key: str) -> None:
        """Forget a job whose id was given to another job."""
        self._changes.forget(key)
        self._accounts.pop(key, None)

    def let_go(self, key: str) -> None:
        """Keep the account of a job in the ledger only."""
        self._accounts.pop(key)

    def clock_was_set(self, by_s: float) -> None:
        """Shift the times from which jobs wait after a step of Slurm's clock."""
        for account in self._in_hand.each(list(self._accounts.values())):
            # Rows from after a step back have earlier times.
            born_s = max(0.0, account.born_after_s + min(0.0, by_s))
            self.put(replace(shifted(account, by_s), born_after_s=born_s))
