"""Watches a job's processes and files on one node, and prints what it sees as one JSON object per
line.

The source of this module is sent to the nodes and runs there in a step of the job: Python 3.9 and
the standard library only, nothing else of this package. It ends once no other process of the job is
left, so the step never keeps the job's nodes, and while it runs it ignores SIGTERM. If its standard
input ends, the drill is gone: it then ends the job's processes, cancels the job, and removes the
drill's folder.

It finds the job's processes by their environment and their parents. It never sends a signal to any
other process, and it reads only its user's own files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SAMPLE_S = 0.03
FILES_EVERY_S = 0.25
MOST_FILES, DEEPEST = 4000, 6
FIRST_LINES_A_LOOK, MOST_LINES_A_LOOK, LONGEST_LINE = 20, 60, 240
MOST_LOGS = 8
LONGEST_COMMAND = 160
RECORD_BYTES = 1024
OUR_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGHUP)

LOG_LIKE = re.compile(
    r"\.(log|out|err|txt|csv|tsv|jsonl|lock|py|pyc)$|tfevents|/wandb/|/mlruns/|/logs?/"
)
"""Files that a program has open for writing, but that are not checkpoints."""
NO_FILE = re.compile("/(dev/(?!shm/)|proc/|sys/|memfd:)")
_SKIPPED = {"__pycache__", "node_modules", "site-packages", "lost+found"}


def emit(kind: str, **values: object) -> None:
    line = json.dumps({"kind": kind, "at_s": time.time(), "node": NODE, **values}) + "\n"
    with contextlib.suppress(OSError):
        os.write(1, line.encode("utf-8", "replace"))


def content(path: str, most: int = 65536) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(most)
    except OSError:
        return b""


def kill(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def stat_of(pid: int) -> tuple[int, int, int] | None:
    """Its parent, CPU time and start time, both in ticks; None if it is gone."""
    text = content(f"/proc/{pid}/stat").decode("ascii", "replace")
    fields = text[text.rfind(")") + 2 :].split()
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[19])


def masks_of(pid: int) -> dict[str, str]:
    found = {}
    for line in content(f"/proc/{pid}/status").decode("ascii", "replace").splitlines():
        name, _, value = line.partition(":")
        if name in ("SigBlk", "SigIgn", "SigCgt"):
            found[name] = value.strip()
    return found


def command_of(pid: int) -> str:
    words = content(f"/proc/{pid}/cmdline", 4096).replace(b"\0", b" ")
    return words.decode("utf-8", "replace").strip()[:LONGEST_COMMAND]


def is_slurmstepd(pid: int) -> bool:
    """Whether this process of Slurm's is the one that starts and signals a step's processes."""
    return content(f"/proc/{pid}/comm", 32).startswith(b"slurmstepd")


class Processes:
    """The job's processes on this node, from one scan to the next."""

    def __init__(self, job: str, cluster: str) -> None:
        self.job = job
        # Several nodes, or clusters, may share one host.
        self.same = {"SLURMD_NODENAME": NODE, "SLURM_CLUSTER_NAME": cluster}
        self.others = {os.getpid()}
        self.known: dict[int, dict[str, Any]] = {}
        self.progress_files: set[str] = set()

    def look(self) -> None:
        names = os.listdir("/proc")  # noqa: PTH208 - as text
        pids = {int(name) for name in names if name.isdigit()}
        self.others &= pids
        for pid in sorted(pids - self.others - self.known.keys()):
            facts = stat_of(pid)
            if facts is None:
                continue
            if facts[0] in self.known or self._is_of_job(pid):
                self.known[pid] = {"start": facts[2], "shown": None, "ticks": facts[1]}
            else:
                self.others.add(pid)
        for pid in list(self.known):
            self._follow(pid)

    def _is_of_job(self, pid: int) -> bool:
        words = os.fsdecode(content(f"/proc/{pid}/environ", 1 << 20)).split("\0")
        environment = dict(word.partition("=")[::2] for word in words)
        if environment.get("SLURM_JOB_ID") != self.job or "TIRESIAS_DRILL_WATCHER" in environment:
            return False
        if any(environment.get(name, value) != value for name, value in self.same.items()):
            return False
        path = environment.get("TIRESIAS_PROGRESS_FILE")
        if path and path not in self.progress_files:
            self.progress_files.add(path)
            emit("progress-file", path=path)
        return True

    def _follow(self, pid: int) -> None:
        known = self.known[pid]
        facts = stat_of(pid)
        if facts is None or facts[2] != known["start"]:
            emit("gone", pid=pid, ticks=known["ticks"])
            del self.known[pid]
            return
        known["ticks"] = facts[1]
        shown = {"parent": facts[0], "command": command_of(pid), **masks_of(pid)}
        # A process that is just ending no longer has a command.
        if shown != known["shown"] and shown["command"]:
            known["shown"] = shown
            direct = is_slurmstepd(facts[0])
            orphaned = facts[0] not in self.known and not direct
            start = known["start"]
            emit("process", pid=pid, start=start, direct=direct, orphaned=orphaned, **shown)

    def ticks(self) -> dict[str, int]:
        return {str(pid): known["ticks"] for pid, known in self.known.items()}

    def written_files(self) -> tuple[dict[str, int], dict[str, bool]]:
        """The files that they have open for writing, by path, each with one of the processes.

        Also those that are the standard output of any: whether it only appends.
        """
        found: dict[str, int] = {}
        logs: dict[str, bool] = {}
        for pid in self.known:
            folder = f"/proc/{pid}/fd"
            try:
                numbers = os.listdir(folder)[:256]  # noqa: PTH208 - as text
            except OSError:
                continue
            for number in numbers:
                try:
                    path = os.readlink(f"{folder}/{number}")  # noqa: PTH115 - faster
                except OSError:
                    continue
                if not path.startswith("/") or NO_FILE.match(path):
                    continue
                match = re.search(
                    rb"flags:\s*([0-7]+)", content(f"/proc/{pid}/fdinfo/{number}", 256)
                )
                flags = int(match.group(1), 8) if match else 0
                if flags & 3:
                    found.setdefault(path, pid)
                    if number in ("1", "2"):
                        logs[path] = bool(flags & os.O_APPEND)
        return found, logs


class Output:
    """The lines that are added to a file with output, and whether a start has emptied it.

    The file held ``offset`` bytes before this start; the last of them are ``mark``.
    """

    def __init__(self, path: str, offset: int, mark: str = "") -> None:
        self.path, self.offset, self.mark = path, offset, mark.encode("latin-1")
        self.rest = b""
        self.checked = not mark

    def look(self) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            size = os.fstat(descriptor).st_size
            at = max(0, self.offset - len(self.mark))
            same = self.checked or os.pread(descriptor, len(self.mark), at) == self.mark
            self.checked = True
            if size < self.offset or not same:
                emit("emptied", path=self.path)
                self.offset = 0
            added = os.pread(descriptor, 65536, self.offset)
        finally:
            os.close(descriptor)
        self.offset += len(added)
        lines = re.split(rb"[\r\n]+", self.rest + added)
        self.rest = lines.pop()[-LONGEST_LINE:]
        first = lines[:FIRST_LINES_A_LOOK]
        for line in first + lines[len(first) :][-MOST_LINES_A_LOOK:]:
            if line.strip():
                emit("line", text=line[:LONGEST_LINE].decode("utf-8", "replace"))


class Files:
    """The job's files below its working folder; bounded, and without following links.

    Other programs write there too: a file is the job's if one of its processes had it open for
    writing, or if its name has the job's id.
    """

    def __init__(self, root: str, since_s: float, job: str) -> None:
        self.root, self.since_s, self.job = root, since_s, job
        self.opened: set[str] = set()
        self.seen: dict[str, tuple[int, int, float]] = {}
        self.growing: set[str] = set()
        self.there: dict[str, int] = {}
        self.due_s = 0.0

    def look(self, now_s: float) -> None:
        if now_s < self.due_s:
            return
        there = {}
        for entry in self._entries():
            with contextlib.suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if entry.path not in self.opened and self.job not in entry.path:
                    continue
                there[entry.path] = found.st_ino
                if stat.S_ISREG(found.st_mode) and found.st_mtime >= self.since_s:
                    self._changed(entry.path, found)
        for path in self.there.keys() - there.keys():
            self.seen.pop(path, None)
            # A file that was renamed is not gone.
            if self.there[path] not in there.values():
                emit("file-gone", path=path)
        self.there = there
        took_s = time.monotonic() - now_s
        self.due_s = now_s + max(FILES_EVERY_S, 5 * took_s)

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """Everything below the folder, but no more than a bounded number of entries."""
        left = MOST_FILES
        folders = [(self.root, 0)]
        while folders and left > 0:
            folder, depth = folders.pop()
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if entry.name.startswith(".") or entry.name in _SKIPPED:
                        continue
                    if not entry.is_dir(follow_symlinks=False):
                        yield entry
                    elif depth < DEEPEST:
                        folders.append((entry.path, depth + 1))

    def _changed(self, path: str, found: os.stat_result) -> None:
        shown = (found.st_ino, found.st_size, found.st_mtime)
        before = self.seen.get(path)
        if shown == before:
            return
        self.seen[path] = shown
        # A file that only grows is not a checkpoint that was written anew.
        replaced = before is not None and (found.st_ino != before[0] or found.st_size < before[1])
        grows = before is not None and not replaced and path not in self.growing
        if grows:
            self.growing.add(path)
        if before is None or replaced or grows:
            emit("file", path=path, grows=grows)


class Records:
    """The record of progress, from whichever file the job's processes were told to use."""

    def __init__(self) -> None:
        self.last: dict[str, bytes] = {}

    def look(self, paths: set[str]) -> None:
        for path in sorted(paths)[:4]:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                continue
            try:
                text = os.pread(descriptor, RECORD_BYTES, 0)
            finally:
                os.close(descriptor)
            if text.strip(b"\0") and text != self.last.get(path):
                self.last[path] = text
                emit("record", text=text.decode("ascii", "replace").strip())

    @property
    def saving(self) -> bool:
        return any(b'"state":"saving"' in text for text in self.last.values())


class Watch:
    """Everything that is watched on this node, in one loop."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told = told
        self.processes = Processes(told["job"], told["cluster"])
        self.records = Records()
        first = os.environ.get("SLURM_NODEID", "0") == "0"
        self.output = Output(told["output"], told["offset"], told["mark"]) if first else None
        self.files = Files(told["root"], told["since_s"], told["job"]) if first else None
        self.logs: dict[str, Output] = {}
        self.open: dict[str, int] = {}
        self.open_before: set[str] = set()
        self.signals: list[tuple[float, int]] = []
        self.again = 0
        self.canary = 0
        self.from_canary = -1
        self.seen_any = False
        self.pending = b""
        self.finishing = False

    def take(self, number: int, _frame: object) -> None:
        self.signals.append((time.time(), int(number)))

    def start_canary(self) -> None:
        """A child process that shows whether Slurm's signals reach more than direct children of a
        step."""
        reading, writing = os.pipe()
        self.canary = os.fork()
        if self.canary == 0:
            os.close(reading)

            def tell(number: int, _frame: object) -> None:
                os.write(writing, b"%d " % number)

            for each in OUR_SIGNALS:
                signal.signal(each, tell)
            while os.getppid() != 1:
                time.sleep(0.5)
            os._exit(0)
        os.close(writing)
        os.set_blocking(reading, False)
        self.from_canary = reading

    def run(self) -> None:
        for number in OUR_SIGNALS:
            signal.signal(number, self.take)
        self.start_canary()
        self.processes.others.add(self.canary)
        self.survivors()
        emit("up", job=self.told["job"], hertz=os.sysconf("SC_CLK_TCK"))
        began_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            if self.look(now_s) == 0 and (self.seen_any or now_s - began_s > 5):
                break
            if self.finishing:
                self.finish()
            if not self.listen() and not self.finishing:
                self.finishing = True
                self.cancel()
        self.end()

    def look(self, now_s: float) -> int:
        """Scan once; return how many processes of the job exist."""
        self.processes.look()
        self.seen_any = self.seen_any or bool(self.processes.known)
        self.tell_signals()
        self.records.look(self.processes.progress_files)
        self.look_at_open_files()
        self.look_at_output()
        if self.files is not None:
            self.files.look(now_s)
        if self.again and self.is_saving():
            self.signal_again()
        return len(self.processes.known)

    def tell_signals(self) -> None:
        while self.signals:
            at_s, number = self.signals.pop(0)
            emit("signal", signal=number, got_s=at_s, ticks=self.processes.ticks())
        try:
            said = os.read(self.from_canary, 256)
        except OSError:
            return
        for below in said.split():
            emit("signal-below", signal=int(below))

    def look_at_open_files(self) -> None:
        written, logs = self.processes.written_files()
        if self.files is not None:
            self.files.opened |= written.keys()
        now = {
            path: pid
            for path, pid in written.items()
            if self.is_progress(path)
            or not (LOG_LIKE.search(path) or path.startswith(self.told["folder"]))
        }
        for path in now.keys() - self.open.keys():
            emit("opened", path=path[:400], pid=now[path], progress=self.is_progress(path))
        for path in self.open.keys() - now.keys():
            emit("closed", path=path[:400])
        self.open = now
        for path, appends in logs.items():
            if not path.startswith(self.told["folder"]) and len(self.logs) < MOST_LOGS:
                self.follow(path, appends)

    def follow(self, path: str, appends: bool) -> None:
        """Read a file of the job's own to which it has redirected its output."""
        if path in self.logs:
            return
        emit("log", path=path)
        size, end = self.told["logs"].get(path, (0, ""))
        if not end and appends:
            # What other jobs have written, and perhaps the first lines of this one.
            with contextlib.suppress(OSError):
                size = Path(path).stat().st_size
        self.logs[path] = Output(path, size, end)

    def look_at_output(self) -> None:
        for one in (self.output, *self.logs.values()):
            if one is not None:
                one.look()

    def is_progress(self, path: str) -> bool:
        return path in self.processes.progress_files

    def is_saving(self) -> bool:
        opened = any(
            path not in self.open_before and not self.is_progress(path) for path in self.open
        )
        return self.records.saving or opened

    def signal_again(self) -> None:
        """Send the same signal again, in the middle of the save that the first one started."""
        number, self.again = self.again, 0
        for pid, known in list(self.processes.known.items()):
            if known["shown"] and stat_of(pid):
                kill(pid, number)
        emit("signalled-again", signal=number)

    def listen(self) -> bool:
        """Process orders until the next sample is due; return whether the drill still exists."""
        try:
            ready, _, _ = select.select([0], [], [], SAMPLE_S)
        except OSError:
            return True
        if not ready:
            return True
        said = os.read(0, 4096)
        if not said:
            time.sleep(SAMPLE_S)
        self.pending += said
        while b"\n" in self.pending:
            line, _, self.pending = self.pending.partition(b"\n")
            order, _, value = line.decode("ascii", "replace").partition(" ")
            if order == "again" and value.isdigit():
                self.again = int(value)
                self.open_before = set(self.open)
            elif order == "finish":
                self.finishing = True
        return bool(said)

    def survivors(self) -> None:
        """Name and kill the processes of earlier runs that still exist, recognized by pid and start
        time."""
        for one in self.told["earlier"]:
            facts = stat_of(one["pid"])
            if facts is None or facts[2] != one["start"] or one["node"] != NODE:
                continue
            self.processes.others.add(one["pid"])
            emit("survivor", run=one["run"], pid=one["pid"], command=command_of(one["pid"]))
            kill(one["pid"], signal.SIGKILL)

    def cancel(self) -> None:
        """The drill is gone: cancel its job, and remove its folder."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["scancel", self.told["job"]], timeout=20, check=False)
        shutil.rmtree(self.told["folder"], ignore_errors=True)

    def finish(self) -> None:
        """End the job by ending its processes, also those that Slurm would leave behind.

        Once a look, until none is left: one may just have started another.
        """
        for pid in list(self.processes.known):
            kill(pid, signal.SIGKILL)

    def end(self) -> None:
        self.tell_signals()
        self.look_at_output()
        if self.files is not None:
            self.files.look(self.files.due_s)
        kill(self.canary, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(self.canary, 0)
        emit("end")


def main() -> None:
    told = json.loads(sys.argv[1])
    watch = Watch(told)
    if told["only_survivors"]:
        watch.survivors()
        emit("end")
    else:
        watch.run()


NODE = os.environ.get("SLURMD_NODENAME", "")
if __name__ == "__main__":
    main()
