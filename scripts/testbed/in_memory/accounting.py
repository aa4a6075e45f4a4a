"""A model of slurmdbd: one row for each run, and for each job that ended while pending."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from scripts.testbed.in_memory.clock import Clock
from scripts.testbed.in_memory.records import JobRecord
from slurm_tiresias.slurm.protocol import AccountedRun


@dataclass(slots=True)
class _Row:
    """A run. Its start and end become visible at ``known_from_s`` and ``end_known_from_s``, by the
    steady clock."""

    start_s: float | None
    submit_s: float
    gpus: int
    known_from_s: float
    end_s: float | None = None
    end_known_from_s: float | None = None
    elapsed_s: float = 0.0
    suspended_since_s: float | None = None
    suspended_s: float = 0.0
    state: str = "RUNNING"
    exit_code: str = "0:0"
    cancelled_by: int | None = None


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
        if row.start_s is not None:
            row.elapsed_s = record.elapsed_s(end_s)
        row.end_s, row.end_known_from_s = end_s, self._clock.in_s(self.delay_s)
        row.state, row.exit_code, row.cancelled_by = state, f"{exit_code}:0", cancelled_by

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
        known_s = self._clock.in_s(self.delay_s)
        row = _Row(start_s, record.spec.submit_s, gpus, known_s)
        self._rows.setdefault(key, {})[record.spec.submit_s, record.restarts] = row
        return row

    def runs(self, keys: Collection[str], since_s: float) -> Sequence[AccountedRun]:
        """Like ``protocol.Slurm.runs``; another thread may call this while rows are added."""
        rows = [(key, row) for key in keys for row in tuple(self._rows.get(key, {}).values())]
        # A job that ended while pending is visible once its end is.
        found = [
            self._shown(key, row)
            for key, row in rows
            if self._has_come(row.end_known_from_s if row.start_s is None else row.known_from_s)
        ]
        alive = [row for row in found if row.end_s is None or row.end_s >= since_s]
        return sorted(
            alive, key=lambda row: (row.start_s or row.end_s or 0.0, row.submit_s or 0.0, row.key)
        )

    def _has_come(self, known_from_s: float | None) -> bool:
        return known_from_s is not None and known_from_s <= self._clock.steady_s

    def _shown(self, key: str, row: _Row) -> AccountedRun:
        if not self._has_come(row.end_known_from_s):
            # Until its end is known, a run seems to continue.
            start_s = row.start_s or 0.0
            until_s = row.suspended_since_s or self._clock.whole_s
            elapsed_s = max(0.0, until_s - start_s - row.suspended_s)
            state = "RUNNING" if row.suspended_since_s is None else "SUSPENDED"
            return AccountedRun(key, start_s, None, elapsed_s, row.gpus, state, row.submit_s)
        return AccountedRun(
            key=key,
            start_s=row.start_s,
            end_s=row.end_s,
            elapsed_s=row.elapsed_s,
            gpus=row.gpus,
            state=row.state,
            submit_s=row.submit_s,
            exit_code=row.exit_code,
            cancelled_by=row.cancelled_by,
        )
