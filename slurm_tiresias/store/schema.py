"""The tables of the state database."""

from __future__ import annotations

import dataclasses
import enum
import sqlite3
from collections.abc import Mapping
from typing import Any

from slurm_tiresias.core.lifecycle.nomination import Nomination, NominationState
from slurm_tiresias.core.lifecycle.preemption import Cause, Preemption, PreemptionState
from slurm_tiresias.model import JobAccount, Lane
from slurm_tiresias.store.records import (
    DrilledProgram,
    EventRecord,
    PreemptionCost,
    PreemptionRecord,
    RunProgressRecord,
    RunRecord,
    Sample,
)

SCHEMA_VERSION = 1

STATES: Mapping[str, type[enum.StrEnum]] = {
    "NominationState": NominationState,
    "PreemptionState": PreemptionState,
    "Cause": Cause,
    "Lane": Lane,
}

TABLES: Mapping[str, type[Any]] = {
    "jobs": JobAccount,
    "runs": RunRecord,
    "run_progress": RunProgressRecord,
    "preemptions": PreemptionRecord,
    "preemption_costs": PreemptionCost,
    "events": EventRecord,
    "samples": Sample,
    "nominations": Nomination,
    "preemptions_under_way": Preemption,
    "drilled": DrilledProgram,
}
"""The record of each table, whose fields are the columns."""

_KEYS: Mapping[str, str] = {
    "jobs": "PRIMARY KEY (key)",
    "runs": "PRIMARY KEY (key, start_s)",
    "run_progress": "PRIMARY KEY (key, restarts)",
    "preemption_costs": "PRIMARY KEY (key, run_start_s)",
    "events": "number INTEGER PRIMARY KEY",
    "samples": "number INTEGER PRIMARY KEY",
    "nominations": "PRIMARY KEY (key)",
    "preemptions_under_way": "PRIMARY KEY (key)",
    "drilled": "PRIMARY KEY (user, name)",
}

_INDEXES: Mapping[str, str] = {
    "ended": "jobs (ended_s)",
    "unconfirmed": "runs (key) WHERE confirmed = 0",
    "run_ended": "runs (end_s)",
    "preempted": "preemptions (key)",
    "preempted_at": "preemptions (at_s)",
    "cost_at": "preemption_costs (at_s)",
    "happened_to": "events (job_id)",
    "happened_for": "events (other)",
}
"""They keep queries of cycles, starts and reports fast as ended jobs accumulate."""


def create_tables(database: sqlite3.Connection) -> None:
    """Create all tables of a new database, without a job."""
    database.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value)")
    version = ("schema_version", str(SCHEMA_VERSION))
    database.execute("INSERT INTO facts VALUES (?, ?)", version)
    types = {"str": "TEXT", "int": "INTEGER", "bool": "INTEGER", **dict.fromkeys(STATES, "TEXT")}
    for table, kind in TABLES.items():
        columns = [
            f"{field.name} {types.get(str(field.type).split(' | ')[0], 'REAL')}"
            for field in dataclasses.fields(kind)
        ]
        columns += [_KEYS[table]] if table in _KEYS else []
        database.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
    for index, columns_of in _INDEXES.items():
        database.execute(f"CREATE INDEX {index} ON {columns_of}")
