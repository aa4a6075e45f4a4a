"""The profile store (SQLite): profiles of models, and the runs from which they were learned.

It also keeps what runs did with their GPUs, for people to read. The controller writes measurements
and an operator writes notes, possibly at the same time. Names come from any user and are only ever
bound as SQL parameters.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from slurm_tiresias.database import create, set_mode, transaction
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.profiler.gpu_runs import GpuRun, NodeGpus
from slurm_tiresias.profiler.profile import MEASURED, Key, Profile
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.profiler.skew import Skew
from slurm_tiresias.profiler.speeds import RunTraffic

FILE_NAME = "profiles.sqlite"
MODE = 0o600
"""It holds names of all users' jobs, and a user who could open it could lock it."""
SCHEMA_VERSION = 1

RUNS_KEPT = 40
"""Runs kept per program: models and clusters change, so old runs are the least relevant."""

MEASURED_KEPT_OF_A_USER = 1000
"""Bound on measured profiles per user, who may give every job another name."""

BUSY_TIMEOUT_S = 5.0

_TABLES = """
CREATE TABLE IF NOT EXISTS profiles (
    kind TEXT, name TEXT, user TEXT, source TEXT,
    largest_bytes INTEGER, total_bytes INTEGER, pieces INTEGER, noted_s REAL,
    PRIMARY KEY (kind, name, user));
CREATE TABLE IF NOT EXISTS runs (
    job_id INTEGER, restarts INTEGER, node TEXT, kind TEXT, name TEXT, user TEXT, source TEXT,
    largest_bytes INTEGER, total_bytes INTEGER, pieces INTEGER, sent_bytes INTEGER,
    gpus INTEGER, elapsed_s REAL, noted_s REAL,
    PRIMARY KEY (job_id, restarts, node));
CREATE INDEX IF NOT EXISTS runs_of_a_program ON runs (kind, name, user);
CREATE TABLE IF NOT EXISTS gpu_runs (
    job_id INTEGER, restarts INTEGER, node TEXT, kind TEXT, name TEXT, user TEXT,
    uuid TEXT, samples INTEGER, seen_s REAL, pci TEXT, gpu_name TEXT,
    utilization REAL, peak_memory_bytes INTEGER, memory_bytes INTEGER,
    pcie_sent_bytes_per_s INTEGER, pcie_received_bytes_per_s INTEGER,
    nvlink_sent_bytes INTEGER, nvlink_received_bytes INTEGER, noted_s REAL,
    PRIMARY KEY (job_id, restarts, node, uuid));
CREATE INDEX IF NOT EXISTS gpu_runs_of_a_program ON gpu_runs (user, kind, name, noted_s);
"""
_PROFILE = "kind, name, user, largest_bytes, total_bytes, pieces, source, noted_s"
_OF_KEY = "WHERE kind = ? AND name = ? AND user = ?"


class ProfileStoreError(TiresiasError):
    """The profile store cannot be opened, read or written."""

    exit_code = 8


@dataclass(frozen=True, slots=True)
class NodeRun:
    """What one node saw of one run of a job. ``run.nodes`` is 1."""

    run_id: RunId
    run: RunTraffic


class ProfileStore:
    """The profiles of one cluster. Every method may raise ``ProfileStoreError``."""

    def __init__(self, path: Path | None, *, writable: bool = True) -> None:
        """Open or create a store; without a path it is in memory."""
        self._path = path or "in memory"
        with self._explained():
            if path is None or writable:
                self._database = _opened(path)
            else:
                self._database = _opened_to_read(path)

    def close(self) -> None:
        self._database.close()

    def version(self) -> int:
        """Return a number that changes when another process writes."""
        with self._explained():
            return int(self._database.execute("PRAGMA data_version").fetchone()[0])

    # Profiles

    def profiles(self) -> list[Profile]:
        """Return all stored profiles by kind, name and user; the built-in ones are not stored."""
        query = f"SELECT {_PROFILE} FROM profiles ORDER BY kind DESC, name, user"
        with self._explained():
            return [_profile(row) for row in self._database.execute(query)]

    def save(self, profiles: Iterable[Profile]) -> None:
        """Store these profiles, replacing those with the same keys."""
        with self._transaction():
            for profile in profiles:
                self._put(profile)

    def forget(self, keys: Iterable[Key]) -> int:
        """Delete profiles, runs and GPU use of these keys; return how many keys had any."""
        found = 0
        with self._transaction():
            for key in set(keys):
                rows = [
                    self._database.execute(f"DELETE FROM {table} {_OF_KEY}", _columns_of(key))
                    for table in ("profiles", "runs", "gpu_runs")
                ]
                found += any(one.rowcount for one in rows)
        return found

    # Runs

    def add(self, node_run: NodeRun, now_s: float) -> None:
        """Store what a node saw of a run, and update the profile of its program.

        Nodes of one run may see different shares of it; the one that sent the most is used.
        """
        with self._transaction():
            self._put_run(node_run, now_s)
            key = node_run.run.key
            profile = self._learned(key)
            noted = self._database.execute(
                f"SELECT source FROM profiles {_OF_KEY}", _columns_of(key)
            ).fetchone()
            # A profile noted by an operator stays until the operator deletes it.
            if profile is not None and (noted is None or noted[0] in MEASURED):
                self._put(profile)
            self._prune(key)

    def add_gpus(self, seen: NodeGpus, now_s: float) -> None:
        """Store what a run did with the GPUs of a node."""
        with self._transaction():
            whose = (*dataclasses.astuple(seen.run_id), *_columns_of(seen.key))
            rows = [(*whose, *dataclasses.astuple(gpu), now_s) for gpu in seen.gpus]
            self._database.executemany(
                f"INSERT OR REPLACE INTO gpu_runs VALUES ({', '.join('?' * 19)})", rows
            )
            self._keep_latest_runs("gpu_runs", seen.key)
            # GPU use has its own limit per user, since it can exist without a profile.
            surplus = self._database.execute(
                "SELECT kind, name, user FROM gpu_runs WHERE user = ? GROUP BY kind, name "
                "ORDER BY MAX(noted_s) DESC, name LIMIT -1 OFFSET ?",
                (seen.key.user, MEASURED_KEPT_OF_A_USER),
            ).fetchall()
            for where in surplus:
                self._database.execute(f"DELETE FROM gpu_runs {_OF_KEY}", where)

    def runs(self) -> list[RunTraffic]:
        """Return every run summed over its nodes, the oldest job first."""
        query = (
            "SELECT job_id, restarts, kind, name, user, source, largest_bytes, total_bytes, "
            "pieces, sent_bytes, gpus, elapsed_s FROM runs ORDER BY job_id, restarts, sent_bytes"
        )
        with self._explained():
            rows = self._database.execute(query).fetchall()
        return [_run([row[2:] for row in nodes]) for _, nodes in groupby(rows, itemgetter(0, 1))]

    def gpu_runs(self, name: str) -> list[NodeGpus]:
        """Return the GPU use of runs of this model or job name, by kind and user, oldest first."""
        query = (
            "SELECT job_id, restarts, node, kind, name, user, uuid, samples, seen_s, pci, gpu_name,"
            " utilization, peak_memory_bytes, memory_bytes, pcie_sent_bytes_per_s, "
            "pcie_received_bytes_per_s, nvlink_sent_bytes, nvlink_received_bytes FROM gpu_runs "
            "WHERE name = ? ORDER BY kind DESC, user, job_id, restarts, node, uuid"
        )
        with self._explained():
            rows = self._database.execute(query, (name,)).fetchall()
        of_a_node = groupby(rows, lambda row: (RunId(*row[:3]), Key(*row[3:6])))
        return [
            NodeGpus(run_id, key, tuple(GpuRun(*row[6:]) for row in gpus))
            for (run_id, key), gpus in of_a_node
        ]

    def _put(self, profile: Profile) -> None:
        key, skew = profile.key, profile.skew
        self._database.execute(
            "INSERT OR REPLACE INTO profiles VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*_columns_of(key), profile.source, *_columns_of(skew), profile.noted_s),
        )

    def _put_run(self, node_run: NodeRun, now_s: float) -> None:
        run = node_run.run
        self._database.execute(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *dataclasses.astuple(node_run.run_id),
                *(*_columns_of(run.key), run.source, *_columns_of(run.skew)),
                *(run.sent_bytes, run.gpus, run.elapsed_s, now_s),
            ),
        )

    def _learned(self, key: Key) -> Profile | None:
        """Return the profile from a program's latest run, by the node that sent the most."""
        row = self._database.execute(
            f"SELECT {_PROFILE} FROM runs {_OF_KEY} "
            "ORDER BY job_id DESC, restarts DESC, sent_bytes DESC LIMIT 1",
            _columns_of(key),
        ).fetchone()
        return None if row is None else _profile(row)

    def _prune(self, key: Key) -> None:
        self._keep_latest_runs("runs", key)
        surplus = self._database.execute(
            "SELECT kind, name, user FROM profiles WHERE user = ? AND user != '' "
            "ORDER BY noted_s DESC, name LIMIT -1 OFFSET ?",
            (key.user, MEASURED_KEPT_OF_A_USER),
        ).fetchall()
        for where in surplus:
            for table in ("profiles", "runs"):
                self._database.execute(f"DELETE FROM {table} {_OF_KEY}", where)

    def _keep_latest_runs(self, table: str, key: Key) -> None:
        self._database.execute(
            f"DELETE FROM {table} {_OF_KEY} AND (job_id, restarts) NOT IN "
            f"(SELECT DISTINCT job_id, restarts FROM {table} {_OF_KEY} "
            "ORDER BY job_id DESC, restarts DESC LIMIT ?)",
            (*_columns_of(key), *_columns_of(key), RUNS_KEPT),
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._explained(), transaction(self._database):
            yield

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ProfileStoreError(
                f"The store of profiles {self._path} cannot be used: {error}",
                "Run this as the user that the controller runs as, and check the free space; a "
                "file that is damaged or of another version may be moved away, which loses the "
                "measurements",
            ) from error


def _opened(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        create(path, MODE)
        set_mode(path, MODE)
    where = path or ":memory:"
    database = sqlite3.connect(where, isolation_level=None, timeout=BUSY_TIMEOUT_S)
    database.execute("PRAGMA journal_mode = WAL")
    # A power cut may lose the latest profiles, but they will be measured again.
    database.execute("PRAGMA synchronous = NORMAL")
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    # 0: it has just been created.
    if version not in (0, SCHEMA_VERSION):
        raise sqlite3.DatabaseError(f"another version wrote it (schema {version})")
    database.executescript(_TABLES)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return database


def _opened_to_read(path: Path) -> sqlite3.Connection:
    """Open read-only: share a store that the controller has open; read others, or a copy, as is."""
    address = path.resolve().as_uri()
    for way in ("mode=ro", "mode=ro&immutable=1"):
        database = sqlite3.connect(f"{address}?{way}", uri=True, isolation_level=None)
        try:
            database.execute("SELECT COUNT(*) FROM profiles")
        except sqlite3.OperationalError:
            database.close()
        else:
            return database
    raise sqlite3.OperationalError("it does not exist, or may not be read")


def _columns_of(part: Key | Skew) -> tuple[object, ...]:
    """Return the column values of a key or a skew, in table order."""
    return dataclasses.astuple(part)


def _profile(row: tuple[Any, ...]) -> Profile:
    return Profile(Key(*row[:3]), Skew(*row[3:6]), *row[6:])


def _run(nodes: Sequence[tuple[Any, ...]]) -> RunTraffic:
    """Combine a run's nodes, ordered by bytes sent; the last one gives the skew."""
    last = nodes[-1]
    return RunTraffic(
        key=Key(*last[:3]),
        source=last[3],
        skew=Skew(*last[4:7]),
        sent_bytes=sum(node[-3] for node in nodes),
        gpus=last[-2],
        nodes=len(nodes),
        elapsed_s=max(node[-1] for node in nodes),
    )
