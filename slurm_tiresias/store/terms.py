"""The current ledger if several controllers take turns on a shared state directory.

Each term has its own ledger and store of profiles (``ledger-N.sqlite``), copied from the previous
term. So no process waits for a database that a stopped process has locked, no database is open on
two hosts, and a holder that wakes up after its term writes to a file that is no longer read.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from pathlib import Path

from slurm_tiresias.errors import LedgerError
from slurm_tiresias.owned_file import make_if_missing
from slurm_tiresias.store.ledger import MODE
from slurm_tiresias.store.rows import damaged

KEPT = 3
"""The present one, the previous one, which a process may still have open, and one more."""

MEANWHILE_EVERY_S = 0.05
MOST_TRIES = 20
TRY_AGAIN_S = 0.05

LEDGER, PROFILES = "ledger", "profiles"
_TERMS = {
    name: re.compile(rf"{name}-(\d{{1,12}})\.sqlite", re.ASCII) for name in (LEDGER, PROFILES)
}


def newest_ledger(state_dir: Path) -> Path:
    """Return the ledger of the latest term; ``ledger.sqlite`` if there have been no terms."""
    return _newest(state_dir, LEDGER)


def newest_profiles(state_dir: Path) -> Path:
    """Return the newest store of profiles; ``profiles.sqlite`` if there have been no terms."""
    return _newest(state_dir, PROFILES)


def inherited_ledger(
    state_dir: Path, term: int, meanwhile: Callable[[], None] = lambda: None
) -> Path:
    """Create the ledger of a new term as a copy of the newest one, if there is one.

    ``meanwhile`` is called repeatedly to renew the lease: a million ended jobs take seconds. Raises
    the errors of ``meanwhile``, ``LedgerError`` if the ledger cannot be copied, and
    ``DamagedLedgerError`` if it is damaged.
    """
    try:
        # In a thread: SQLite's check of a table cannot be interrupted to renew the lease.
        with ThreadPoolExecutor(1) as pool:
            copying = pool.submit(_database_of_new_term, state_dir, term, LEDGER)
            while wait([copying], MEANWHILE_EVERY_S).not_done:
                meanwhile()
            return copying.result()
    except FileExistsError as error:
        raise LedgerError(
            f"{error} exists although term {term} only begins",
            "Were lease files removed by hand? Rename that ledger to a number higher than any "
            "other",
        ) from error
    except sqlite3.DatabaseError as error:
        raise damaged(newest_ledger(state_dir), error) from error
    except OSError as error:
        raise LedgerError(
            f"The ledger {newest_ledger(state_dir)} cannot be copied for the next term: {error}",
            "Check the directory's permissions and free space",
        ) from error


def inherited_profiles(state_dir: Path, term: int) -> Path:
    """Create a new term's store of profiles; raises ``OSError`` or ``sqlite3.DatabaseError``."""
    return _database_of_new_term(state_dir, term, PROFILES)


def take_from_others(database: Path) -> None:
    """Replace a database that other users could open, and so lock for any time, by a copy.

    Raises ``OSError`` or ``sqlite3.DatabaseError``.
    """
    if database.exists() and database.stat().st_mode & 0o077:
        _copy(database, database)
        for suffix in ("-wal", "-shm"):
            _with(database, suffix).unlink(missing_ok=True)


def _newest(state_dir: Path, name: str) -> Path:
    plain = state_dir / f"{name}.sqlite"
    return max(_of_terms(state_dir, name), key=_term, default=plain)


def _database_of_new_term(state_dir: Path, term: int, name: str) -> Path:
    mine = state_dir / f"{name}-{term}.sqlite"
    if mine.exists():
        raise FileExistsError(str(mine))
    before = _newest(state_dir, name)
    if before.exists():
        _copy(before, mine)
    others = sorted((path for path in _of_terms(state_dir, name) if path != mine), key=_term)
    for path in others[: -(KEPT - 1)]:
        for suffix in ("", "-wal", "-shm"):
            _with(path, suffix).unlink(missing_ok=True)
    return mine


def _copy(before: Path, mine: Path) -> None:
    """Copy the database and its write-ahead log as files, and let SQLite merge them.

    SQLite's own copy would wait for locks. The previous holder should not write after its lease; if
    it does, the copy is made again.
    """
    draft = mine.with_name(f".{mine.name}.new")
    for _ in range(MOST_TRIES):
        at_first = stamps(before)
        for suffix in ("", "-wal"):
            _with(draft, suffix).unlink(missing_ok=True)
            make_if_missing(_with(draft, suffix), MODE)
            with suppress(FileNotFoundError):
                shutil.copyfile(_with(before, suffix), _with(draft, suffix))
        if stamps(before) == at_first:
            break
        time.sleep(TRY_AGAIN_S)
    else:
        raise OSError("it is written to all the time")
    with closing(sqlite3.connect(draft, isolation_level=None)) as database:
        (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # In one file, so that a single rename puts it in place.
        database.execute("PRAGMA journal_mode = DELETE")
    draft.rename(mine)


def stamps(database: Path) -> list[tuple[int, int] | None]:
    """Return the times and sizes of a database's files, which change with every write."""
    found: list[tuple[int, int] | None] = []
    for suffix in ("", "-wal"):
        try:
            status = _with(database, suffix).stat()
            found.append((status.st_mtime_ns, status.st_size))
        except FileNotFoundError:
            found.append(None)
    return found


def _of_terms(state_dir: Path, name: str) -> list[Path]:
    if not state_dir.is_dir():
        return []
    return [path for path in state_dir.iterdir() if _TERMS[name].fullmatch(path.name)]


def _term(path: Path) -> int:
    match = re.search(r"-(\d+)\.sqlite", path.name, re.ASCII)
    return int(match[1]) if match else 0


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
