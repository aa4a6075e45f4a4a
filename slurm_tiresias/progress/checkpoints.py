"""On a node: detect when a job last saved, from the files in the checkpoint folder that it names.

The controller lists the folders. The newest modification time of the regular files directly in a
folder is when its job last saved. A file that changes between two scans is still being written, and
does not count until it has stopped changing. Each scan runs in a child process with the rights of
the job's user: it can see no more than the job, and a file system that hangs blocks only that
child.
"""

from __future__ import annotations

import os
import pwd
import signal
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from slurm_tiresias.profiler.run_id import RunId

LIST_NAME = "checkpoints"
"""The controller's list, in the same folder as the nodes' files."""

MOST_LIST_BYTES = 4 * 1024 * 1024
MOST_ENTRIES = 10_000
"""The maximum number of files examined in a folder."""

LOOK_EVERY_S = 10.0
MOST_LOOKS = 16
"""Maximum number of concurrent scans; further ones wait."""
MOST_ANSWER_BYTES = 128

GIVEN_UP_AFTER_S = 5.0
TOLD_FOR_S = 120.0
"""How long after the end of a run the node still reports when the run last saved."""

_FIRST_LINE = b"tiresias-checkpoints 1\n"


def text_of_folders(folders: Mapping[int, str]) -> bytes:
    """Return the content of the list: the folder of each job, by its raw id."""
    lines = (f"{job_id} {path}\n".encode() for job_id, path in sorted(folders.items()))
    return _FIRST_LINE + b"".join(lines)


def folders_in(content: bytes) -> dict[int, str]:
    """Parse the list; lines that cannot be parsed are left out."""
    if len(content) > MOST_LIST_BYTES or not content.startswith(_FIRST_LINE):
        return {}
    found = {}
    for line in content[len(_FIRST_LINE) :].decode(errors="replace").split("\n"):
        job_id, _, path = line.partition(" ")
        if job_id.isascii() and job_id.isdecimal() and len(job_id) <= 10 and path.startswith("/"):
            found[int(job_id)] = path
    return found


class FileState(NamedTuple):
    """A file as seen by one scan; identified by its inode, since a finished save may be renamed."""

    changed_ns: int
    size: int
    inode: int


class FolderScan(NamedTuple):
    """The result of one scan of a folder."""

    newest: FileState
    finished_ns: int
    """When the newest file that is known to be finished was changed; 0 if there is none."""


def look_into(path: str, before: FileState | None) -> FolderScan | None:
    """Scan the regular files in a folder; return None if there are none.

    ``before`` is the newest file of the previous scan. If it is unchanged, it is finished, and so
    are all files that are older: they have not changed since.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with os.scandir(descriptor) as entries:
            stats = (
                entry.stat(follow_symlinks=False)
                for entry in islice(entries, MOST_ENTRIES)
                if entry.is_file(follow_symlinks=False)
            )
            files = [FileState(one.st_mtime_ns, one.st_size, one.st_ino) for one in stats]
    finally:
        os.close(descriptor)
    if not files:
        return None
    finished = (
        file.changed_ns
        for file in files
        if before is not None and (file == before or file.changed_ns < before.changed_ns)
    )
    return FolderScan(max(files), max(finished, default=0))


@dataclass(slots=True)
class _ScanProcess:
    """A child process that scans, and sends its result through a pipe."""

    pid: int
    answer: int
    began_s: float
    is_last: bool
    """Whether the run had ended before the scan, so that nothing is still being written."""


@dataclass(slots=True)
class _Watched:
    """The folder of a run, and when the run last saved."""

    path: str
    owner: os.stat_result
    looked_s: float
    over_s: float | None = None
    """When the run was found to have ended; None while it runs."""
    newest: FileState | None = None
    """The newest file of the previous scan."""
    saved_s: float | None = None

    def take(self, scan: FolderScan, is_last: bool) -> None:
        """Take in the result of a scan."""
        self.newest = scan.newest
        saved_ns = scan.newest.changed_ns if is_last else scan.finished_ns
        if saved_ns:
            self.saved_s = max(self.saved_s or 0.0, saved_ns / 1e9)


class CheckpointFolders:
    """Watches the checkpoint folders of the runs on this node."""

    def __init__(self, list_path: Path) -> None:
        self._list_path = list_path
        self._signature: tuple[int, int, int] | None = None
        self._folders: dict[int, str] = {}
        self._watched: dict[RunId, _Watched] = {}
        self._processes: dict[RunId, _ScanProcess] = {}

    def saves(self, running: Mapping[RunId, Path], now_s: float) -> Mapping[RunId, float]:
        """Return when runs last saved, as far as known, and start the scans that are due.

        ``running`` has a file of each run, which belongs to the job's user.
        """
        self._read_list()
        self._take_answers(now_s)
        self._follow(running, now_s)
        for run_id, watched in self._watched.items():
            is_last = watched.over_s is not None and watched.looked_s <= watched.over_s
            if is_last or (watched.over_s is None and now_s - watched.looked_s >= LOOK_EVERY_S):
                self._look(run_id, watched, now_s)
        return {
            run_id: watched.saved_s
            for run_id, watched in self._watched.items()
            if watched.saved_s is not None
        }

    def _read_list(self) -> None:
        try:
            found = self._list_path.stat(follow_symlinks=False)
            signature = found.st_ino, found.st_mtime_ns, found.st_size
            if signature != self._signature and stat.S_ISREG(found.st_mode):
                with self._list_path.open("rb") as stream:
                    self._folders = folders_in(stream.read(MOST_LIST_BYTES + 1))
                self._signature = signature
        except OSError:
            self._folders, self._signature = {}, None

    def _follow(self, running: Mapping[RunId, Path], now_s: float) -> None:
        for run_id, file in running.items():
            path = self._folders.get(run_id.job_id)
            if path is not None and run_id not in self._watched:
                with suppress(OSError):
                    owner = file.stat(follow_symlinks=False)
                    self._watched[run_id] = _Watched(path, owner, now_s - LOOK_EVERY_S)
        for run_id, watched in list(self._watched.items()):
            if run_id not in running and watched.over_s is None:
                watched.over_s = now_s
            if watched.over_s is not None and now_s - watched.over_s > TOLD_FOR_S:
                del self._watched[run_id]

    def _look(self, run_id: RunId, watched: _Watched, now_s: float) -> None:
        if run_id in self._processes or len(self._processes) >= MOST_LOOKS:
            return
        watched.looked_s = now_s + (0.001 if watched.over_s is not None else 0.0)
        answer, end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            pid = os.fork()
        except OSError:
            os.close(answer)
            os.close(end)
            return
        if pid == 0:
            _answer_as(watched, end)
        os.close(end)
        self._processes[run_id] = _ScanProcess(pid, answer, now_s, watched.over_s is not None)

    def _take_answers(self, now_s: float) -> None:
        for run_id, process in list(self._processes.items()):
            ended, _ = os.waitpid(process.pid, os.WNOHANG)
            if not ended:
                if now_s - process.began_s > GIVEN_UP_AFTER_S:
                    # A child that waits for a file server does not end before the server answers.
                    os.kill(process.pid, signal.SIGKILL)
                continue
            del self._processes[run_id]
            with suppress(OSError, ValueError):
                finished_ns, *newest = map(int, os.read(process.answer, MOST_ANSWER_BYTES).split())
                if run_id in self._watched:
                    scan = FolderScan(FileState(*newest), finished_ns)
                    self._watched[run_id].take(scan, process.is_last)
            os.close(process.answer)


def _answer_as(watched: _Watched, end: int) -> None:
    """In the child: scan with the rights of the job's user, and exit."""
    owner = watched.owner
    try:
        if os.geteuid() == 0:
            groups = [owner.st_gid]
            with suppress(KeyError):
                groups = os.getgrouplist(pwd.getpwuid(owner.st_uid).pw_name, owner.st_gid)
            os.setgroups(groups)
            os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
            os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
        if os.geteuid() == owner.st_uid:
            scan = look_into(watched.path, watched.newest)
            if scan is not None:
                answer = scan.finished_ns, *scan.newest
                os.write(end, " ".join(map(str, answer)).encode())
    except OSError:
        pass
    finally:
        os._exit(0)
