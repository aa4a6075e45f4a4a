"""A model of slurmdbd: one row for each run, and for each job that ended while pending."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from scripts.testbed.in_memory.clock import Clock
from scripts.testbed.in_memory.records import JobRecord
from slurm_tiresias.slurm.protocol import AccountedRun


@dataclass(slots=True)
class _Row:
    """A run. Its start and end become visible at ``known_from_s`` and ``end_known_from_s``, by the
    steady clock."""

    run: AccountedRun
    known_from_s: float
    end_known_from_s: float | None = None
    suspended_since_s: float | None = None
    suspended_s: float = 0.0


class Accounting:
    """The rows of ``sacct --duplicates``. ``delay_s`` is its delay in learning of events."""

    def __init__(self, clock: Clock) -> None:
        self.delay_s = 0.0
        self._clock = clock
        self._rows: dict[str, dict[tuple[float, int], _Row]] = {}

    def started(self, record: JobRecord) -> None:
        """Record the start of a run. It replaces a run that slurmctld has forgotten since."""
        gpus = sum(amount.gpu_count for amount in record.allocation.values())
        self._row(record, record.start_s, gpus)

    def ended(
        self,
        record: JobRecord,
        state: str,
        end_s: float,
        *,
        exit_code: int = 0,
        cancelled_by: int | None = None,
    ) -> None:
        """Record the end of a run, or of a job while pending. Call this before changing the
        record."""
        row = self._of(record) or self._row(record, None, 0)
        row.run = replace(
            row.run,
            end_s=end_s,
            elapsed_s=0.0 if row.run.start_s is None else record.elapsed_s(end_s),
            state=state,
            exit_code=f"{exit_code}:0",
            cancelled_by=cancelled_by,
        )
        row.end_known_from_s = self._clock.in_s(self.delay_s)

    def suspended_or_resumed(self, record: JobRecord) -> None:
        """Record that a run was suspended or resumed."""
        row = self._of(record)
        if row is not None:
            row.suspended_since_s, row.suspended_s = record.suspended_since_s, record.suspended_s

    def _of(self, record: JobRecord) -> _Row | None:
        (key,) = record.keys
        return self._rows.get(key, {}).get((record.spec.submit_s, record.restarts))

    def _row(self, record: JobRecord, start_s: float | None, gpus: int) -> _Row:
        (key,) = record.keys
        run = AccountedRun(key, start_s, None, 0.0, gpus, "RUNNING", record.spec.submit_s)
        row = _Row(run, self._clock.in_s(self.delay_s))
        self._rows.setdefault(key, {})[record.spec.submit_s, record.restarts] = row
        return row

    def all_runs(self, key: str) -> Sequence[AccountedRun]:
        """Return the runs of a job, also what comes late of them."""
        return [row.run for row in tuple(self._rows.get(key, {}).values())]

    def runs(self, keys: Collection[str], since_s: float) -> Sequence[AccountedRun]:
        """Like ``protocol.Slurm.runs``; another thread may call this while rows are added."""
        # A job that ended while pending is visible once its end is.
        found = [
            self._shown(row)
            for key in keys
            for row in tuple(self._rows.get(key, {}).values())
            if self._has_come(row.end_known_from_s if row.run.start_s is None else row.known_from_s)
        ]
        alive = [run for run in found if run.end_s is None or run.end_s >= since_s]
        return sorted(
            alive, key=lambda run: (run.start_s or run.end_s or 0.0, run.submit_s or 0.0, run.key)
        )

    def _has_come(self, known_from_s: float | None) -> bool:
        return known_from_s is not None and known_from_s <= self._clock.steady_s

    def _shown(self, row: _Row) -> AccountedRun:
        if self._has_come(row.end_known_from_s):
            return row.run
        # Until its end is known, a run seems to continue.
        start_s = row.run.start_s or 0.0
        until_s = row.suspended_since_s or self._clock.whole_s
        elapsed_s = max(0.0, until_s - start_s - row.suspended_s)
        state = "RUNNING" if row.suspended_since_s is None else "SUSPENDED"
        one = row.run
        return AccountedRun(one.key, start_s, None, elapsed_s, one.gpus, state, one.submit_s)
