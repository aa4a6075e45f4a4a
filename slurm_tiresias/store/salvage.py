"""Copy what can still be read of a damaged ledger into a new one."""

from __future__ import annotations

import dataclasses
import enum
import math
import sqlite3
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from slurm_tiresias.store.ledger import NUMBERS_RESERVED, Ledger
from slurm_tiresias.store.rows import Rows
from slurm_tiresias.store.tables import SCHEMA, TABLES, Table

R = TypeVar("R")

_COPIED = tuple(table for table in TABLES if table.holds)
_STORED: Mapping[type, type | tuple[type, ...]] = {bool: int, float: (int, float)}
"""The types of the values that SQLite has for other types; for an enumeration it is a text."""


@dataclasses.dataclass(frozen=True, slots=True)
class Salvaged:
    """How many rows of the old ledger were copied, and what was lost with it, in words."""

    rows: int
    lost: tuple[str, ...]


def salvage(old: Path, new: Ledger) -> Salvaged:
    """Copy all readable rows of a ledger, also of another version, into a new one without jobs.

    What Slurm's accounting also knows of jobs that have not ended must be asked again: the job may
    be readable while one of its runs is not.
    """
    if not old.exists():
        return Salvaged(0, tuple(table.holds for table in _COPIED))
    rows, lost = 0, []
    with closing(sqlite3.connect(f"{old.absolute().as_uri()}?mode=ro", uri=True)) as database:
        database.text_factory = lambda raw: raw.decode(errors="replace")
        with new.transaction():
            for table in _COPIED:
                reader = _Reader(database, table)
                rows += Rows(new, table).put(reader.records())
                if not reader.is_whole:
                    lost.append(table.holds)
            _copy_facts(database, new)
            _make_consistent(new)
    return Salvaged(rows, tuple(lost))


def _copy_facts(old: sqlite3.Connection, new: Ledger) -> None:
    """Copy the facts that are numbers: times, and how many numbers have been used."""
    with suppress(sqlite3.Error):
        for name, value in old.execute("SELECT name, value FROM facts"):
            with suppress(ValueError, TypeError):
                if name != SCHEMA and math.isfinite(float(value)):
                    new.set_value(name, str(value))


def _make_consistent(new: Ledger) -> None:
    """Drop rows without their job, and have accounting asked about live jobs."""
    for table in TABLES:
        if table.is_of_jobs:
            new.change(f"DELETE FROM {table.name} WHERE key NOT IN (SELECT key FROM jobs)")
    new.change("UPDATE jobs SET accounted_restarts = 0 WHERE ended_s IS NULL")
    number = new.read_one("SELECT MAX(MAX(IFNULL(start_number, 0)), MAX(entry_number)) FROM jobs")
    reserved = int(float(new.value(NUMBERS_RESERVED) or "0"))
    new.set_value(NUMBERS_RESERVED, str(max(number or 0, reserved)))


class _Reader(Generic[R]):
    """Reads a table from its beginning, and beyond a damaged page from its end."""

    def __init__(self, database: sqlite3.Connection, table: Table[R]) -> None:
        self._database = database
        self._table = table
        self.is_whole = True

    def records(self) -> Iterator[R]:
        """Yield the readable records; then ``is_whole`` says whether these are all."""
        last = yield from self._one_way("ASC", -math.inf)
        if not self.is_whole:
            yield from self._one_way("DESC", last)

    def _one_way(self, order: str, beyond: float) -> Generator[R, None, float]:
        """Yield records up to the first that cannot be read; return the number of its row."""
        last, table = beyond, self._table
        try:
            query = f"SELECT name FROM pragma_table_info('{table.name}')"
            there = {name for (name,) in self._database.execute(query)}
            names = [name for name in table.columns if name in there]
            # The number of a row is no fact, and another version may have had other columns.
            self.is_whole = self.is_whole and bool(names) and there <= {*names, "number"}
            if not names:
                return last
            query = f"SELECT rowid, {', '.join(names)} FROM {table.name} ORDER BY rowid {order}"
            for number, *values in self._database.execute(query):
                if order == "DESC" and number <= beyond:
                    return last
                last = number
                try:
                    yield table.record(**_checked(dict(zip(names, values, strict=True)), table))
                except (TypeError, ValueError):
                    self.is_whole = False
        except sqlite3.Error:
            self.is_whole = False
        return last


def _checked(values: dict[str, Any], table: Table[Any]) -> Mapping[str, Any]:
    """Return the values of a row; raise ``ValueError`` if one is not of its column's type."""
    for name, kinds in table.columns.items():
        if name not in values:
            continue
        stored = (str if issubclass(kind, enum.Enum) else _STORED.get(kind, kind) for kind in kinds)
        if not isinstance(values[name], tuple(stored)):
            raise ValueError(name)
        if name in table.converted:
            values[name] = table.converted[name](values[name])
    return values
