"""What everything that is kept in SQLite shares."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, on a connection that begins none by itself (``isolation_level=None``)."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # On a full disk SQLite has mostly rolled back by itself, and refuses to do it again.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
