"""The ledger: what must survive the controller, in SQLite.

Slurm forgets what this program needs: the first start, the original submission, the service of
earlier runs, the tier. Every change of a cycle is committed before Slurm is sent anything that
depends on it, so a kill at any instruction loses nothing.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from slurm_tiresias import __version__
from slurm_tiresias.core.features.charge import EndedRun, payer_of
from slurm_tiresias.core.features.losses import Loss, losses_of
from slurm_tiresias.core.lifecycle.nomination import Nomination
from slurm_tiresias.core.lifecycle.preemption import Cause, Preemption
from slurm_tiresias.database import create, set_mode, transaction
from slurm_tiresias.errors import (
    ConfigError,
    DamagedLedgerError,
    LedgerError,
    RefusedError,
    TiresiasError,
)
from slurm_tiresias.model import JobAccount, Lane
from slurm_tiresias.store.records import (
    UNKNOWN,
    CompletedJob,
    CostSource,
    DrilledProgram,
    EventRecord,
    LostTotals,
    PreemptionCost,
    PreemptionRecord,
    Pruned,
    RunProgressRecord,
    RunRecord,
    Sample,
)
from slurm_tiresias.store.schema import SCHEMA_VERSION, STATES, TABLES, create_tables

FILE_NAME = "ledger.sqlite"
MODE = 0o600
"""Not readable by other users: it has the names of all users' jobs."""
CLUSTER = "cluster"
EVENTS_KEPT = 200_000
"""Some weeks of a busy cluster; 20 MB."""
SAMPLES_KEPT = 100_000
"""The number of ended jobs, pruned ones included, that policies based on history learn from."""
SAMPLES_AT_A_TIME = 2000
LOOKED_AT_FOR_EACH = 5
"""The published events are chosen from this many times as many."""
NUMBERS_AT_A_TIME = 1000
FIRST_LOOK = "first_look_s"
"""The fact that stores when a controller first observed the cluster, by Slurm's clock."""
STEPS_BETWEEN_LOOKS = 100_000
"""Instructions of SQLite's virtual machine between two calls of ``stop``: a few milliseconds."""

T = TypeVar("T")


class Ledger:
    """Job records, runs and events of one cluster. One process writes at a time."""

    def __init__(self, path: Path, *, checked: bool = False) -> None:
        """Open or create the ledger.

        ``checked``: the file has just been found intact. Raises ``DamagedLedgerError`` if the file
        exists but is damaged, and ``LedgerError`` if it cannot be written or is of another version.
        """
        self._path = path
        self._next_number = self._numbers_reserved = 0
        with _explained(path):
            if not path.exists():
                _create(path)
            set_mode(path, MODE)
            self._database = sqlite3.connect(path, isolation_level=None)
            try:
                self._prepare(checked)
            except BaseException:
                self._database.close()
                raise

    @classmethod
    def to_read(cls, path: Path, stop: Callable[[], bool] | None = None) -> Ledger:
        """Open the ledger read-only, beside the controller that writes it.

        ``stop`` is called repeatedly while SQLite works; once it returns true, the query ends with
        ``RefusedError``. Raises ``LedgerError`` if the ledger cannot be read or is of another
        version.
        """
        if path.exists() and not os.access(path, os.R_OK, effective_ids=True):
            raise LedgerError(
                f"The ledger {path} is for the controller's user and root alone",
                "Do this as one of them, or ask an administrator",
            )
        ledger = cls.__new__(cls)
        ledger._path = path
        with _explained(path):
            uri = f"{path.absolute().as_uri()}?mode=ro"
            ledger._database = sqlite3.connect(uri, uri=True, isolation_level=None)
        try:
            ledger._check_version()
        except BaseException:
            ledger.close()
            raise
        if stop:
            ledger._database.set_progress_handler(stop, STEPS_BETWEEN_LOOKS)
        return ledger

    def close(self) -> None:
        self._database.close()

    @property
    def cluster(self) -> str | None:
        """The cluster that the ledger belongs to; None until ``bind``."""
        return self.value(CLUSTER)

    def bind(self, cluster: str, *, renamed: bool = False) -> None:
        """Make this the ledger of a cluster.

        Raises ``ConfigError`` if it belongs to another one, unless that was ``renamed``.
        """
        if not renamed and self.cluster not in (None, cluster):
            raise _of_another_cluster(self._path, self.cluster, cluster)
        if self.cluster != cluster:
            self.set_value(CLUSTER, cluster)

    @property
    def path(self) -> Path:
        return self._path

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything in the block, or nothing; it is on disk when the block ends."""
        with _explained(self._path), transaction(self._database):
            yield

    # Jobs and their runs

    def jobs(self) -> dict[str, JobAccount]:
        """Return every job that has not ended, and those with unconfirmed runs."""
        query = (
            "SELECT * FROM jobs WHERE ended_s IS NULL OR key IN "
            "(SELECT key FROM runs WHERE confirmed = 0)"
        )
        return {record.key: record for record in self._read(JobAccount, query)}

    def runs(self) -> dict[str, dict[float, RunRecord]]:
        """Return the runs of those jobs, by job and start time."""
        query = (
            "SELECT * FROM runs WHERE key IN (SELECT key FROM jobs WHERE ended_s IS NULL) "
            "OR key IN (SELECT key FROM runs WHERE confirmed = 0)"
        )
        found: dict[str, dict[float, RunRecord]] = {}
        for record in self._read(RunRecord, query):
            found.setdefault(record.key, {})[record.start_s] = record
        return found

    def job(self, key: str) -> JobAccount | None:
        return next(iter(self._read(JobAccount, "SELECT * FROM jobs WHERE key = ?", key)), None)

    def tasks_of(self, array: str, at_most: int) -> list[JobAccount]:
        """Return the first ``at_most`` tasks of an array, given its job id."""
        # Keys that begin with "12_" sort before "12`".
        query = (
            "SELECT * FROM jobs WHERE key > ? AND key < ? "
            "ORDER BY CAST(substr(key, ?) AS INTEGER), key LIMIT ?"
        )
        of_task = len(array) + 2
        return list(self._read(JobAccount, query, f"{array}_", f"{array}`", of_task, at_most))

    def runs_of(self, key: str) -> list[RunRecord]:
        query = "SELECT * FROM runs WHERE key = ?"
        runs = self._read(RunRecord, query, key)
        return sorted(runs, key=lambda run: run.began_s)

    # Progress

    def save_run_progress(self, records: Iterable[RunProgressRecord]) -> None:
        self._upsert("run_progress", RunProgressRecord, records)

    def progress_of(self, key: str) -> list[RunProgressRecord]:
        """Return the last report of each run of a job, earliest run first; runs without one are
        left out."""
        query = "SELECT * FROM run_progress WHERE key = ? ORDER BY restarts"
        return list(self._read(RunProgressRecord, query, key))

    def progress_of_live_jobs(self) -> list[RunProgressRecord]:
        """Return the last reports of the runs of all jobs that have not ended, earliest runs
        first."""
        query = (
            "SELECT run_progress.* FROM run_progress JOIN jobs USING (key) "
            "WHERE ended_s IS NULL ORDER BY run_progress.restarts"
        )
        return list(self._read(RunProgressRecord, query))

    # Starts and preemptions under way

    def nominations(self) -> list[Nomination]:
        """Return the nominations of all jobs, expired ones included."""
        return list(self._read(Nomination, "SELECT * FROM nominations"))

    def preemptions_under_way(self) -> list[Preemption]:
        return list(self._read(Preemption, "SELECT * FROM preemptions_under_way"))

    def save_nominations(self, changed: Mapping[str, Nomination | None]) -> None:
        """Save nominations by job; None deletes a row."""
        self._save_or_remove("nominations", Nomination, changed)

    def save_preemptions_under_way(self, changed: Mapping[str, Preemption | None]) -> None:
        """Save preemptions by victim; None deletes a row."""
        self._save_or_remove("preemptions_under_way", Preemption, changed)

    def jobs_alive_since(self, since_s: float) -> list[JobAccount]:
        """Return every job that has not ended before ``since_s``."""
        query = "SELECT * FROM jobs WHERE ended_s IS NULL OR ended_s >= ?"
        return list(self._read(JobAccount, query, since_s))

    def runs_since(self, since_s: float) -> dict[str, list[RunRecord]]:
        """Return the runs that started at or after ``since_s``, by job, oldest first."""
        # The condition on end_s is redundant, but has an index.
        query = (
            "SELECT * FROM runs WHERE (end_s IS NULL OR end_s >= ?) AND start_s >= ? "
            "ORDER BY start_s"
        )
        found: dict[str, list[RunRecord]] = {}
        for record in self._read(RunRecord, query, since_s, since_s):
            found.setdefault(record.key, []).append(record)
        return found

    def period(
        self,
        since_s: float,
        until_s: float,
        user: str | None = None,
        most_bytes: float = math.inf,
    ) -> bytearray:
        """Return what happened in [``since_s``, ``until_s``) as JSON: rows of ``PERIOD``, by table.

        With a ``user``, only what concerns this user's jobs, and nothing but the ids of others'
        jobs. SQLite generates the JSON row by row, so that Python's other threads can run
        meanwhile: 300,000 jobs take two seconds. Raises ``RefusedError`` if it is longer than
        ``most_bytes``.
        """
        values = {"since": since_s, "until": until_s, "user": user}
        found = bytearray(b"{")
        # In one transaction, so that all tables are of the same moment.
        with _explained(self._path), transaction(self._database, "DEFERRED"):
            for name, query in _PERIOD_QUERIES.items():
                found += f'"{name}":['.encode()
                for (row,) in self._database.execute(query, values):
                    found += row.encode()
                    found += b","
                    if len(found) > most_bytes:
                        raise RefusedError(
                            f"The report of this time has more than {most_bytes / 1e6:.0f} MB",
                            "Ask for less",
                        )
                if found.endswith(b","):
                    found.pop()
                found += b"],"
            (events,) = self._database.execute(_PERIOD_EVENTS, values).fetchone()
            began = self.value(FIRST_LOOK) or "null"
            pruned = self.pruned_before_s
        told = f'"events":{events},"began_s":{began},"pruned_before_s":{pruned}}}'
        found += told.encode()
        return found

    def save_jobs(self, records: Iterable[JobAccount]) -> None:
        self._upsert("jobs", JobAccount, records)

    def save_runs(self, records: Iterable[RunRecord]) -> None:
        self._upsert("runs", RunRecord, records)

    def forget(self, keys: Collection[str]) -> None:
        """Delete these jobs, but not their events: their ids have been given to other jobs."""
        with _explained(self._path):
            for table in (*_OF_ENDED_JOBS, "nominations", "preemptions_under_way"):
                self._database.executemany(
                    f"DELETE FROM {table} WHERE key = ?", [(key,) for key in keys]
                )

    def samples(
        self, since_s: float = -math.inf, meanwhile: Callable[[], None] = lambda: None
    ) -> list[Sample]:
        """Return the jobs that have run and ended since then, oldest first, up to ``SAMPLES_KEPT``.

        They include pruned jobs. ``meanwhile`` is called repeatedly: 100,000 jobs take 0.4 s, and
        much longer on a slow disk.
        """
        kept = (
            "SELECT ended_s, user, name, "
            "(SELECT SUM(elapsed_s) FROM runs WHERE key = jobs.key), "
            "(SELECT SUM(elapsed_s * gpus) FROM runs WHERE key = jobs.key), time_limit_s "
            f"FROM jobs WHERE ended_s >= ? AND first_started_s IS NOT NULL AND {_PREEMPTIBLE} "
            "ORDER BY ended_s DESC LIMIT ?"
        )
        pruned = (
            "SELECT ended_s, user, name, run_s, service_gpu_s, time_limit_s FROM samples "
            "WHERE ended_s >= ? ORDER BY number DESC LIMIT ?"
        )
        rows: list[tuple[Any, ...]] = []
        with _explained(self._path):
            for query in (kept, pruned):
                cursor = self._database.execute(query, (since_s, SAMPLES_KEPT - len(rows)))
                while some := cursor.fetchmany(SAMPLES_AT_A_TIME):
                    rows += some
                    meanwhile()
        return [Sample(*row) for row in reversed(rows) if row[3] is not None]

    def completed_jobs(self, most_recent: int) -> list[CompletedJob]:
        """Return the last jobs to end that have run, oldest first; 0.2 s with 100,000 jobs."""
        query = (
            "SELECT key, submitted_s, ended_s, tier, preemptions, SUM(elapsed_s), MAX(gpus) FROM "
            "(SELECT key, submitted_s, ended_s, tier, preemptions FROM jobs "
            f"WHERE ended_s IS NOT NULL AND first_started_s IS NOT NULL AND {_PREEMPTIBLE} "
            "ORDER BY ended_s DESC LIMIT ?) "
            # CROSS keeps SQLite from reordering: jobs first, then their runs by key.
            "CROSS JOIN runs USING (key) GROUP BY key ORDER BY ended_s"
        )
        with _explained(self._path):
            return [CompletedJob(*row) for row in self._database.execute(query, (most_recent,))]

    def ended_runs(self, since_s: float, charge: str) -> list[EndedRun]:
        """Return the runs that ended after ``since_s``, each with the user or account charged."""
        query = (
            "SELECT key, start_s, user, account, end_s, elapsed_s * gpus FROM runs "
            "JOIN jobs USING (key) WHERE end_s > ?"
        )
        with _explained(self._path):
            return [
                EndedRun(key, start_s, payer_of(charge, user, account), end_s, service_gpu_s)
                for key, start_s, user, account, end_s, service_gpu_s in self._database.execute(
                    query, (since_s,)
                )
            ]

    def runs_in_lane(self, lane: Lane, since_s: float) -> list[tuple[str, RunRecord]]:
        """Return the runs in a lane that ended after ``since_s``, each with its user."""
        jobs = "FROM jobs WHERE lane = ?"
        query = f"SELECT * FROM runs WHERE end_s > ? AND key IN (SELECT key {jobs})"
        runs = list(self._read(RunRecord, query, since_s, lane))
        with _explained(self._path):
            users = dict(self._database.execute(f"SELECT key, user {jobs}", (lane,)))
        return [(users[run.key], run) for run in runs]

    # Preemptions, events and single values

    def losses_since(self, since_s: float) -> list[Loss]:
        """Return the losses that each user's jobs have caused to other users' jobs: see
        ``losses_of``."""
        query = (
            "SELECT p.at_s, o.user, v.user, r.gpus, r.elapsed_s, p.late_s "
            "FROM preemptions p JOIN jobs v ON v.key = p.key "
            # The preemptor's id may have been given to a new job since.
            "JOIN jobs o ON o.key = p.for_job AND o.submitted_s <= p.at_s "
            "JOIN runs r ON r.key = p.key AND r.start_s = p.run_start_s WHERE p.at_s > ?"
        )
        with _explained(self._path):
            rows = self._database.execute(query, (since_s,)).fetchall()
        return [loss for row in rows for loss in losses_of(*row)]

    def save_costs(self, records: Iterable[PreemptionCost]) -> None:
        self._upsert("preemption_costs", PreemptionCost, records)

    def awaited_costs(self) -> list[PreemptionCost]:
        """Return the preemptions whose cost is not known yet."""
        query = "SELECT * FROM preemption_costs WHERE source = ?"
        return list(self._read(PreemptionCost, query, CostSource.AWAITED))

    def costs_of(self, key: str) -> list[PreemptionCost]:
        """Return the cost of each preemption of a job, the earliest first."""
        query = "SELECT * FROM preemption_costs WHERE key = ? ORDER BY run_start_s"
        return list(self._read(PreemptionCost, query, key))

    def lost_since(self, since_s: float) -> LostTotals:
        """Return the total losses of the preemptions since then."""
        lost = " + ".join(f"IFNULL({part}_s, 0)" for part in ("save", "leave", "again", "restart"))
        query = (
            f"SELECT source, COUNT(*), SUM(gpus * ({lost})) FROM preemption_costs "
            "WHERE at_s >= ? GROUP BY source"
        )
        with _explained(self._path):
            found = self._database.execute(query, (since_s,)).fetchall()
        known = [
            (number, lost_gpu_s) for source, number, lost_gpu_s in found if source not in UNKNOWN
        ]
        counts = {source: number for source, number, _ in found}
        measured, not_yet = sum(number for number, _ in known), counts.get(CostSource.AWAITED, 0)
        return LostTotals(
            lost_gpu_s=sum((lost_gpu_s for _, lost_gpu_s in known), 0.0),
            measured=measured,
            not_yet=not_yet,
            unknown=sum(counts.values()) - measured - not_yet,
        )

    def last_costs(self, most: int) -> list[tuple[str, str, PreemptionCost]]:
        """Return the latest known costs of preemptions, each with the user and the name of its job,
        oldest first."""
        query = (
            "SELECT * FROM (SELECT * FROM preemption_costs WHERE source NOT IN (?, ?, ?) "
            "ORDER BY at_s DESC LIMIT ?) ORDER BY at_s"
        )
        costs = list(self._read(PreemptionCost, query, *UNKNOWN, most))
        keys = json.dumps(sorted({cost.key for cost in costs}))
        query = "SELECT key, user, name FROM jobs WHERE key IN (SELECT value FROM json_each(?))"
        with _explained(self._path):
            owners = {row[0]: row[1:] for row in self._database.execute(query, (keys,))}
        return [(*owners[cost.key], cost) for cost in costs if cost.key in owners]

    def drilled(self) -> list[DrilledProgram]:
        """Return the programs that passed a drill, the latest last."""
        return list(self._read(DrilledProgram, "SELECT * FROM drilled ORDER BY at_s"))

    def save_drilled(
        self, records: Iterable[DrilledProgram], gone: Iterable[tuple[str, str]]
    ) -> None:
        """Store programs that passed a drill, and delete others, by user and name."""
        self._upsert("drilled", DrilledProgram, records)
        with _explained(self._path):
            self._database.executemany("DELETE FROM drilled WHERE user = ? AND name = ?", gone)

    def add_preemptions(self, records: Iterable[PreemptionRecord]) -> None:
        self._upsert("preemptions", PreemptionRecord, records)

    def add_events(self, events: Iterable[EventRecord]) -> None:
        rows = [dataclasses.astuple(event) for event in events]
        self._database.executemany(
            "INSERT INTO events (at_s, kind, job_id, other, text) VALUES (?, ?, ?, ?, ?)", rows
        )
        if rows:
            self._database.execute(
                "DELETE FROM events WHERE number <= (SELECT MAX(number) FROM events) - ?",
                (EVENTS_KEPT,),
            )

    def last_events(self, count: int) -> list[EventRecord]:
        """Return the latest events, oldest first.

        Each user gets an equal share, so that one user's jobs do not displace those of others;
        shares that are not used go to other users.
        """
        query = (
            f"{_SELECT_EVENTS} FROM (SELECT * FROM "
            "(SELECT *, ROW_NUMBER() OVER (PARTITION BY user ORDER BY number DESC) AS place FROM "
            "(SELECT events.*, jobs.user FROM events LEFT JOIN jobs ON jobs.key = events.job_id "
            "ORDER BY number DESC LIMIT ?)) ORDER BY place, number DESC LIMIT ?) ORDER BY number"
        )
        return list(self._read(EventRecord, query, LOOKED_AT_FOR_EACH * count, count))

    def events_of(self, key: str, since_s: float) -> list[EventRecord]:
        """Return the events of a job and those that it caused, oldest first.

        Only from ``since_s`` on: before that, another job had its id.
        """
        where = "(job_id = ? OR other = ?) AND at_s >= ?"
        query = f"{_SELECT_EVENTS} FROM events WHERE {where} ORDER BY number"
        return list(self._read(EventRecord, query, key, key, since_s))

    def events_of_kind(self, kind: str, since_s: float) -> list[EventRecord]:
        """Return all events of one kind from a time on, oldest first."""
        query = f"{_SELECT_EVENTS} FROM events WHERE kind = ? AND at_s >= ? ORDER BY number"
        return list(self._read(EventRecord, query, kind, since_s))

    def put_rows(self, table: str, records: Iterable[Any]) -> int:
        """Insert records of a table and return their number; see ``salvage``."""
        before = self._database.total_changes
        self._upsert(table, TABLES[table], records)
        return self._database.total_changes - before

    def finish_salvage(self, of_jobs: Iterable[str]) -> None:
        """Drop rows of ``of_jobs`` without their job, and have accounting asked about live jobs."""
        with _explained(self._path):
            for table in of_jobs:
                self._database.execute(
                    f"DELETE FROM {table} WHERE key NOT IN (SELECT key FROM jobs)"
                )
            self._database.execute("UPDATE jobs SET accounted_restarts = 0 WHERE ended_s IS NULL")
            query = "SELECT MAX(MAX(IFNULL(start_number, 0)), MAX(entry_number)) FROM jobs"
            (number,) = self._database.execute(query).fetchone()
        reserved = int(float(self.value("numbers_reserved") or "0"))
        if number is not None:
            self.set_value("numbers_reserved", str(max(number, reserved)))

    # Retention

    @property
    def pruned_before_s(self) -> float:
        """Jobs that ended before this time may have been pruned; 0.0 if none have been."""
        return float(self.value("pruned_before_s") or "0.0")

    def newest_s(self) -> float | None:
        """Return the newest time of an event or of the end of a job; None if there is none."""
        query = (
            "SELECT MAX(at_s) FROM (SELECT MAX(ended_s) AS at_s FROM jobs UNION ALL "
            "SELECT at_s FROM (SELECT at_s FROM events ORDER BY number DESC LIMIT 1))"
        )
        with _explained(self._path):
            (newest_s,) = self._database.execute(query).fetchone()
        return None if newest_s is None else float(newest_s)

    def first_start_of_live_jobs_s(self) -> float | None:
        """Return the first start among the jobs that have not ended; None if none has started."""
        query = "SELECT MIN(first_started_s) FROM jobs WHERE ended_s IS NULL"
        with _explained(self._path):
            (first_s,) = self._database.execute(query).fetchone()
        return None if first_s is None else float(first_s)

    def prunable(self, before_s: float) -> Pruned:
        """Count what repeated calls of ``prune`` would remove."""
        old = f"(SELECT key FROM jobs WHERE {_PRUNABLE})"
        queries = (
            f"SELECT COUNT(*) FROM jobs WHERE {_PRUNABLE}",
            f"SELECT COUNT(*) FROM runs WHERE key IN {old}",
            f"SELECT COUNT(*) FROM preemptions WHERE key IN {old}",
            "SELECT COUNT(*) FROM events WHERE at_s < :before_s",
        )
        values = {"before_s": before_s}
        with _explained(self._path):
            return Pruned(*(self._database.execute(q, values).fetchone()[0] for q in queries))

    def prune(self, before_s: float, at_most: int, kept: Collection[str] = ()) -> Pruned:
        """Remove the oldest jobs that ended before a time, and the oldest events before it.

        Runs one short transaction with ``at_most`` jobs and as many events: call it again until
        nothing is left. Samples of the jobs' service stay (``samples``), and so do jobs that
        accounting has not confirmed and those in ``kept``.
        """
        oldest = f"SELECT key FROM jobs WHERE {_PRUNABLE} ORDER BY ended_s LIMIT :at_most"
        values: dict[str, object] = {"before_s": before_s, "at_most": at_most + len(kept)}
        with self.transaction():
            found = [key for (key,) in self._database.execute(oldest, values) if key not in kept]
            values |= {"keys": json.dumps(found[:at_most]), "at_most": at_most}
            self._database.execute(_KEEP_SAMPLES, values)
            self._database.execute(
                "DELETE FROM samples WHERE number <= (SELECT MAX(number) FROM samples) - ?",
                (SAMPLES_KEPT,),
            )
            jobs, runs, preemptions, *_ = (
                self._database.execute(
                    f"DELETE FROM {table} WHERE key IN (SELECT value FROM json_each(:keys))", values
                ).rowcount
                for table in _OF_ENDED_JOBS
            )
            events = self._database.execute(_PRUNE_EVENTS, values).rowcount
            if jobs and before_s > self.pruned_before_s:
                self.set_value("pruned_before_s", repr(before_s))
        return Pruned(jobs, runs, preemptions, events)

    def give_back_room(self) -> None:
        """Shrink the file to its contents; takes seconds, and disk space for a copy."""
        with _explained(self._path):
            self._database.execute("VACUUM")

    def value(self, name: str) -> str | None:
        with _explained(self._path):
            row = self._database.execute(
                "SELECT value FROM facts WHERE name = ?", (name,)
            ).fetchone()
        return None if row is None else str(row[0])

    def set_value(self, name: str, value: str) -> None:
        with _explained(self._path):
            self._database.execute(
                "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = ?",
                (name, value, value),
            )

    def note_first_look(self, at_s: float) -> None:
        """Record when the cluster was first observed, unless that is known."""
        if self.value(FIRST_LOOK) is None:
            self.set_value(FIRST_LOOK, repr(at_s))

    def next_number(self) -> int:
        """Return a number larger than any returned before, also by earlier controllers."""
        if self._next_number == self._numbers_reserved:
            # Reserved by the thousand, so that most numbers cost no write to disk; gaps are
            # harmless.
            self._next_number = int(self.value("numbers_reserved") or "0")
            reserved = self._next_number + NUMBERS_AT_A_TIME
            self.set_value("numbers_reserved", str(reserved))
            self._numbers_reserved = reserved
        self._next_number += 1
        return self._next_number

    # The tables

    def _prepare(self, checked: bool) -> None:
        if not checked:
            _check_soundness(self._path, self._database)
        self._check_version()
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        for table, kind in TABLES.items():
            query = f"SELECT name FROM pragma_table_info('{table}')"
            there = {str(row[0]) for row in self._database.execute(query)}
            missing = {field.name for field in dataclasses.fields(kind)} - there
            if missing:
                raise damaged(self._path, f"{table} lacks {', '.join(sorted(missing))}")
        # Fail now rather than in the first cycle if the ledger cannot be written.
        self.set_value("written_by", __version__)

    def _check_version(self) -> None:
        version = self.value("schema_version")
        if version is None:
            raise damaged(self._path, "it has no version")
        if version != str(SCHEMA_VERSION):
            raise LedgerError(
                f"The ledger {self._path} is of another version (schema {version}, not "
                f"{SCHEMA_VERSION})",
                "With no controller running, begin a new one from accounting: tiresias-slurm "
                "ledger rebuild. Or move the file away to start without history",
            )

    def _read(self, kind: type[T], query: str, *values: object) -> Iterator[T]:
        fields = dataclasses.fields(kind)  # type: ignore[arg-type]
        read_by = {
            field.name: _READ_BY[str(field.type)] for field in fields if str(field.type) in _READ_BY
        }
        with _explained(self._path):
            cursor = self._database.execute(query, values)
            names = [column[0] for column in cursor.description]
            for row in cursor:
                values_of = dict(zip(names, row, strict=True))
                for name, read in read_by.items():
                    values_of[name] = read(values_of[name])
                yield kind(**values_of)

    def _save_or_remove(self, table: str, kind: type[Any], changed: Mapping[str, Any]) -> None:
        self._upsert(table, kind, (one for one in changed.values() if one is not None))
        gone = [(key,) for key, one in changed.items() if one is None]
        with _explained(self._path):
            self._database.executemany(f"DELETE FROM {table} WHERE key = ?", gone)

    def _upsert(self, table: str, kind: type[Any], records: Iterable[Any]) -> None:
        names = [field.name for field in dataclasses.fields(kind)]
        marks = ", ".join("?" for _ in names)
        statement = f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({marks})"
        with _explained(self._path):
            self._database.executemany(statement, map(dataclasses.astuple, records))


_OF_ENDED_JOBS = ("jobs", "runs", "preemptions", "preemption_costs", "run_progress")

_READ_BY: Mapping[str, Callable[[Any], Any]] = {"bool": bool, **STATES}
"""Converts a column's value to the type of its field."""

_SELECT_EVENTS = "SELECT at_s, kind, job_id, other, text"


LONGEST_NAME = 100
"""Names are cut to this length in reports: a user may give every job a long one."""

_COST_COLUMNS = {
    "cost_source": "c.source",
    "lost_save_s": "c.save_s",
    "lost_leave_s": "c.leave_s",
    "lost_again_s": "c.again_s",
    "lost_restart_s": "c.restart_s",
    "answered_s": "c.answered_s",
    "lost_all": "c.lost_all",
}

PERIOD: Mapping[str, Mapping[str, str]] = {
    "jobs": {
        "job_id": "key",
        "user": "user",
        "account": "account",
        "partition": "partition",
        "name": f"substr(name, 1, {LONGEST_NAME})",
        "submitted_s": "submitted_s",
        "ended_s": "ended_s",
        "restarts": "restarts",
        "preemptions": "preemptions",
        "time_limit_s": "time_limit_s",
    },
    "runs": {
        "job_id": "i.key",
        "start_s": "i.start_s",
        "end_s": "i.end_s",
        "elapsed_s": "i.elapsed_s",
        "gpus": "i.gpus",
        "confirmed": "i.confirmed",
        "idle_gpu_s": "i.idle_gpu_s",
    },
    "preemptions": {
        "job_id": "p.key",
        "for_job": "p.for_job",
        "at_s": "p.at_s",
        "signalled_s": "p.signalled_s",
        "tier": "p.tier",
        "for_tier": "p.for_tier",
        "gpus": "r.gpus",
        "start_s": "r.start_s",
        "left_s": "r.end_s",
        "for_idle_gpus": f"p.cause = '{Cause.IDLE_GPUS}'",
        "again_s": "(SELECT MIN(start_s) FROM runs a "
        "WHERE a.key = p.key AND a.start_s > r.start_s)",
        "ended_s": "v.ended_s",
        "for_gpus": "w.gpus",
        "for_start_s": "w.start_s",
        "for_end_s": "COALESCE(w.end_s, w.start_s + w.elapsed_s)",
        **_COST_COLUMNS,
    },
}
"""The columns of ``Ledger.period`` by table: name and SQL.

The tables have the jobs that existed in that time, all their runs, and the preemptions. A
preemption has the run that it ended (``start_s`` to ``left_s``), the next start of the victim or
else its end, the preemptor's first run since (``for_*``), and its cost, if known.
"""

_PRUNABLE = (
    "ended_s < :before_s AND NOT EXISTS "
    "(SELECT 1 FROM runs i WHERE i.key = jobs.key AND i.confirmed = 0)"
)
_PREEMPTIBLE = f"lane = '{Lane.PREEMPTIBLE}'"
"""Only normal jobs count: how long people stay at a prompt says nothing about jobs that can be
preempted."""

_KEEP_SAMPLES = (
    "INSERT INTO samples (ended_s, user, name, run_s, service_gpu_s, time_limit_s) "
    "SELECT ended_s, user, name, SUM(elapsed_s), SUM(elapsed_s * gpus), time_limit_s "
    "FROM jobs JOIN runs USING (key) "
    "WHERE key IN (SELECT value FROM json_each(:keys)) "
    f"AND {_PREEMPTIBLE} GROUP BY key ORDER BY ended_s"
)
_PRUNE_EVENTS = (
    "DELETE FROM events WHERE number IN (SELECT number FROM "
    "(SELECT number, at_s FROM events ORDER BY number LIMIT :at_most) WHERE at_s < :before_s)"
)

_IS_THERE = "submitted_s < :until AND (ended_s IS NULL OR ended_s >= :since)"
_IS_SEEN = "(:user IS NULL OR (:user != '' AND {} = :user))"


_OF_VICTIM = (
    *("signalled_s", "tier", "gpus", "start_s", "left_s", "again_s", "ended_s"),
    *_COST_COLUMNS,
)
_OF_PREEMPTOR = ("for_tier", "for_gpus", "for_start_s", "for_end_s")
"""Columns of a preemption that are null if the victim or preemptor is another user's job."""


def _rows_of(table: str, source: str) -> str:
    columns = dict(PERIOD[table])
    if table == "preemptions":
        for names, user in ((_OF_VICTIM, "v.user"), (_OF_PREEMPTOR, "o.user")):
            seen = _IS_SEEN.format(user)
            columns |= {name: f"CASE WHEN {seen} THEN {columns[name]} END" for name in names}
    return f"SELECT json_array({', '.join(columns.values())}) FROM {source}"


_PERIOD_QUERIES: Mapping[str, str] = {
    "jobs": _rows_of("jobs", f"jobs WHERE {_IS_THERE} AND {_IS_SEEN.format('user')}"),
    "runs": _rows_of(
        "runs",
        "jobs j CROSS JOIN runs i ON i.key = j.key "
        f"WHERE {_IS_THERE} AND {_IS_SEEN.format('j.user')}",
    ),
    "preemptions": _rows_of(
        "preemptions",
        "preemptions p JOIN jobs v ON v.key = p.key "
        # The preemptor's id may have been given to a new job since.
        "LEFT JOIN jobs o ON o.key = p.for_job AND o.submitted_s <= p.at_s "
        "LEFT JOIN runs r ON r.key = p.key AND r.start_s = p.run_start_s "
        "LEFT JOIN preemption_costs c ON c.key = p.key AND c.run_start_s = p.run_start_s "
        # Accounting has whole seconds.
        "LEFT JOIN runs w ON w.key = o.key AND w.start_s = (SELECT MIN(b.start_s) "
        "FROM runs b WHERE b.key = o.key AND b.start_s >= r.end_s - 2) "
        "WHERE p.at_s >= :since AND p.at_s < :until "
        f"AND ({_IS_SEEN.format('v.user')} OR {_IS_SEEN.format('o.user')})",
    ),
}
_PERIOD_EVENTS = (
    "SELECT json_group_object(kind, times) FROM (SELECT kind, COUNT(*) AS times FROM events "
    "WHERE at_s >= :since AND at_s < :until AND (:user IS NULL OR job_id IN "
    f"(SELECT key FROM jobs WHERE {_IS_SEEN.format('user')})) GROUP BY kind)"
)


def _create(path: Path) -> None:
    """Create a ledger without jobs in one step, so that an empty file always means damage."""
    draft = path.with_name(f".{path.name}.new")
    if _log_of(path).exists():
        raise damaged(path, "only its write-ahead log is left")
    for end in ("", "-journal"):
        draft.with_name(draft.name + end).unlink(missing_ok=True)
    create(draft, MODE)
    with closing(sqlite3.connect(draft, isolation_level=None)) as database, transaction(database):
        create_tables(database)
    draft.rename(path)


def _check_soundness(path: Path, database: sqlite3.Connection) -> None:
    """Check pages and tables; takes 1 s for 1,000,000 jobs."""
    if path.stat().st_size == 0:
        raise damaged(path, "it is empty")
    first = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    if first != "ok":
        raise damaged(path, " ".join(first.split()))
    if not database.execute("SELECT 1 FROM pragma_table_info('facts')").fetchone():
        raise damaged(path, "it has no facts")


_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REMEDIES: Mapping[int, str] = {
    sqlite3.SQLITE_FULL: "Make room on its disk",
    sqlite3.SQLITE_BUSY: "End whatever else works on it",
}


@contextmanager
def _explained(path: Path) -> Iterator[None]:
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


def check_cluster(path: Path, cluster: str) -> None:
    """Raise ``ConfigError`` if the ledger belongs to another cluster.

    The file may be missing, or in use on another host: no lock is taken, and no other file is read.
    """
    found = value_in(path, CLUSTER, "mode=ro&immutable=1")
    if found not in (None, cluster):
        raise _of_another_cluster(path, found, cluster)


def value_in(path: Path, name: str, how: str = "mode=ro") -> str | None:
    """Read a fact of a ledger that may be damaged; None if it cannot be read."""
    where = f"{path.absolute().as_uri()}?{how}"
    with suppress(sqlite3.Error), closing(sqlite3.connect(where, uri=True)) as database:
        row = database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])
    return None


def _of_another_cluster(path: Path, bound_to: object, cluster: str) -> ConfigError:
    return ConfigError(
        f"The ledger {path} is of cluster {bound_to}, and this is cluster {cluster}",
        "Name a controller.state_dir that no other cluster has; if the cluster was renamed: "
        "tiresias-slurm ledger adopt",
    )


def damaged(path: Path, why: object) -> TiresiasError:
    """Return the error that the ledger is damaged, with how to rebuild it."""
    return DamagedLedgerError(
        f"The ledger {path} is damaged: {why}",
        "With no controller running, rebuild it from accounting: tiresias-slurm ledger rebuild",
    )


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def put_in_place(draft: Path, path: Path) -> Path | None:
    """Replace a ledger by another; return the path at which the old one is kept, if there was one.

    There is a ledger at any time, and the old one is never deleted.
    """
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    aside = path.with_name(f"{path.name}.replaced-{moment}-{time.time_ns() % 10**9:09d}")
    parts = [part for part in (path, _log_of(path)) if part.exists()]
    for part in parts:
        aside.with_name(aside.name + part.name.removeprefix(path.name)).hardlink_to(part)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    draft.replace(path)
    return aside if parts else None


def changed(record: JobAccount, **values: object) -> JobAccount:
    """Return the record with these values; the same object if nothing changes."""
    if all(getattr(record, name) == value for name, value in values.items()):
        return record
    return replace(record, **values)  # type: ignore[arg-type]
