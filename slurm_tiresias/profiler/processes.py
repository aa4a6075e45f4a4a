"""Whose job a process of this machine belongs to."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_MOST_BYTES = 6 << 20
"""Linux gives a program no more for its arguments and environment together."""

_JOB_ID = re.compile(rb"(?:^|\0)SLURM_JOB_ID=([0-9]{1,10})(?=\0|$)")
_REAL_USER = re.compile(rb"^Uid:\t([0-9]+)\t", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Claim:
    """The job that a process says it is of, and its real user, about whom it cannot lie."""

    job_id: int
    uid: int


def claim_of(pid: int) -> Claim | None:
    """What a process claims; None where it is gone, of no job, or not ours to look into."""
    try:
        folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Through the folder: should the number be given to another process, this one is gone.
        user = _REAL_USER.search(_content(folder, "status"))
        job = _JOB_ID.search(_content(folder, "environ"))
    except OSError:
        return None
    finally:
        os.close(folder)
    return Claim(int(job[1]), int(user[1])) if user and job else None


def _content(folder: int, name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(_MOST_BYTES)
