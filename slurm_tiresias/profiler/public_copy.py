"""A copy of the stored profiles for all users.

A user who can open a database can lock it and so block the controller. The store is therefore
private to the controller, and other users read a copy that the controller never opens.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from slurm_tiresias.owned_file import make_if_missing
from slurm_tiresias.store.terms import stamps
from slurm_tiresias.warn_once import WarnOnce

FILE_NAME = "profiles-published.sqlite"
LEAST_GAP_S = 60.0
"""Least time between two copies, in seconds."""

Stamps = list[tuple[int, int] | None]


class ProfilesCopy:
    """The published copy of a store; there is none if jobs are private."""

    def __init__(self, store: Path, state_dir: Path, *, private: bool) -> None:
        self._store = store
        self._path = state_dir / FILE_NAME
        self._private = private
        self._next_s = 0.0
        self._copied: tuple[Stamps, int | None] | None = None
        """The store's timestamps when it was copied, and the inode of the copy."""
        self._thread: threading.Thread | None = None
        self._warning = WarnOnce("users do not see the stored profiles")

    def keep_up(self) -> None:
        """Start a copy in another thread if the store has changed since the last one."""
        if self._private:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            return
        now_s = time.monotonic()
        under_way = self._thread is not None and self._thread.is_alive()
        if now_s < self._next_s or under_way or not self._store.exists():
            return
        if self._copied == (stamps(self._store), _inode(self._path)):
            return
        self._next_s = now_s + LEAST_GAP_S
        self._thread = threading.Thread(target=self._copy, name="profiles", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        before = stamps(self._store)
        draft = self._path.with_name(f".{self._path.name}.new")
        try:
            draft.unlink(missing_ok=True)
            make_if_missing(draft, 0o600)
            address = f"{self._store.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as database:
                database.execute("VACUUM INTO ?", (str(draft),))
            draft.chmod(0o644)
            draft.rename(self._path)
        except (OSError, sqlite3.Error) as error:
            self._warning.warn(error)
        else:
            self._warning.clear()
            self._copied = before, _inode(self._path)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
