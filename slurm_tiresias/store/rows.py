"""Reads and writes the rows of a ledger as records, and explains SQLite's errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from slurm_tiresias.database import transaction
from slurm_tiresias.errors import DamagedLedgerError, LedgerError, RefusedError, TiresiasError
from slurm_tiresias.store.tables import Table

R = TypeVar("R")

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REMEDIES: Mapping[int, str] = {
    sqlite3.SQLITE_FULL: "Make room on its disk",
    sqlite3.SQLITE_BUSY: "End whatever else works on it",
}


def damaged(path: Path, why: object) -> TiresiasError:
    """Return the error that the ledger is damaged, with how to rebuild it."""
    return DamagedLedgerError(
        f"The ledger {path} is damaged: {why}",
        "With no controller running, rebuild it from accounting: tiresias-slurm ledger rebuild",
    )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Convert SQLite's errors into ours, which say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_INTERRUPT:
            raise RefusedError("Reading this from the ledger takes too long", "Ask for less") from (
                error
            )
        if code in _DAMAGE:
            raise damaged(path, error) from error
        raise LedgerError(
            f"The ledger {path} cannot be used: {error}",
            _REMEDIES.get(code, "Let this user write to it and its directory"),
        ) from error
    except OSError as error:
        raise LedgerError(
            f"The ledger {path} cannot be used: {error.strerror}",
            "Let this user write to it and its directory, and check the free space",
        ) from error


class LedgerDatabase:
    """An open ledger: statements, transactions, and the facts, which are single values by name."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.path = path
        self._database = database

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything in the block, or nothing; it is on disk when the block ends."""
        with explained(self.path), transaction(self._database):
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all queries in the block read the same moment."""
        with explained(self.path), transaction(self._database, "DEFERRED"):
            yield

    def read(self, query: str, values: Any = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query."""
        with explained(self.path):
            yield from self._database.execute(query, values)

    def read_one(self, query: str, values: Any = ()) -> Any:
        """Return the first value of the first row of a query; None if there is no row."""
        return next(self.read(query, values), (None,))[0]

    def change(self, statement: str, values: Any = ()) -> int:
        """Run a statement, and return the number of rows that it has changed."""
        with explained(self.path):
            return self._database.execute(statement, values).rowcount

    def change_each(self, statement: str, values: Iterable[Any]) -> int:
        """Run a statement with each of these values; return the number of changed rows."""
        with explained(self.path):
            return self._database.executemany(statement, values).rowcount

    def value(self, name: str) -> str | None:
        value = self.read_one("SELECT value FROM facts WHERE name = ?", (name,))
        return None if value is None else str(value)

    def set_value(self, name: str, value: str) -> None:
        self.change("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


class Rows(Generic[R]):
    """The rows of one table. Writing is part of a transaction of the caller's, if there is one."""

    def __init__(self, database: LedgerDatabase, table: Table[R]) -> None:
        self._database = database
        self.table = table
        self._of_key = " AND ".join(f"{name} = ?" for name in table.key)
        self._values_of = attrgetter(*table.columns)

    def key_of(self, record: R) -> tuple[Any, ...]:
        """Return the values of the table's primary key; none if its rows are numbered."""
        return tuple(getattr(record, name) for name in self.table.key)

    def select(self, rest: str = "", *values: object) -> Iterator[R]:
        """Yield records; ``rest`` is SQL after the table's name."""
        table = self.table
        names = ", ".join(f"{table.name}.{name}" for name in table.columns)
        for row in self._database.read(f"SELECT {names} FROM {table.name} {rest}", values):
            fields = dict(zip(table.columns, row, strict=True))
            for name, convert in table.converted.items():
                fields[name] = convert(fields[name])
            yield table.record(**fields)

    def all(self) -> list[R]:
        return list(self.select())

    def of(self, job: str) -> list[R]:
        """Return the records of a job, in the order of the table's key."""
        return list(self.select(f"WHERE key = ? ORDER BY {', '.join(self.table.key)}", job))

    def put(self, records: Iterable[R]) -> int:
        """Insert records, replace those of the same keys, and return the number of records."""
        table = self.table
        names, marks = ", ".join(table.columns), ", ".join("?" for _ in table.columns)
        count = self._database.change_each(
            f"INSERT OR REPLACE INTO {table.name} ({names}) VALUES ({marks})",
            map(self._values_of, records),
        )
        if count > 0:
            self.trim()
        return max(0, count)

    def trim(self) -> None:
        """Delete the oldest rows of a table that keeps only so many."""
        name, most_rows = self.table.name, self.table.most_rows
        if most_rows:
            oldest = f"number <= (SELECT MAX(number) FROM {name}) - {most_rows}"
            self._database.change(f"DELETE FROM {name} WHERE {oldest}")

    def remove(self, keys: Iterable[tuple[object, ...]]) -> None:
        self._database.change_each(f"DELETE FROM {self.table.name} WHERE {self._of_key}", keys)
