"""Helpers for all SQLite databases: file creation, permissions and transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm_tiresias.owned_file import make_if_missing


def create(path: Path, mode: int) -> None:
    """Create the file if missing, owned by the folder's owner even if root creates it.

    Raises ``sqlite3.OperationalError``.
    """
    try:
        make_if_missing(path, mode)
    except OSError as error:
        raise sqlite3.OperationalError(error.strerror) from error


def set_mode(path: Path, mode: int) -> None:
    """Set the permissions of the database, and of the files that SQLite keeps beside it.

    By name, not by descriptor: closing a descriptor would drop SQLite's locks.
    """
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):
            if each.stat().st_mode & 0o777 != mode:
                each.chmod(mode)


@contextmanager
def transaction(database: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Run the block in a transaction, on a connection with ``isolation_level=None``.

    Read-only connections allow only ``DEFERRED``, which is enough for them.
    """
    database.execute(f"BEGIN {kind}")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # On a full disk SQLite has usually rolled back already, and refuses to do it again.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
