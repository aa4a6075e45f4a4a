"""Where a job's reports go: a file that the controller reads, or nowhere."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Mapping

from slurm_tiresias.job.record import RECORD_BYTES, Record, RecordError, decode, encode

FILE_VARIABLE = "TIRESIAS_PROGRESS_FILE"
"""Names the file that the prolog has made for this run on this node."""

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Which of a job's processes this is, by its launcher; the launcher nearest to it counts."""


class ChannelError(Exception):
    """Reports cannot be sent; the message says why."""


class FileChannel:
    """A file of ``RECORD_BYTES`` bytes, for one process at a time.

    It was made by root in a folder in which users can make nothing. Opened without following links
    and without waiting, and only written within its size: the worst that can be in its place does
    not harm the program.
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
        """What an earlier program of this run reported last; None where there is nothing."""
        try:
            return decode(os.pread(self._descriptor, RECORD_BYTES, 0))
        except (OSError, RecordError):
            return None

    def send(self, record: Record) -> None:
        """Replace the record; ``OSError`` where the file system refuses."""
        os.pwrite(self._descriptor, encode(record), 0)

    def close(self) -> None:
        """Let another process of the job report."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def rank_in(environment: Mapping[str, str]) -> int:
    """Which of the job's processes this is; 0 where no launcher says it."""
    for name in RANK_VARIABLES:
        if environment.get(name, "").isdecimal():
            return int(environment[name])
    return 0


def channel_for(environment: Mapping[str, str]) -> FileChannel | None:
    """The channel of this process; None where its reports go nowhere.

    Only the first of a job's processes reports: all are as far as it is.
    """
    path = environment.get(FILE_VARIABLE, "")
    if not path or rank_in(environment) != 0:
        return None
    return FileChannel(path)
