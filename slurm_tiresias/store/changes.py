"""What the ledger lacks until all of it is committed in one transaction."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.rows import Rows

R = TypeVar("R")


class Changes:
    """Records to be written to a ledger, and jobs that it is to forget; a failed commit keeps all
    of them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._records: dict[Rows[Any], dict[tuple[Any, ...], Any]] = {}
        """By table and key; None for a record to be removed."""
        self._forgotten: set[str] = set()
        self._numbers = itertools.count()

    def put(self, rows: Rows[R], *records: R) -> None:
        """Insert records, or replace those of the same keys."""
        put = self._records.setdefault(rows, {})
        put.update({rows.key_of(one) or (next(self._numbers),): one for one in records})

    def follow(self, rows: Rows[R], states: Mapping[str, R | None]) -> None:
        """Replace the records of these jobs; None removes one."""
        put = self._records.setdefault(rows, {})
        put.update({(key,): one for key, one in states.items()})

    def forget(self, job: str) -> None:
        """Drop all records of a job whose id was given to another job, but not its events."""
        self._forgotten.add(job)
        for rows, records in self._records.items():
            if rows.table.is_of_jobs:
                for key, one in list(records.items()):
                    if (one.key if one else key[0]) == job:
                        del records[key]

    def put_off(self, rows: Rows[R]) -> Collection[R]:
        """Return the records that a table lacks."""
        return self._records.get(rows, {}).values()

    def of(self, rows: Rows[R], job: str) -> Sequence[R]:
        """Return the records of a job as they are to be in the ledger."""
        stored = () if job in self._forgotten else rows.of(job)
        put_off = (one for one in self.put_off(rows) if getattr(one, "key", "") == job)
        return list({rows.key_of(one): one for one in (*stored, *put_off)}.values())

    def commit(self) -> None:
        """Write everything in one transaction; nothing if there is nothing."""
        if not self._forgotten and not any(self._records.values()):
            return
        with self.ledger.transaction():
            if self._forgotten:
                self.ledger.forget(self._forgotten)
            for rows, records in self._records.items():
                rows.put(one for one in records.values() if one is not None)
                if gone := [key for key, one in records.items() if one is None]:
                    rows.remove(gone)
        self._forgotten.clear()
        self._records.clear()
