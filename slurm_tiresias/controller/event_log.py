"""The events of jobs: what users read in ``tiresias-slurm history``, and what metrics count."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from slurm_tiresias.controller.accounts import Accounts
from slurm_tiresias.model import JobStatus
from slurm_tiresias.store.changes import Changes
from slurm_tiresias.store.event_folding import EventFolder
from slurm_tiresias.store.records import EventRecord

log = logging.getLogger("tiresias-slurm")


class EventLog:
    """Collects events, and counts them by kind."""

    def __init__(
        self, changes: Changes, accounts: Accounts, shown: Callable[[str], JobStatus | None]
    ) -> None:
        """``shown`` returns a job as it was last observed; None if it was not."""
        self._changes = changes
        self._accounts = accounts
        self._shown = shown
        self._folder = EventFolder()
        self._counts: Counter[str] = Counter()

    def note(self, at_s: float, kind: str, job_id: str, text: str, other: str = "") -> None:
        """Record an event; it is committed with the other changes of the job store."""
        self._counts[kind] += 1
        account = self._accounts.of(job_id)
        job = None if account else self._shown(job_id)
        user = account.user if account else job.spec.user if job else ""
        if not self._folder.takes(at_s, kind, user, job_id):
            self._remember(EventRecord(at_s, kind, job_id, other, text))

    def note_once(self, at_s: float, kind: str, key: str, text: str) -> None:
        """Record an event of a job unless the ledger has it, as after a restart of the
        controller."""
        account = self._accounts.of(key)
        events = self._changes.ledger.events.of_job(key, account.born_after_s if account else 0.0)
        if all((one.kind, one.job_id, one.text) != (kind, key, text) for one in events):
            self.note(at_s, kind, key, text)

    def fold(self, now_s: float) -> None:
        """Record the folded events of those users whose limits allow it again."""
        for event in self._folder.folded(now_s):
            self._remember(event)

    def take_counts(self) -> Counter[str]:
        """Return how many events of each kind there were since the last call."""
        counts, self._counts = self._counts, Counter()
        return counts

    def _remember(self, event: EventRecord) -> None:
        self._changes.put(self._changes.ledger.events, event)
        kind, job_id, other, text = event.kind, event.job_id, event.other, event.text
        whom = f" for job {other}" if other else ""
        log.info("%s%s%s: %s", f"job {job_id} " if job_id else "", kind, whom, text)
