"""The shared folder of the nodes' reports on GPU activity: how a node writes it, and how the
controller reads it.

The controller creates the folder if it needs these reports; without it nothing is written. Only
root on the nodes and the folder's owner may write there; files of other users are ignored.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from slurm_tiresias.background import Background
from slurm_tiresias.model import NodeUse
from slurm_tiresias.profiler.gpu_activity import MOST_BYTES, SUFFIX, GpuActivity, parse, text_of
from slurm_tiresias.profiler.node_folders import write_as_root_or_owner
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.warn_once import WarnOnce

FOLDER = "gpu-use"
SIGN_OF_LIFE_S = 60.0
"""How often a node reports on its jobs if nothing has changed."""

LOOK_EVERY_S = 5.0
NAMES_OF_A_LOOK = 20_000
"""Bound on what is read in one pass."""

ROOT = 0
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class GpuUseWriter:
    """Writes the file of this node when something has changed, and periodically as a sign of
    life."""

    def __init__(self, collect_dir: Path, host: str | None = None) -> None:
        # Several nodes of Slurm may share one host.
        name = _NOT_IN_A_NAME.sub("-", host or socket.gethostname()) or "node"
        self._folder = collect_dir / FOLDER
        self._path = self._folder / f"{name}{SUFFIX}"
        self._state: object = None
        self._due_s = 0.0

    def is_wanted(self) -> bool:
        """Whether the controller wants these reports."""
        # On a file server that denies root its rights, root may not even be allowed to look.
        with suppress(OSError):
            return self._folder.is_dir()
        return False

    def tell(self, activity: GpuActivity, now_s: float, wall_s: float) -> None:
        """Write the present report if it is due."""
        state = activity.state()
        if state == self._state and (not state or now_s < self._due_s):
            return
        self._state = None
        write_as_root_or_owner(self._path, text_of(activity.told(wall_s), wall_s))
        self._state, self._due_s = state, now_s + SIGN_OF_LIFE_S


@dataclass(frozen=True, slots=True)
class _Read:
    signature: tuple[int, ...]
    told: Mapping[RunId, NodeUse]


class GpuUseFolder:
    """Reads the folder; ``look``, in a separate thread, does all of that."""

    def __init__(self, collect_dir: str) -> None:
        """Follow the subfolder of ``collect_dir``; without one, nothing."""
        self._path = Path(collect_dir) / FOLDER if collect_dir else None
        self._read: dict[str, _Read] = {}
        self._warning = WarnOnce("what jobs do with their GPUs cannot be read for now")
        self.latest: Mapping[tuple[int, int], Mapping[str, NodeUse]] = {}
        """By raw job id and restarts, each node's report on that run."""
        self.background = Background("reading the use of GPUs", self.look, LOOK_EVERY_S)

    def look(self) -> None:
        """Read the files that have changed."""
        if self._path is None:
            return
        try:
            self._path.mkdir(mode=0o755, exist_ok=True)
            self._look(self._path)
        except OSError as error:
            self._warning.warn(error)

    def _look(self, folder: Path) -> None:
        owner = _checked_owner(folder)
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, NAMES_OF_A_LOOK))
        before, self._read = self._read, {}
        problem: object = None
        for name in names:
            if not name.endswith(SUFFIX):
                continue
            try:
                self._read[name] = _read(folder / name, owner, before.get(name))
            except (OSError, ValueError) as error:
                problem = f"{name}: {error}"
        if problem is None:
            self._warning.clear()
        else:
            self._warning.warn(problem)
        latest: dict[tuple[int, int], dict[str, NodeUse]] = {}
        for read in self._read.values():
            for run_id, use in read.told.items():
                nodes = latest.setdefault((run_id.job_id, run_id.restarts), {})
                # A node that was renamed may have left another file.
                if run_id.node not in nodes or use.at_s > nodes[run_id.node].at_s:
                    nodes[run_id.node] = use
        self.latest = latest


def _checked_owner(folder: Path) -> int:
    """Return the owner of the folder; raise ``OSError`` if others may write there."""
    found = folder.stat(follow_symlinks=False)
    is_ours = found.st_uid in (ROOT, os.geteuid())
    if (
        not stat.S_ISDIR(found.st_mode)
        or not is_ours
        or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        raise PermissionError(f"{folder} is not a folder that only this controller may write to")
    return found.st_uid


def _read(path: Path, owner: int, before: _Read | None) -> _Read:
    """Read a file unless it is unchanged; raise ``ValueError`` if it is not a node's."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        # On a file server that denies root its rights, nodes write as the folder's owner.
        if found.st_uid not in (ROOT, owner) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError("others than the nodes may write to it, so it is ignored")
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a file")
        signature = (found.st_ino, found.st_mtime_ns, found.st_size, found.st_uid, found.st_mode)
        if before is not None and before.signature == signature:
            return before
        return _Read(signature, parse(stream.read(MOST_BYTES + 1)))
