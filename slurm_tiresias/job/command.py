"""``tiresias-job``: for programs that cannot use the library, or are started by a launcher.

tiresias-job run -- torchrun --nproc-per-node=2 train.py
tiresias-job report 120/5000
tiresias-job saved 120
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from slurm_tiresias.job import LEFT, session
from slurm_tiresias.job.requests import FILE_VARIABLE, LEAVE_SIGNAL, SAVE_SIGNALS

CANNOT_RUN, NOT_FOUND = 126, 127
"""As a shell reports it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: that of the program for ``run``; 2 for wrong use."""
    options = parser().parse_args(arguments)
    if options.command == "run":
        program = options.program[1:] if options.program[:1] == ["--"] else options.program
        if not program:
            parser().error("run: no program. Name one behind --")
        return run(program)
    if options.command == "report":
        step, total = options.progress
        session.report(step, total)
    elif options.command == "saved":
        session.saved(options.step)
    return 0


def run(program: Sequence[str]) -> int:
    """Run a program, and forward Slurm's requests to it through a file instead of signals.

    A launcher such as torchrun reacts to SIGTERM by killing its processes, even during a save. So
    the program is started with the signals blocked, which its children inherit, and its processes
    read the file instead (``requests.py``). Slurm's SIGKILL after KillWait still ends them.
    """
    with tempfile.TemporaryDirectory(prefix="tiresias-job-") as folder:
        requests = _RequestFile(Path(folder) / "requests")
        signal.signal(LEAVE_SIGNAL, requests.leave)
        for number in SAVE_SIGNALS:
            signal.signal(number, requests.save)
        blocked = {LEAVE_SIGNAL, *SAVE_SIGNALS}
        try:
            # Python starts a child with the signal mask of the thread that starts it.
            signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
            child = subprocess.Popen(program, env={**os.environ, FILE_VARIABLE: str(requests.path)})
        except OSError as error:
            print(f"tiresias-job: {program[0]}: {error.strerror}", file=sys.stderr)
            return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        code = child.wait()
    if requests.leaves and code == 0:
        return LEFT
    return code if code >= 0 else 128 - code


class _RequestFile:
    """The file that processes read, replaced atomically at each request."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.saves = 0
        self.leaves = 0
        self._write()

    def save(self, _number: int, _frame: FrameType | None) -> None:
        self.saves += 1
        self._write()

    def leave(self, _number: int, _frame: FrameType | None) -> None:
        self.leaves += 1
        self._write()

    def _write(self) -> None:
        draft = self.path.with_suffix(".draft")
        draft.write_text(f"save {self.saves}\nleave {self.leaves}\n")
        draft.replace(self.path)


PROGRAM = "tiresias-job"
DESCRIPTION = """\
For training programs in Slurm jobs that may be preempted: says how far they are, and lets the
processes of a launcher save before they leave. Programs in Python better use the library
slurm_tiresias.job."""
EPILOG = "Outside of Slurm all of it works, too, and the reports go nowhere."

RUN = """\
Runs a program whose launcher would end its processes on SIGTERM, such as torchrun. The launcher
gets neither SIGTERM nor SIGUSR1 nor SIGURG. Its processes, which use slurm_tiresias.job, learn of
them through a file: at SIGUSR1 and SIGURG they save after the step they are in, at SIGTERM they
also end. The exit code is the program's, or 128 and the number of the signal that ended it, or 143
if the program was told to leave and ended with 0."""
REPORT = """\
Says how many steps the program has done, and of how many. A step is whatever takes about the same
time each, such as an epoch."""
SAVED = """\
Says that a checkpoint after so many steps is on the disk. A preemption then costs only what was
done since."""


def parser() -> argparse.ArgumentParser:
    """The command line; the manual page is generated from it too."""
    whole = argparse.ArgumentParser(prog=PROGRAM, description=DESCRIPTION, epilog=EPILOG)
    commands = whole.add_subparsers(dest="command", required=True, metavar="run|report|saved")
    runs = commands.add_parser(
        "run",
        usage=f"{PROGRAM} run [-h] -- PROGRAM ...",
        help="run a program whose launcher must not get the signals",
        description=RUN,
    )
    runs.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="-- PROGRAM ...",
        help="the program with its arguments",
    )
    reports = commands.add_parser("report", help="say how far the program is", description=REPORT)
    reports.add_argument(
        "progress",
        type=_progress,
        metavar="STEP[/TOTAL]",
        help="whole numbers, such as 120 or 120/5000",
    )
    saves = commands.add_parser(
        "saved", help="say that a checkpoint is on the disk", description=SAVED
    )
    saves.add_argument("step", type=int, metavar="STEP", help="the steps that the checkpoint has")
    return whole


def _progress(text: str) -> tuple[int, int | None]:
    found = re.fullmatch(r"([0-9]{1,18})(?:/([0-9]{1,18}))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no progress. Write 120 or 120/5000.")
    return int(found[1]), int(found[2]) if found[2] else None


if __name__ == "__main__":
    sys.exit(main())
