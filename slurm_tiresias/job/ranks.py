"""How long a step takes in each process of a job on this node, without waiting for others.

Processes that train together end each step together, so the slowest delays all. Each tells its own
time in a slot of a file that only its user can open; the first process of the node reports them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path

from slurm_tiresias.job.channel import RANK_VARIABLES, local_rank_in, rank_in
from slurm_tiresias.job.record import MOST_RANKS
from slurm_tiresias.job.time_limit import JOB_VARIABLE

SIZE_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
WINDOW_S = 10.0
"""The time of a step is measured over at least this long."""

FRESH_S = 60.0
"""What a process told earlier does not count any more."""

_SLOT = struct.Struct("<qdd")


class Ranks:
    """The step time of this process, and those of the others on its node.

    Times are by the program's clock, which is the same for all processes of a node.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._rank, self._slot = rank_in(environment), local_rank_in(environment) or 0
        several = any(environment.get(name, "1") != "1" for name in SIZE_VARIABLES)
        run = f"{environment.get(JOB_VARIABLE, '')}-{environment.get('SLURM_RESTART_COUNT', 0)}"
        self._name = f"tiresias-ranks-{os.geteuid()}-{run}"
        if not several or self._slot >= MOST_RANKS or not any(map(environment.get, RANK_VARIABLES)):
            self._name = ""
        self._file: int | None = None
        self._began: tuple[int, float] | None = None
        self._waited_s = 0.0

    def begin_anew(self) -> None:
        """Leave out the time since the last report, such as that of a save."""
        self._began, self._waited_s = None, 0.0

    def has_waited(self, for_s: float) -> None:
        """Leave out a time in which the process waited for others."""
        self._waited_s += for_s

    def follow(self, step: int, now_s: float) -> None:
        """Follow a report of steps done, and tell the time of a step from time to time."""
        if self._name and self._file is None:
            path = f"{tempfile.gettempdir()}/{self._name}"
            try:
                self._file = _opened(path)
            except OSError:
                self._name = ""
            else:
                # The other processes of the run keep it open.
                atexit.register(_remove, path)
        if self._file is None:
            return
        if self._began is None or step < self._began[0]:
            self._began, self._waited_s = (step, now_s), 0.0
        done, took_s = step - self._began[0], now_s - self._began[1]
        if done and took_s >= WINDOW_S:
            step_s = max(0.0, took_s - self._waited_s) / done
            with contextlib.suppress(OSError):
                slot = _SLOT.pack(self._rank, step_s, now_s)
                os.pwrite(self._file, slot, self._slot * _SLOT.size)
            self._began, self._waited_s = (step, now_s), 0.0

    def told(self, now_s: float) -> tuple[tuple[int, float], ...]:
        """The ranks of this node with their step times, this process first; empty if it is
        alone."""
        if self._file is None:
            return ((self._rank, 0.0),) if self._rank else ()
        content = b""
        with contextlib.suppress(OSError):
            content = os.pread(self._file, MOST_RANKS * _SLOT.size, 0)
        slots = _SLOT.iter_unpack(content[: len(content) // _SLOT.size * _SLOT.size])
        found = {r: round(s, 4) for r, s, at_s in slots if s > 0 and 0 <= now_s - at_s < FRESH_S}
        others = (one for one in sorted(found.items()) if one[0] != self._rank)
        return ((self._rank, found.get(self._rank, 0.0)), *others)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).unlink()


def _opened(path: str) -> int:
    """Open this user's file; raise ``OSError`` for one of another user."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(descriptor)
        raise OSError(f"{path}: not a file of this user's")
    return descriptor
