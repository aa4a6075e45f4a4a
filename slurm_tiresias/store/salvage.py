"""Copy what can still be read of a damaged ledger into a new one."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from slurm_tiresias.store.ledger import FIRST_LOOK, Ledger, value_in
from slurm_tiresias.store.schema import SCHEMA_VERSION, STATES, TABLES

CONTENTS: Mapping[str, str] = {
    "jobs": "jobs",
    "runs": "runs",
    "run_progress": "progress of ended runs",
    "preemptions": "preemptions",
    "preemption_costs": "costs of preemptions",
    "events": "events",
    "samples": "samples of pruned jobs",
    "drilled": "drills",
}
"""The copied tables and what they hold. Starts and preemptions under way begin anew."""

_OF_JOBS = ("runs", "run_progress", "preemptions", "preemption_costs")
_FACTS = (FIRST_LOOK, "numbers_reserved", "pruned_before_s")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (int,),
    "float": (int, float),
    "None": (type(None),),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Salvaged:
    """How many rows of the old ledger were copied, and what was lost with it, in words."""

    rows: int
    lost: tuple[str, ...]
    of_another_version: bool = False
    """Whether nothing was copied because the old ledger has another schema."""


def salvage(old: Path, new: Ledger) -> Salvaged:
    """Copy all readable rows of a ledger into a new one without jobs.

    What Slurm's accounting also knows of jobs that have not ended must be asked again: the job may
    be readable while one of its runs is not.
    """
    of_another_version = value_in(old, "schema_version") not in (None, str(SCHEMA_VERSION))
    if of_another_version or not old.exists():
        return Salvaged(0, tuple(CONTENTS.values()), of_another_version)
    rows, lost = 0, []
    with closing(sqlite3.connect(f"{old.absolute().as_uri()}?mode=ro", uri=True)) as database:
        database.text_factory = lambda raw: raw.decode(errors="replace")
        with new.transaction():
            for table, content in CONTENTS.items():
                reader = _Reader(database, table, TABLES[table])
                rows += new.put_rows(table, reader.records())
                if not reader.is_whole:
                    lost.append(content)
            for name in _FACTS:
                with suppress(sqlite3.Error, ValueError, TypeError):
                    row = database.execute("SELECT value FROM facts WHERE name = ?", (name,))
                    (value,) = row.fetchone()
                    if math.isfinite(float(value)):
                        new.set_value(name, str(value))
            new.finish_salvage(_OF_JOBS)
    return Salvaged(rows, tuple(lost))


class _Reader:
    """Reads a table from its beginning, and beyond a damaged page from its end."""

    def __init__(self, database: sqlite3.Connection, table: str, kind: type[Any]) -> None:
        self._database = database
        self._table = table
        self._kind = kind
        self.is_whole = True

    def records(self) -> Iterator[Any]:
        """Yield the readable records; then ``is_whole`` says whether these are all."""
        last = yield from self._one_way("ASC", -math.inf)
        if not self.is_whole:
            yield from self._one_way("DESC", last)

    def _one_way(self, order: str, beyond: float) -> Generator[Any, None, float]:
        """Yield records up to the first that cannot be read; return the number of its row."""
        fields = {field.name: str(field.type) for field in dataclasses.fields(self._kind)}
        last = beyond
        try:
            query = f"SELECT name FROM pragma_table_info('{self._table}')"
            there = {name for (name,) in self._database.execute(query)}
            names = [name for name in fields if name in there]
            if not names:
                self.is_whole = False
                return last
            query = f"SELECT rowid, {', '.join(names)} FROM {self._table} ORDER BY rowid {order}"
            for number, *values in self._database.execute(query):
                if order == "DESC" and number <= beyond:
                    return last
                last = number
                try:
                    yield self._kind(**_checked(dict(zip(names, values, strict=True)), fields))
                except (TypeError, ValueError):
                    self.is_whole = False
        except sqlite3.Error:
            self.is_whole = False
        return last


def _checked(values: Mapping[str, Any], fields: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the values of a row; raise ``ValueError`` if one is not of its field's type."""
    checked: dict[str, Any] = {}
    for name, value in values.items():
        kinds = fields[name].split(" | ")
        if kinds[0] in STATES:
            checked[name] = STATES[kinds[0]](value)
        elif not any(isinstance(value, _TYPES[kind]) for kind in kinds):
            raise ValueError(name)
        else:
            checked[name] = bool(value) if kinds == ["bool"] else value
    return checked
