"""The tables of the state database, and the migrations of older ones."""

from __future__ import annotations

import dataclasses
import enum
import sqlite3
from collections.abc import Callable, Collection, Mapping
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

SCHEMA_VERSION = 16
"""2 added users and names of jobs, 3 accounts, 4 partitions and a table of preemptions; earlier
rows lack these. 5 added indexes and samples of pruned jobs. 6 moved nominations and preemptions
under way from columns of jobs to tables. 7 added starts in vain and refused node lists. 8 added
what runs reported of their progress, 9 what that promises, and time limits. 10 added which
victims were asked to save, how long runs were protected as they did lost work again, and what
preemptions cost. 11 added programs that passed a drill, 12 the lanes of jobs, 13 for how long the
GPUs of runs were idle, 14 preemptions for idle GPUs, 15 steps of the clock during runs, 16 each
victim's own grace, and for how long jobs have used no GPU."""

STATES: Mapping[str, type[enum.StrEnum]] = {
    "NominationState": NominationState,
    "PreemptionState": PreemptionState,
    "Cause": Cause,
    "Lane": Lane,
}

TABLES: Mapping[str, type[Any]] = {
    "jobs": JobAccount,
    "incarnations": RunRecord,
    "run_progress": RunProgressRecord,
    "preemptions": PreemptionRecord,
    "preemption_costs": PreemptionCost,
    "events": EventRecord,
    "samples": Sample,
    "nominations": Nomination,
    "preemptions_under_way": Preemption,
    "drilled": DrilledProgram,
}

OLDEST_TABLES = {"facts", "jobs", "incarnations", "events"}
"""The tables of every version."""


def create_tables(database: sqlite3.Connection) -> None:
    """Create all tables of a new database, without a job."""
    database.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value)")
    jobs = _columns(JobAccount, key="key TEXT PRIMARY KEY")
    database.execute(f"CREATE TABLE jobs ({jobs})")
    runs = _columns(RunRecord)
    database.execute(f"CREATE TABLE incarnations ({runs}, PRIMARY KEY (key, start_s))")
    database.execute("CREATE INDEX unconfirmed ON incarnations (key) WHERE confirmed = 0")
    _create_lifecycles(database)
    database.execute(f"CREATE TABLE preemptions ({_columns(PreemptionRecord)})")
    database.execute(
        "CREATE TABLE events "
        "(number INTEGER PRIMARY KEY, at_s REAL, kind TEXT, job_id TEXT, other TEXT, text TEXT)"
    )
    _add_indexes_and_samples(database)
    _add_progress(database)
    _create_costs(database)
    _create_drilled(database)
    version = ("schema_version", str(SCHEMA_VERSION))
    database.execute("INSERT INTO facts VALUES (?, ?)", version)


def _add_users_and_names(database: sqlite3.Connection) -> None:
    for column in ("user", "name"):
        database.execute(f"ALTER TABLE jobs ADD COLUMN {column} TEXT DEFAULT ''")


def _add_accounts(database: sqlite3.Connection) -> None:
    database.execute("ALTER TABLE jobs ADD COLUMN account TEXT DEFAULT ''")


def _add_partitions_and_preemptions(database: sqlite3.Connection) -> None:
    """Preemptions begin with those recorded as events, of which little is known."""
    database.execute("ALTER TABLE jobs ADD COLUMN partition TEXT DEFAULT ''")
    database.execute(f"CREATE TABLE preemptions ({_columns(PreemptionRecord)})")
    database.execute(
        "INSERT INTO preemptions (key, for_job, at_s, run_start_s) "
        "SELECT job_id, other, at_s, (SELECT MAX(start_s) FROM incarnations WHERE key = job_id "
        "AND start_s < at_s AND end_s IS NOT NULL) FROM events JOIN jobs ON key = job_id "
        # Before its submission another job had its id.
        "WHERE kind = 'preempted' AND at_s >= submitted_s ORDER BY number"
    )


def _add_indexes_and_samples(database: sqlite3.Connection) -> None:
    """The indexes keep queries of cycles, starts and reports fast as ended jobs accumulate."""
    database.execute("CREATE INDEX ended ON jobs (ended_s)")
    database.execute("CREATE INDEX run_ended ON incarnations (end_s)")
    database.execute("CREATE INDEX preempted ON preemptions (key)")
    database.execute("CREATE INDEX preempted_at ON preemptions (at_s)")
    database.execute("CREATE INDEX happened_to ON events (job_id)")
    database.execute("CREATE INDEX happened_for ON events (other)")
    columns = _columns(Sample)
    database.execute(f"CREATE TABLE samples (number INTEGER PRIMARY KEY, {columns})")


def _add_lifecycles(database: sqlite3.Connection) -> None:
    """Move starts and preemptions under way from columns of jobs to tables."""
    _create_lifecycles(database)
    database.execute(
        "INSERT INTO nominations (key, state, nominated_s, free_s, allocation, expired_s, "
        "situation, expirations, victims_left, in_vain) "
        "SELECT key, CASE WHEN claimed_s IS NULL THEN 'expired' "
        "WHEN claim_free_s IS NULL THEN 'pending' ELSE 'free' END, claimed_s, claim_free_s, "
        "claim, gave_up_s, gave_up_on, times_given_up, 0, '' FROM jobs "
        "WHERE ended_s IS NULL AND (claimed_s IS NOT NULL OR gave_up_s IS NOT NULL)"
    )
    database.execute(
        "INSERT INTO preemptions_under_way (key, state, preemptor, signalled_s, requeue_sent_s, "
        "refusals) SELECT key, CASE WHEN vacating_for = '' THEN 'requeued' "
        "WHEN requeue_sent_s IS NOT NULL THEN 'requeue-sent' "
        "WHEN vacating_since_s IS NOT NULL THEN 'signalled' ELSE 'planned' END, "
        "CASE WHEN vacating_for = '' THEN preempted_by ELSE vacating_for END, "
        "vacating_since_s, requeue_sent_s, 0 FROM jobs "
        "WHERE ended_s IS NULL AND (vacating_for != '' OR settling)"
    )
    _drop_columns(
        database,
        {
            *("claim", "claimed_s", "claim_free_s"),
            *("vacating_for", "vacating_since_s", "requeue_sent_s", "settling"),
            *("gave_up_s", "gave_up_on", "times_given_up"),
        },
    )


def _drop_columns(database: sqlite3.Connection, columns: Collection[str]) -> None:
    """Drop columns of ``jobs`` with one copy; SQLite's DROP COLUMN copies once for each."""
    query = "SELECT name, type, pk FROM pragma_table_info('jobs')"
    kept = [row for row in database.execute(query).fetchall() if row[0] not in columns]
    names = ", ".join(name for name, _, _ in kept)
    definitions = ", ".join(f"{n} {kind}{' PRIMARY KEY' if pk else ''}" for n, kind, pk in kept)
    database.execute(f"CREATE TABLE jobs_kept ({definitions})")
    database.execute(f"INSERT INTO jobs_kept ({names}) SELECT {names} FROM jobs")
    database.execute("DROP TABLE jobs")
    database.execute("ALTER TABLE jobs_kept RENAME TO jobs")
    database.execute("CREATE INDEX ended ON jobs (ended_s)")


def _create_lifecycles(database: sqlite3.Connection) -> None:
    for table, kind in (("nominations", Nomination), ("preemptions_under_way", Preemption)):
        columns = _columns(kind, key="key TEXT PRIMARY KEY")
        database.execute(f"CREATE TABLE {table} ({columns})")


def _add_starts_in_vain(database: sqlite3.Connection) -> None:
    """Add the situations of starts in vain to nominations, and refused node lists to jobs."""
    query = "SELECT 1 FROM pragma_table_info('nominations') WHERE name = 'topology_hash'"
    if database.execute(query).fetchone():
        database.execute("ALTER TABLE nominations RENAME COLUMN topology_hash TO situation")
        database.execute("ALTER TABLE nominations ADD COLUMN victims_left INTEGER DEFAULT 0")
        database.execute("ALTER TABLE nominations ADD COLUMN in_vain TEXT DEFAULT ''")
    database.execute("ALTER TABLE jobs ADD COLUMN list_refused INTEGER DEFAULT 0")


def _add_progress(database: sqlite3.Connection) -> None:
    columns = _columns(RunProgressRecord)
    database.execute(f"CREATE TABLE run_progress ({columns}, PRIMARY KEY (key, restarts))")


def _add_claims_and_limits(database: sqlite3.Connection) -> None:
    for table, column in (
        ("jobs", "time_limit_s"),
        ("jobs", "claimed_gpu_s"),
        ("jobs", "promised_gpu_s"),
        ("samples", "time_limit_s"),
    ):
        _add_column(database, table, f"{column} REAL")


def _add_column(database: sqlite3.Connection, table: str, column: str) -> None:
    """Add a column unless the table has it, as tables made by an earlier migration do."""
    name = column.split()[0]
    query = f"SELECT 1 FROM pragma_table_info('{table}') WHERE name = '{name}'"
    if not database.execute(query).fetchone():
        database.execute(f"ALTER TABLE {table} ADD COLUMN {column}")


def _add_costs_and_guards(database: sqlite3.Connection) -> None:
    _add_saves_and_redone_work(database)
    for name in ("first_step_s", "save_every_s", "first_s", "asked_s", "saving_s"):
        _add_column(database, "run_progress", f"{name} REAL")
    _create_costs(database)


def _create_costs(database: sqlite3.Connection) -> None:
    columns = _columns(PreemptionCost)
    database.execute(f"CREATE TABLE preemption_costs ({columns}, PRIMARY KEY (key, run_start_s))")
    database.execute("CREATE INDEX cost_at ON preemption_costs (at_s)")


def _create_drilled(database: sqlite3.Connection) -> None:
    columns = _columns(DrilledProgram)
    database.execute(f"CREATE TABLE drilled ({columns}, PRIMARY KEY (user, name))")


def _add_saves_and_redone_work(database: sqlite3.Connection) -> None:
    for table, column, default in (
        ("preemptions_under_way", "asked INTEGER", 0),
        ("incarnations", "redone_s REAL", 0.0),
    ):
        _add_column(database, table, f"{column} DEFAULT {default}")


def _add_lanes(database: sqlite3.Connection) -> None:
    _add_column(database, "jobs", "lane TEXT DEFAULT ''")


def _add_idle_gpus(database: sqlite3.Connection) -> None:
    _add_column(database, "incarnations", "idle_gpu_s REAL DEFAULT 0.0")


def _add_causes(database: sqlite3.Connection) -> None:
    """Until then all preemptions were for other jobs."""
    for table in ("preemptions_under_way", "preemptions"):
        _add_column(database, table, "cause TEXT")
        database.execute(f"UPDATE {table} SET cause = ?", (Cause.FOR_JOB,))
    _add_column(database, "jobs", "idle_requeues INTEGER DEFAULT 0")
    _add_column(database, "jobs", "idle_signalled_run INTEGER")


def _add_clock_steps(database: sqlite3.Connection) -> None:
    _add_column(database, "incarnations", "clock_set_by_s REAL DEFAULT 0.0")


def _add_own_graces_and_idle_times(database: sqlite3.Connection) -> None:
    _add_column(database, "incarnations", "idle_s REAL DEFAULT 0.0")
    _add_column(database, "preemptions_under_way", "grace_until_s REAL")
    _add_column(database, "preemptions", "late_s REAL DEFAULT 0.0")
    database.execute("UPDATE preemptions SET late_s = 0.0 WHERE late_s IS NULL")


MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], None]] = {
    1: _add_users_and_names,
    2: _add_accounts,
    3: _add_partitions_and_preemptions,
    4: _add_indexes_and_samples,
    5: _add_lifecycles,
    6: _add_starts_in_vain,
    7: _add_progress,
    8: _add_claims_and_limits,
    9: _add_costs_and_guards,
    10: _create_drilled,
    11: _add_lanes,
    12: _add_idle_gpus,
    13: _add_causes,
    14: _add_clock_steps,
    15: _add_own_graces_and_idle_times,
}
"""The migration of each older schema to the next."""


def _columns(kind: type[Any], **special: str) -> str:
    types = {"str": "TEXT", "int": "INTEGER", "bool": "INTEGER", **dict.fromkeys(STATES, "TEXT")}
    return ", ".join(
        special.get(
            field.name, f"{field.name} {types.get(str(field.type).split(' | ')[0], 'REAL')}"
        )
        for field in dataclasses.fields(kind)
    )
