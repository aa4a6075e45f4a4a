"""The tables of the ledger: one declaration each.

The schema, the rows' conversion, deletion and pruning (``rows.py``, ``retention.py``) and what a
rebuild copies (``salvage.py``) come from it. The times that a step of slurmctld's clock shifts are
declared by the records (``SHIFTED``).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import sqlite3
import typing
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from slurm_tiresias.core.lifecycle.nomination import Nomination
from slurm_tiresias.core.lifecycle.preemption import Preemption
from slurm_tiresias.model import JobAccount
from slurm_tiresias.store.records import (
    DrilledProgram,
    EventRecord,
    NodeRecord,
    PreemptionCost,
    PreemptionRecord,
    RunProgressRecord,
    RunRecord,
    Sample,
)

SCHEMA = "schema_version"
"""The fact that stores the version of the tables."""
SCHEMA_VERSION = 1
"""A rebuild copies columns of other versions by name: one that changes its meaning gets another."""

R = TypeVar("R")

_SQL_TYPES: Mapping[type, str] = {str: "TEXT", int: "INTEGER", bool: "INTEGER", float: "REAL"}


@dataclasses.dataclass(frozen=True)
class Table(Generic[R]):
    """A table, whose columns are the fields of its record."""

    name: str
    record: type[R]
    key: tuple[str, ...] = ()
    """The primary key. Without one, rows are numbered in the order of their insertion."""
    indexes: tuple[str, ...] = ()
    """They keep queries of cycles, starts and reports fast as ended jobs accumulate."""
    pruned_by: str = ""
    """The time by which old rows are pruned. Rows with a ``key`` are deleted with their job."""
    most_rows: int | None = None
    """How many numbered rows are kept: the latest."""
    holds: str = ""
    """What a rebuild copies from it, in words; "" if the table begins anew."""

    @functools.cached_property
    def columns(self) -> Mapping[str, tuple[type, ...]]:
        """The types of each column, that of None included."""
        hints = typing.get_type_hints(self.record)
        names = [field.name for field in dataclasses.fields(self.record)]  # type: ignore[arg-type]
        return {name: typing.get_args(hints[name]) or (hints[name],) for name in names}

    @functools.cached_property
    def converted(self) -> Mapping[str, Callable[[Any], Any]]:
        """The columns whose values SQLite has as a number or a text, with their types."""
        kinds = {name: kinds[0] for name, kinds in self.columns.items()}
        return {name: kind for name, kind in kinds.items() if issubclass(kind, (bool, enum.Enum))}

    @property
    def is_of_jobs(self) -> bool:
        """Whether each row belongs to a job."""
        return "key" in self.columns

    def create(self, database: sqlite3.Connection) -> None:
        """Create the table, which must be missing."""
        columns = [
            f"{name} {_SQL_TYPES.get(kinds[0], 'TEXT')}" for name, kinds in self.columns.items()
        ]
        key = f"PRIMARY KEY ({', '.join(self.key)})" if self.key else "number INTEGER PRIMARY KEY"
        database.execute(f"CREATE TABLE {self.name} ({', '.join([*columns, key])})")
        for number, index in enumerate(self.indexes):
            database.execute(f"CREATE INDEX {self.name}_{number} ON {self.name} {index}")


JOBS = Table(
    "jobs",
    JobAccount,
    ("key",),
    indexes=("(ended_s)", "(key) WHERE is_restarted = 1 AND failed_run = restarts"),
    pruned_by="ended_s",
    holds="jobs",
)
RUNS = Table(
    "runs",
    RunRecord,
    ("key", "start_s"),
    indexes=("(key) WHERE confirmed = 0", "(end_s)"),
    holds="runs",
)
RUN_PROGRESS = Table(
    "run_progress", RunProgressRecord, ("key", "restarts"), holds="progress of ended runs"
)
PREEMPTIONS = Table(
    "preemptions", PreemptionRecord, indexes=("(key)", "(at_s)"), holds="preemptions"
)
PREEMPTION_COSTS = Table(
    "preemption_costs",
    PreemptionCost,
    ("key", "run_start_s"),
    indexes=("(at_s)",),
    holds="costs of preemptions",
)
EVENTS = Table(
    "events",
    EventRecord,
    indexes=("(job_id)", "(other)"),
    pruned_by="at_s",
    most_rows=200_000,  # some weeks of a busy cluster; 20 MB
    holds="events",
)
SAMPLES = Table("samples", Sample, most_rows=100_000, holds="samples of pruned jobs")
DRILLED = Table("drilled", DrilledProgram, ("user", "name"), holds="drills")
NODES = Table("nodes", NodeRecord, ("name",), holds="drained nodes")
NOMINATIONS = Table("nominations", Nomination, ("key",))
PREEMPTIONS_UNDER_WAY = Table("preemptions_under_way", Preemption, ("key",))

TABLES: tuple[Table[Any], ...] = (
    *(JOBS, RUNS, RUN_PROGRESS, PREEMPTIONS, PREEMPTION_COSTS, EVENTS, SAMPLES, DRILLED),
    *(NODES, NOMINATIONS, PREEMPTIONS_UNDER_WAY),
)


def create_tables(database: sqlite3.Connection) -> None:
    """Create all tables of a new database, without a job."""
    database.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value)")
    version = (SCHEMA, str(SCHEMA_VERSION))
    database.execute("INSERT INTO facts VALUES (?, ?)", version)
    for table in TABLES:
        table.create(database)
