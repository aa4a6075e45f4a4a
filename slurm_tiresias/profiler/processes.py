"""Which job a process on this machine belongs to."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_MOST_BYTES = 6 << 20
"""Linux's limit on a program's arguments and environment together."""

_JOB_ID = re.compile(rb"(?:^|\0)SLURM_JOB_ID=([0-9]{1,10})(?=\0|$)")
_CGROUP_JOB = re.compile(
    rb"^[^:\n]*:[^:\n]*:/(?:system\.slice/[^/\n]*slurmstepd\.scope|slurm[^/\n]*/uid_[0-9]+)"
    rb"/job_([0-9]{1,10})(?:/|$)",
    re.MULTILINE,
)
"""The pattern of Slurm's own cgroup of a job, in both versions; users may make cgroups of that name
elsewhere."""
_REAL_USER = re.compile(rb"^Uid:\t([0-9]+)\t", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProcessOwner:
    """The job that a process's environment names, and its real uid, which it cannot forge."""

    job_id: int
    uid: int


def owner_of(pid: int) -> ProcessOwner | None:
    """Return a process's owner; None if it is gone, belongs to no job, or may not be read."""
    try:
        folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Read through a folder handle: if the pid is reused meanwhile, the reads fail.
        user = _REAL_USER.search(_content(folder, "status"))
        job = _JOB_ID.search(_content(folder, "environ"))
    except OSError:
        return None
    finally:
        os.close(folder)
    return ProcessOwner(int(job[1]), int(user[1])) if user and job else None


def confined_to(pid: int) -> int | None:
    """Return the job in whose cgroup a process is, which its user cannot change; None if none."""
    try:
        with (PROC / f"{pid}" / "cgroup").open("rb") as stream:
            job = _CGROUP_JOB.search(stream.read(_MOST_BYTES))
    except OSError:
        return None
    return int(job[1]) if job else None


def _content(folder: int, name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(_MOST_BYTES)
