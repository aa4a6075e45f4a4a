"""Whose ledger is the ledger, where several controllers take turns on a shared directory.

Each term has a ledger of its own, ``ledger-N.sqlite``, copied from the one before. So nobody ever
waits for a database that a stopped process has locked, and a holder that wakes up after its term
can only write into a ledger that nobody reads any more.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from slurm_tiresias.controller.ledger import FILE_NAME, MODE, damaged
from slurm_tiresias.errors import LedgerError
from slurm_tiresias.own_file import make_if_missing

LEDGERS_KEPT = 3
"""The present one, the one before, for a process that may still have it open, and one more."""

MOST_TRIES = 20
TRY_AGAIN_S = 0.05

_LEDGER = re.compile(r"ledger-(\d{1,12})\.sqlite", re.ASCII)


def newest_ledger(state_dir: Path) -> Path:
    """The ledger of the latest term; the plain one where there have been no terms."""
    return max(_of_terms(state_dir), key=_term, default=state_dir / FILE_NAME)


def inherited_ledger(state_dir: Path, term: int) -> Path:
    """The ledger of a term that begins, with all that was in the newest one before.

    Raises ``LedgerError`` where that cannot be copied, ``DamagedLedgerError`` where it is broken.
    """
    mine = state_dir / f"ledger-{term}.sqlite"
    if mine.exists():
        raise LedgerError(
            f"{mine} is there although term {term} only begins",
            "Were lease files removed by hand? Move that ledger to a higher number than any other",
        )
    before = newest_ledger(state_dir)
    if before.exists():
        try:
            _copy(before, mine)
        except sqlite3.DatabaseError as error:
            raise damaged(before, error) from error
        except OSError as error:
            raise LedgerError(
                f"The ledger {before} cannot be copied for the next term: {error}",
                "Check the directory's permissions and free space",
            ) from error
    _remove_all_but_the_latest(state_dir, mine)
    return mine


def _copy(before: Path, mine: Path) -> None:
    """Copy database and write-ahead log as they are, and let SQLite put them together.

    SQLite itself would wait for locks. Whose ledger it is may write no more on the strength of its
    lease; should it still do, the copy is made again.
    """
    draft = mine.with_name(f".{mine.name}.new")
    for _ in range(MOST_TRIES):
        stamps = _stamps(before)
        for suffix in ("", "-wal"):
            _with(draft, suffix).unlink(missing_ok=True)
            make_if_missing(_with(draft, suffix), MODE)
            with suppress(FileNotFoundError):
                shutil.copyfile(_with(before, suffix), _with(draft, suffix))
        if _stamps(before) == stamps:
            break
        time.sleep(TRY_AGAIN_S)
    else:
        raise OSError("it is being written to all the time")
    with closing(sqlite3.connect(draft, isolation_level=None)) as database:
        (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # In one file, so that one step puts it in place.
        database.execute("PRAGMA journal_mode = DELETE")
    draft.rename(mine)


def _stamps(ledger: Path) -> list[tuple[int, int] | None]:
    stamps: list[tuple[int, int] | None] = []
    for suffix in ("", "-wal"):
        try:
            status = _with(ledger, suffix).stat()
            stamps.append((status.st_mtime_ns, status.st_size))
        except FileNotFoundError:
            stamps.append(None)
    return stamps


def _remove_all_but_the_latest(state_dir: Path, mine: Path) -> None:
    others = sorted((path for path in _of_terms(state_dir) if path != mine), key=_term)
    for path in others[: -(LEDGERS_KEPT - 1)]:
        for suffix in ("", "-wal", "-shm"):
            _with(path, suffix).unlink(missing_ok=True)


def _of_terms(state_dir: Path) -> list[Path]:
    return [path for path in state_dir.iterdir() if _LEDGER.fullmatch(path.name)]


def _term(path: Path) -> int:
    match = _LEDGER.fullmatch(path.name)
    return int(match[1]) if match else 0


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
