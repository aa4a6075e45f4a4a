"""Reports through the job's own comment, for nodes without the SPANK plugin.

slurmctld serves the whole cluster, so updates are few (``pace.py``). ``squeue`` and ``scontrol``
run beside the program, one at a time; their results are collected at its next report.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import IO

from slurm_tiresias.job import comment
from slurm_tiresias.job.channel import ChannelError, open_locked
from slurm_tiresias.job.pace import Pace
from slurm_tiresias.job.record import Record, checked

RESTART_VARIABLE = "SLURM_RESTART_COUNT"

SLOW_S = 2.0
"""A command that runs longer shows that slurmctld is busy."""

TIME_LIMIT_S = 10.0
AT_EXIT_S = 2.0
"""How long the end of the program waits for its last update."""

MOST_COMMENT_BYTES = 1024
"""Slurm refuses a longer comment."""

NO_COMMENT = "(null)"
"""How squeue shows that a job has no comment."""

_MISLEADING = ("SQUEUE_", "SCONTROL_", "SLURM_CLUSTERS")
"""Prefixes of variables that make squeue and scontrol show other jobs, or query another cluster."""


@dataclass
class _State:
    """What is known of a run. ``name`` is the job's id as Slurm writes it, "" until squeue was
    asked."""

    run: str
    pace: Pace
    name: str = ""
    words: str = ""
    last: Record | None = None
    sent: Record | None = None


class CommentChannel:
    """The comment of a job, for one process of the job on this node at a time.

    The user's text in the comment before the first update is kept in front of the progress; later
    changes to it are overwritten.

    Raises
    ------
    ChannelError
        If Slurm's commands are missing, or another process reports already.
    """

    def __init__(
        self,
        job_id: str,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job_id = job_id
        self._clock = clock
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith(_MISLEADING)
        }
        self._squeue = _path_of("squeue", environment)
        self._scontrol = _path_of("scontrol", environment)
        self._pid = os.getpid()
        self._command: subprocess.Popen[bytes] | None = None
        self._command_began_s = 0.0
        self._command_is_slow = False
        self._answer: IO[bytes] | None = None
        # Ends each of squeue's rows: random, so that no comment can contain it.
        self._row_end = f"|{os.urandom(16).hex()}\n"
        user = os.geteuid()
        self._descriptor = open_locked(
            f"{tempfile.gettempdir()}/tiresias-progress-{user}-{job_id}",
            "a file of this user's",
            lambda found: found.st_uid == user and found.st_nlink == 1,
            os.O_CREAT,
        )
        self._state = self._read_state(environment.get(RESTART_VARIABLE, "0"))
        atexit.register(self._finish)

    def last(self) -> Record | None:
        """The last report of an earlier program of this run; None if there is none."""
        return self._state.last

    def send(self, record: Record) -> None:
        """Store a record, and update the comment if that is due.

        Raises ``OSError`` if the comment cannot be updated without damaging the user's words.
        """
        self._state.last = record
        self._advance()
        if record.busy_until_s is not None:
            self._settle()  # the next report may come much later
        self._write_state()

    def close(self) -> None:
        """Let another process of the job report."""
        atexit.unregister(self._finish)
        if self._command is not None:
            self._command.kill()
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _finish(self) -> None:
        """At the end of the program, wait a little for its last update."""
        if os.getpid() != self._pid:
            return
        with contextlib.suppress(OSError):
            self._advance()
            self._settle()
            self._write_state()
        self.close()

    def _settle(self) -> None:
        until_s = time.monotonic() + AT_EXIT_S
        while self._command is not None and time.monotonic() < until_s:
            time.sleep(0.01)
            self._advance()

    def _advance(self) -> None:
        """Collect the result of the running command, and start the next one if it is due."""
        now_s = self._clock()
        if self._command is not None and not self._has_ended(self._command, now_s):
            return
        state = self._state
        if state.last is None or not state.pace.is_due(now_s, state.last, state.sent):
            return
        if not state.name:
            self._ask(now_s)
        else:
            self._update(state.last, now_s)

    def _has_ended(self, command: subprocess.Popen[bytes], now_s: float) -> bool:
        code = command.poll()
        if code is None:
            ran_s = now_s - self._command_began_s
            self._command_is_slow = ran_s >= SLOW_S
            if ran_s >= TIME_LIMIT_S:
                command.kill()
            return False
        self._command = None
        pace = self._state.pace
        if self._answer is None:
            pace.answered(code == 0 and not self._command_is_slow)
            return True
        with self._answer as answer:
            self._answer = None
            if code == 0 and not self._command_is_slow:
                answer.seek(0)
                self._understand(os.fsdecode(answer.read()))
            else:
                # It counts as an update, or it would be repeated at once.
                pace.count(now_s)
                pace.answered(False)
        return True

    def _ask(self, now_s: float) -> None:
        """Query the comment and the id of the job.

        An array's first task has the number of the whole array, and a heterogeneous job's first
        component that of all components: updates by number would change all of them.
        """
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has been read
        wanted = "--format=%A|%i|%k" + self._row_end.rstrip("\n")
        command = [self._squeue, "--noheader", "--all", f"--jobs={self._job_id}", wanted]
        if not self._start(command, now_s, self._answer.fileno()):
            self._answer = None
            self._state.pace.count(now_s)

    def _understand(self, answer: str) -> None:
        rows = [row.split("|", 2) for row in answer.split(self._row_end)]
        mine = [row for row in rows if len(row) == 3 and row[0] == self._job_id]
        if len(mine) != 1:
            raise OSError("squeue does not show the job's comment")
        _, self._state.name, text = mine[0]
        self._state.words = comment.split("" if text == NO_COMMENT else text)[0]

    def _update(self, record: Record, now_s: float) -> None:
        state = self._state
        text = comment.join(state.words, comment.encode(record))
        if len(os.fsencode(text)) > MOST_COMMENT_BYTES:
            raise OSError("the job's comment is too long for the progress to be added")
        command = [self._scontrol, "update", f"JobId={state.name}", f"Comment={text}"]
        self._start(command, now_s)
        state.pace.count(now_s)
        state.sent = record

    def _start(self, command: list[str], now_s: float, output: int | None = None) -> bool:
        self._command_began_s = now_s
        self._command_is_slow = False
        try:
            # In a session of its own, signals to the program's group do not reach it.
            self._command = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if output is None else output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            # The node may temporarily be unable to create processes.
            self._state.pace.answered(False)
        return self._command is not None

    def _read_state(self, run: str) -> _State:
        """The state that earlier programs of this run have stored."""
        new = _State(run, Pace.begin(self._clock()))
        try:
            fields = json.loads(os.pread(self._descriptor, 1 << 16, 0))
            kept = _State(
                str(fields["run"]),
                Pace(**fields["pace"]),
                str(fields["name"]),
                str(fields["words"]),
                *(fields[name] and checked(fields[name]) for name in ("last", "sent")),
            )
            # The monotonic clock restarts when the node reboots.
            return kept if kept.run == run and kept.pace.last_s <= self._clock() else new
        except (OSError, ValueError, KeyError, TypeError):
            return new

    def _write_state(self) -> None:
        content = json.dumps(asdict(self._state)).encode()
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))


def _path_of(program: str, environment: Mapping[str, str]) -> str:
    found = shutil.which(program, path=environment.get("PATH"))
    if found is None:
        raise ChannelError(f"there is no {program} in PATH")
    return found
