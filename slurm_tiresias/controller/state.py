"""The controller's state directory: its lock, its databases, and whether it is paused."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from slurm_tiresias.controller.cycle import PAUSED
from slurm_tiresias.daemon.state_dir import is_anybodys
from slurm_tiresias.errors import AlreadyRunningError, ConfigError
from slurm_tiresias.ha.lease import FileLease
from slurm_tiresias.owned_file import make_if_missing
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore, ProfileStoreError
from slurm_tiresias.settings import Config
from slurm_tiresias.status.service import Peer
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import EventRecord
from slurm_tiresias.store.terms import (
    inherited_ledger,
    inherited_profiles,
    newest_ledger,
    newest_profiles,
    take_from_others,
)

log = logging.getLogger("tiresias-slurm")

LOCK_NAME = "lock"
RESUMED = "resumed"
"""The event that ends a pause. ``PAUSED`` is both a mode and an event."""


@contextmanager
def state_dir_locked(config: Config, *, shared: bool = False) -> Iterator[Path]:
    """Lock the state directory for this process alone, or ``shared`` among those that take turns.

    The lock ends with the process.
    """
    state_dir = Path(config.controller.state_dir)
    try:
        state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        status = state_dir.stat()
        if is_anybodys(status.st_uid, status.st_mode, os.geteuid()):
            raise ConfigError(
                f"Other users may write into the state directory {state_dir}, or it belongs to "
                "another user",
                "Give it to the controller's user, mode 755",
            )
        make_if_missing(state_dir / LOCK_NAME, 0o600)
        descriptor = os.open(state_dir / LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(
            f"The state directory {state_dir} cannot be used: {error.strerror}",
            "Run this as the user that the controller runs as, or name a directory that this user "
            "may write in controller.state_dir",
        ) from error
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise AlreadyRunningError(
            f"Another controller works in {state_dir}",
            "Use that controller; if it does not answer, see its log, or stop it",
        ) from error
    try:
        yield state_dir
    finally:
        os.close(descriptor)


@contextmanager
def ledger_and_profiler(
    config: Config, lease: FileLease | None = None
) -> Iterator[tuple[Ledger, Profiler]]:
    """Open the ledger and the profiler until the context ends.

    Without a lease these are the newest in the state directory; with a lease, whose term has just
    begun, they are copies of the newest.
    """
    state_dir = Path(config.controller.state_dir)
    if lease is None:
        path = newest_ledger(state_dir)
    else:
        path = inherited_ledger(state_dir, lease.term, lease.renew)
    with (
        # An inherited ledger was checked when it was copied.
        closing(Ledger(path, checked=lease is not None)) as ledger,
        closing(_profile_store(state_dir, lease.term if lease else None)) as store,
    ):
        yield ledger, Profiler(store, config)


def _profile_store(state_dir: Path, term: int | None) -> ProfileStore:
    """Open the store of profiles; if it cannot be used, return one in memory."""
    try:
        path = newest_profiles(state_dir) if term is None else inherited_profiles(state_dir, term)
        take_from_others(path)
        return ProfileStore(path)
    except (ProfileStoreError, OSError, sqlite3.Error) as error:
        log.warning("jobs are placed without the stored profiles until a restart: %s", error)
        return ProfileStore(None)


def note_paused(ledger: Ledger, paused: bool) -> None:
    """Record a pause or its end, as an act of this process' own user."""
    if is_paused(ledger) != paused:
        kind, who = PAUSED if paused else RESUMED, Peer(os.geteuid())
        ledger.events.put([EventRecord(time.time(), kind, "", "", f"by {who}")])
    ledger.set_value("paused", "yes" if paused else "no")


def is_paused(ledger: Ledger) -> bool:
    return ledger.value("paused") == "yes"
