"""Where a job's reports go: to a file that the controller reads, to the job's comment, or
nowhere."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from slurm_tiresias.job.record import RECORD_BYTES, Record, RecordError, decode, encode
from slurm_tiresias.job.time_limit import JOB_VARIABLE

FILE_VARIABLE = "TIRESIAS_PROGRESS_FILE"
"""The variable that names the file that the prolog created for this run on this node."""

WAY_VARIABLE = "TIRESIAS_PROGRESS"
BY_COMMENT = "comment"
"""The value that means: there is no file, so reports go into the job's comment."""

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Variables of launchers with the number of this process in the job; the innermost launcher
counts."""

LOCAL_RANK_VARIABLES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")

LOCK_TRIES, LOCK_TRY_S = 5, 0.002
"""A forked process holds the lock only while it writes its report."""


TAKEN = "another process of this job already reports"


class ChannelError(Exception):
    """Reports cannot be sent; the message says why."""


class Channel(Protocol):
    """Takes the reports of one process."""

    def last(self) -> Record | None:
        """The last report of an earlier program of this run; None if there is none."""

    def send(self, record: Record) -> None:
        """Send a record; raises ``OSError`` if the channel has failed for good."""

    def close(self) -> None:
        """Let another process of the job report."""


class FileChannel:
    """A file of ``RECORD_BYTES`` bytes, for one process at a time.

    Root created it in a folder in which users can create nothing. It is opened without following
    links and without blocking, and only written within its size, so that nothing put in its place
    can harm the program. A program keeps a lock on it; a process that it has forked locks it for
    each report only, so that a worker that reports first does not lock its parent out.
    """

    def __init__(self, path: str, is_forked: bool = False) -> None:
        self._is_forked = is_forked
        self._taken = f"{path}: {TAKEN}"
        what = f"a file of {RECORD_BYTES} bytes"
        self._descriptor = open_locked(path, what, lambda found: found.st_size == RECORD_BYTES)
        self._unlock_if_forked()

    def _unlock_if_forked(self) -> None:
        if self._is_forked:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def last(self) -> Record | None:
        """The last report of an earlier program of this run; None if there is none."""
        try:
            return decode(os.pread(self._descriptor, RECORD_BYTES, 0))
        except (OSError, RecordError):
            return None

    def send(self, record: Record) -> None:
        """Replace the record; raises ``OSError`` if the file system refuses, or the program itself
        reports now."""
        if self._is_forked:
            try:
                _lock(self._descriptor)
            except BlockingIOError as error:
                raise OSError(self._taken) from error
        try:
            os.pwrite(self._descriptor, encode(record), 0)
        finally:
            self._unlock_if_forked()

    def close(self) -> None:
        """Let another process of the job report."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def open_locked(
    path: str, what: str, is_such: Callable[[os.stat_result], bool], flags: int = 0
) -> int:
    """Open a file for this process alone, safely whatever was put in its place.

    Raises ``ChannelError`` if it is not ``what`` it should be, or another process has locked it.
    """
    try:
        flags |= os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise ChannelError(f"{path}: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not is_such(found):
            raise ChannelError(f"{path}: not {what}")
        _lock(descriptor)
    except (OSError, ChannelError) as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise ChannelError(f"{path}: {TAKEN}") from error
        raise
    return descriptor


def _lock(descriptor: int) -> None:
    """Raises ``BlockingIOError`` if another process reports."""
    for tries_left in reversed(range(LOCK_TRIES)):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not tries_left:
                raise
            time.sleep(LOCK_TRY_S)
    return None


def rank_in(environment: Mapping[str, str]) -> int:
    """The number of this process in the job; 0 if no launcher sets it."""
    for name in RANK_VARIABLES:
        if environment.get(name, "").isdecimal():
            return int(environment[name])
    return 0


def local_rank_in(environment: Mapping[str, str]) -> int | None:
    """The number of this process on its node; None if no launcher sets it."""
    names = LOCAL_RANK_VARIABLES
    return next((int(environment[n]) for n in names if environment.get(n, "").isdecimal()), None)


def channel_for(
    environment: Mapping[str, str],
    clock: Callable[[], float] = time.monotonic,
    is_forked: bool = False,
) -> Channel | None:
    """The channel of this process; None if its reports go nowhere.

    The first process of a job reports: all are at the same step. Those that are the first on other
    nodes report the step times there. ``is_forked``: the process was forked by the program.
    """
    is_first, path = rank_in(environment) == 0, environment.get(FILE_VARIABLE, "")
    if path and not is_first and local_rank_in(environment) == 0:
        # Where two steps of the job share a node, the file is taken.
        with contextlib.suppress(ChannelError):
            return FileChannel(path, is_forked)
    if not is_first:
        return None
    if path:
        return FileChannel(path, is_forked)
    job_id = environment.get(JOB_VARIABLE, "")
    way = environment.get(WAY_VARIABLE, "")
    if way not in ("", BY_COMMENT):
        raise ChannelError(f"{WAY_VARIABLE}={way} has no meaning. Write {BY_COMMENT}.")
    if not way or not job_id.isdecimal():
        return None
    # Imported here because it imports many modules, and few programs need it.
    from slurm_tiresias.job.comment_channel import CommentChannel

    return CommentChannel(job_id, environment, clock)
