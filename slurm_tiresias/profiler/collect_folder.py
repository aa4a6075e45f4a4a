"""The shared folder into which nodes write files on the messages and the GPU use of jobs.

A separate thread does all reading and writing there, so that a file system that hangs delays no
cycle. The profiler takes the contents and decides what happens to each file.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from slurm_tiresias.background import Background
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.owned_file import read_regular
from slurm_tiresias.profiler.gpu_runs import MOST_FILE_BYTES, GpuRun
from slurm_tiresias.profiler.gpu_runs import parse as parse_gpus
from slurm_tiresias.profiler.profile_index import KnownFile
from slurm_tiresias.profiler.run_id import GPUS_KIND, TRAFFIC_KIND, RunId, parsed_file_name
from slurm_tiresias.profiler.traffic import FILE_BYTES, Traffic, parse
from slurm_tiresias.warn_once import WarnOnce

log = logging.getLogger("tiresias-slurm")

LOOK_EVERY_S = 5.0
FILES_OF_A_LOOK = 100
"""Files read at once, so that a flood of small jobs does not take all memory; the rest is read
when these have been taken."""
NAMES_OF_A_LOOK = 10_000
ASIDE = "refused"
"""Subfolder for unreadable files, so that an administrator can look at them."""


@dataclass(frozen=True, slots=True)
class Collected:
    """A collected file with its contents: traffic, GPU use, or why it cannot be read."""

    run_id: RunId
    kind: str
    path: Path
    content: Traffic | tuple[GpuRun, ...] | str


class CollectFolder:
    """Watches the folder; does nothing without one."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self._done: set[str] = set()
        """Files that could not be removed or set aside: they are not read again."""
        self._finished: list[Collected] = []
        self._lock = threading.Lock()
        """Held while ``read`` and ``_finished`` change together, never while the folder is used."""
        self._warning = WarnOnce("nothing can be learned from running jobs for now")
        self.known = KnownFile(folder)
        """The file that tells the nodes which profiles exist; it is written here too."""
        self.read: Mapping[str, Collected] = {}
        """Files that were read and are not finished yet, by name, oldest jobs first."""
        self.background = Background("reading what nodes collect", self.look, LOOK_EVERY_S)

    def finish(self, collected: Collected) -> None:
        """Have a file removed, or set aside if it could not be read."""
        with self._lock:
            self._finished.append(collected)
            self.read = {name: one for name, one in self.read.items() if one is not collected}

    def look(self) -> None:
        """Remove finished files, read new ones, and write the index of profiles."""
        if self._folder is None:
            return
        try:
            self._remove_finished()
            self._read_new(self._folder)
        except OSError as error:
            self._warning.warn(error)
        else:
            self._warning.clear()
        self.known.write()

    def _remove_finished(self) -> None:
        while self._finished:
            collected = self._finished[0]
            self._done.add(collected.path.name)
            try:
                if isinstance(collected.content, str):
                    log.warning("%s is set aside: %s", collected.path.name, collected.content)
                    _put_aside(collected.path)
                else:
                    collected.path.unlink()
            except OSError as error:
                log.debug("%s stays where it is: %s", collected.path, error)
            del self._finished[0]

    def _read_new(self, folder: Path) -> None:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, NAMES_OF_A_LOOK)]
        self._done.intersection_update(names)
        waiting = self.read.keys() | {collected.path.name for collected in self._finished}
        named = ((name, parsed_file_name(name)) for name in names if name not in self._done)
        kinds = (TRAFFIC_KIND, GPUS_KIND)
        new = sorted(
            (*of, name) for name, of in named if of and of[1] in kinds and name not in waiting
        )
        read = {
            name: Collected(run_id, kind, folder / name, _content(folder / name, kind))
            for run_id, kind, name in new[: FILES_OF_A_LOOK - len(self.read)]
        }
        with self._lock:
            both = [*self.read.values(), *read.values()]
            both.sort(key=lambda one: (one.run_id, one.kind))
            self.read = {one.path.name: one for one in both}


def _content(path: Path, kind: str) -> Traffic | tuple[GpuRun, ...] | str:
    """Return the contents of a collected file, or why they do not match its name."""
    try:
        # One byte more than the limit, so that a longer file is noticed.
        content = read_regular(path, max(FILE_BYTES, MOST_FILE_BYTES) + 1)
        return parse_gpus(content) if kind == GPUS_KIND else parse(content)
    except (TiresiasError, OSError) as error:
        return str(error)


def _put_aside(path: Path) -> None:
    """Move a file into a subfolder, without following a link that a user may have put there."""
    folder = path.parent / ASIDE
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.rename(path, path.name, dst_dir_fd=descriptor)
    finally:
        os.close(descriptor)
