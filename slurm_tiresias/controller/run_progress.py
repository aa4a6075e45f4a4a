"""The last reports of ended runs, in the ledger and on their way there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import RunProgressRecord


class RunProgress:
    """The last reports of the runs of each job."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.uncommitted: list[RunProgressRecord] = []

    def of_live_jobs(self) -> Sequence[RunProgressRecord]:
        """Return those of all jobs that have not ended, earliest runs first."""
        return self._ledger.progress.of_live_jobs()

    def of(self, key: str) -> Mapping[int, RunProgressRecord]:
        """Return those of a job, by number of restarts."""
        uncommitted = (row for row in self.uncommitted if row.key == key)
        return {row.restarts: row for row in (*self._ledger.progress.of(key), *uncommitted)}

    def keep(self, rows: Iterable[RunProgressRecord]) -> None:
        """Record reports of runs that have ended; committed with the job store's changes."""
        self.uncommitted.extend(rows)
