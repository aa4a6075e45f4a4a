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
    can harm the program.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            self._descriptor = os.open(path, flags)
        except OSError as error:
            raise ChannelError(f"{path}: {error.strerror}") from error
        try:
            found = os.fstat(self._descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size != RECORD_BYTES:
                raise ChannelError(f"{path}: not a file of {RECORD_BYTES} bytes")
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise ChannelError(f"{path}: another process of this job reports already") from error
        except (OSError, ChannelError):
            self.close()
            raise

    def last(self) -> Record | None:
        """The last report of an earlier program of this run; None if there is none."""
        try:
            return decode(os.pread(self._descriptor, RECORD_BYTES, 0))
        except (OSError, RecordError):
            return None

    def send(self, record: Record) -> None:
        """Replace the record; raises ``OSError`` if the file system refuses."""
        os.pwrite(self._descriptor, encode(record), 0)

    def close(self) -> None:
        """Let another process of the job report."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def rank_in(environment: Mapping[str, str]) -> int:
    """The number of this process in the job; 0 if no launcher sets it."""
    for name in RANK_VARIABLES:
        if environment.get(name, "").isdecimal():
            return int(environment[name])
    return 0


def channel_for(
    environment: Mapping[str, str], clock: Callable[[], float] = time.monotonic
) -> Channel | None:
    """The channel of this process; None if its reports go nowhere.

    Only the first process of a job reports: all are at the same step.
    """
    if rank_in(environment) != 0:
        return None
    if path := environment.get(FILE_VARIABLE, ""):
        return FileChannel(path)
    job_id = environment.get(JOB_VARIABLE, "")
    if environment.get(WAY_VARIABLE) != BY_COMMENT or not job_id.isdecimal():
        return None
    # Imported here because it imports many modules, and few programs need it.
    from slurm_tiresias.job.comment_channel import CommentChannel

    return CommentChannel(job_id, environment, clock)
