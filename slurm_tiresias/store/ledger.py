"""The ledger: what must survive the controller, in SQLite.

Slurm forgets what this program needs: the first start, the original submission, the service of
earlier runs, the tier. Every change of a cycle is committed before Slurm is sent anything that
depends on it, so a kill at any instruction loses nothing.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from slurm_tiresias import __version__
from slurm_tiresias.database import create, set_mode, transaction
from slurm_tiresias.errors import ConfigError, LedgerError
from slurm_tiresias.model import JobAccount
from slurm_tiresias.store import tables
from slurm_tiresias.store.queries import (
    CostRows,
    EventRows,
    JobRows,
    PreemptionRows,
    ProgressRows,
    RunRows,
    SampleRows,
)
from slurm_tiresias.store.rows import LedgerDatabase, Rows, damaged, explained
from slurm_tiresias.store.tables import SCHEMA, SCHEMA_VERSION, TABLES, create_tables

FILE_NAME = "ledger.sqlite"
MODE = 0o600
"""Not readable by other users: it has the names of all users' jobs."""
NUMBERS_AT_A_TIME = 1000
STEPS_BETWEEN_LOOKS = 100_000
"""Instructions of SQLite's virtual machine between two calls of ``stop``: a few milliseconds."""

CLUSTER = "cluster"
FIRST_LOOK = "first_look_s"
"""The fact that stores when a controller first observed the cluster, by Slurm's clock."""
NUMBERS_RESERVED = "numbers_reserved"
PRUNED_BEFORE = "pruned_before_s"


class Ledger(LedgerDatabase):
    """The tables of one cluster, by subject. One process writes at a time."""

    def __init__(self, path: Path, *, checked: bool = False) -> None:
        """Open or create the ledger.

        ``checked``: the file has just been found intact. Raises ``DamagedLedgerError`` if the file
        exists but is damaged, and ``LedgerError`` if it cannot be written or is of another version.
        """
        with explained(path):
            if not path.exists():
                _create(path)
            set_mode(path, MODE)
            self._attach(path, sqlite3.connect(path, isolation_level=None))
            try:
                self._prepare(checked)
            except BaseException:
                self.close()
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
        with explained(path):
            uri = f"{path.absolute().as_uri()}?mode=ro"
            ledger._attach(path, sqlite3.connect(uri, uri=True, isolation_level=None))
        try:
            ledger._check_version()
        except BaseException:
            ledger.close()
            raise
        if stop:
            ledger._database.set_progress_handler(stop, STEPS_BETWEEN_LOOKS)
        return ledger

    def _attach(self, path: Path, database: sqlite3.Connection) -> None:
        super().__init__(path, database)
        self._next_number = self._numbers_reserved = 0
        self.jobs = JobRows(self, tables.JOBS)
        self.runs = RunRows(self, tables.RUNS)
        self.progress = ProgressRows(self, tables.RUN_PROGRESS)
        self.preemptions = PreemptionRows(self, tables.PREEMPTIONS)
        self.costs = CostRows(self, tables.PREEMPTION_COSTS)
        self.events = EventRows(self, tables.EVENTS)
        self.samples = SampleRows(self, tables.SAMPLES)
        self.drilled = Rows(self, tables.DRILLED)
        self.nodes = Rows(self, tables.NODES)
        self.nominations = Rows(self, tables.NOMINATIONS)
        """The nominations of all jobs, expired ones included."""
        self.preemptions_under_way = Rows(self, tables.PREEMPTIONS_UNDER_WAY)

    @property
    def cluster(self) -> str | None:
        """The cluster that the ledger belongs to; None until ``bind``."""
        return self.value(CLUSTER)

    def bind(self, cluster: str, *, renamed: bool = False) -> None:
        """Make this the ledger of a cluster.

        Raises ``ConfigError`` if it belongs to another one, unless that was ``renamed``.
        """
        if not renamed and self.cluster not in (None, cluster):
            raise _of_another_cluster(self.path, self.cluster, cluster)
        if self.cluster != cluster:
            self.set_value(CLUSTER, cluster)

    def forget(self, keys: Collection[str]) -> None:
        """Delete these jobs, but not their events: their ids have been given to other jobs."""
        for table in TABLES:
            if table.is_of_jobs:
                one_of = f"DELETE FROM {table.name} WHERE key = ?"
                self.change_each(one_of, ((key,) for key in keys))

    @property
    def pruned_before_s(self) -> float:
        """Jobs that ended before this time may have been pruned; 0.0 if none have been."""
        return float(self.value(PRUNED_BEFORE) or "0.0")

    def give_back_room(self) -> None:
        """Shrink the file to its contents; takes seconds, and disk space for a copy."""
        self.change("VACUUM")

    def note_first_look(self, at_s: float) -> None:
        """Record when the cluster was first observed, unless that is known."""
        if self.value(FIRST_LOOK) is None:
            self.set_value(FIRST_LOOK, repr(at_s))

    def next_number(self) -> int:
        """Return a number larger than any returned before, also by earlier controllers."""
        if self._next_number == self._numbers_reserved:
            # Reserved by the thousand, so that most numbers cost no write to disk; gaps are
            # harmless.
            self._next_number = int(self.value(NUMBERS_RESERVED) or "0")
            reserved = self._next_number + NUMBERS_AT_A_TIME
            self.set_value(NUMBERS_RESERVED, str(reserved))
            self._numbers_reserved = reserved
        self._next_number += 1
        return self._next_number

    def _prepare(self, checked: bool) -> None:
        if not checked:
            _check_soundness(self.path, self._database)
        self._check_version()
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        for table in TABLES:
            query = f"SELECT name FROM pragma_table_info('{table.name}')"
            missing = table.columns.keys() - {name for (name,) in self.read(query)}
            if missing:
                raise damaged(self.path, f"{table.name} lacks {', '.join(sorted(missing))}")
        # Fail now rather than in the first cycle if the ledger cannot be written.
        self.set_value("written_by", __version__)

    def _check_version(self) -> None:
        version = self.value(SCHEMA)
        if version is None:
            raise damaged(self.path, "it has no version")
        if version != str(SCHEMA_VERSION):
            raise LedgerError(
                f"The ledger {self.path} is of another version (schema {version}, not "
                f"{SCHEMA_VERSION})",
                "With no controller running, begin a new one from accounting: tiresias-slurm "
                "ledger rebuild. Or move the file away to start without history",
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
