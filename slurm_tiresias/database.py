"""What everything that is kept in SQLite shares: its files, and all or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slurm_tiresias.owned_file import make_if_missing


def create(path: Path, mode: int) -> None:
    """Make the file if it is not there: for the folder's owner, also where root is the first to
    store something. Raises ``sqlite3.OperationalError``."""
    try:
        make_if_missing(path, mode)
    except OSError as error:
        raise sqlite3.OperationalError(error.strerror) from error


def set_mode(path: Path, mode: int) -> None:
    """Who may read the database: that goes for the files that SQLite keeps beside it, too.

    By name and not by descriptor: to close one would drop SQLite's locks.
    """
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):
            if each.stat().st_mode & 0o777 != mode:
                each.chmod(mode)


@contextmanager
def transaction(database: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """All or nothing, on a connection that begins none by itself (``isolation_level=None``).

    ``DEFERRED`` is enough, and the only kind that there is, for one that only reads.
    """
    database.execute(f"BEGIN {kind}")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # On a full disk SQLite has mostly rolled back by itself, and refuses to do it again.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
