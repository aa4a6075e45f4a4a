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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from slurm_tiresias.job import LEFT, session
from slurm_tiresias.job.record import MOST_STEPS
from slurm_tiresias.job.requests import FILE_VARIABLE, LEAVE_SIGNAL, SAVE_SIGNALS
from slurm_tiresias.job.time_limit import JOB_VARIABLE, answer

CANNOT_RUN, NOT_FOUND = 126, 127
"""As a shell reports it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: that of the program for ``run``; 2 for wrong use."""
    options = parser().parse_args(arguments)
    if options.command == "run":
        program = options.program[1:] if options.program[:1] == ["--"] else options.program
        if not program:
            parser().error("run: no program. Name one after --")
        return run(program)
    session.is_the_program = False
    if options.command == "report":
        step, total = options.progress
        session.report(step, total)
    elif options.command == "saved":
        session.saved(options.step)
    return 0


def run(program: Sequence[str]) -> int:
    """Run a program, and forward Slurm's requests to it through a file instead of signals.

    A launcher such as torchrun reacts to SIGTERM by killing its processes, even during a save. So
    it gets a session of its own, which signals to the process group of the job do not reach, and
    its processes read the file instead (``requests.py``). Where Slurm signals each process, the
    program is started with the signals blocked, which its children inherit; those that use the
    library unblock them. Slurm's SIGKILL after KillWait still ends them.
    """
    to_forward: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        to_forward.append(number)

    with tempfile.TemporaryDirectory(prefix="tiresias-job-") as folder:
        requests = _RequestFile(Path(folder) / "requests")
        signal.signal(LEAVE_SIGNAL, requests.leave)
        for number in SAVE_SIGNALS:
            signal.signal(number, requests.save)
        # A terminal sends them to its own session.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, forward)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Handlers run only between two calls of the system: a signal just before a call that waits
        # for the child would go unheard until it ends. Each signal ends a read of this pipe.
        woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        everywhere = signals_reach_all_processes(os.environ)
        blocked = {LEAVE_SIGNAL, signal.SIGUSR1} if everywhere else set()
        try:
            # Python starts a child with the signal mask of the thread that starts it.
            signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
            child = subprocess.Popen(
                program,
                env={**os.environ, FILE_VARIABLE: str(requests.path)},
                start_new_session=not everywhere,
            )
        except OSError as error:
            print(f"tiresias-job: {program[0]}: {error.strerror}", file=sys.stderr)
            return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        while (code := child.poll()) is None:
            while to_forward and not everywhere:
                child.send_signal(to_forward.pop(0))
            os.read(woken, 512)
    if requests.leaves and code == 0:
        return LEFT
    return code if code >= 0 else 128 - code


def signals_reach_all_processes(environment: Mapping[str, str]) -> bool:
    """Whether Slurm signals each process of a job here.

    ``proctrack/cgroup`` only signals the processes that Slurm itself has started, unless it is
    configured otherwise.
    """
    if not environment.get(JOB_VARIABLE):
        return False
    shown = answer(["scontrol", "show", "config"])
    settings = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", shown, re.MULTILINE))
    by_cgroup = settings.get("ProctrackType") == "proctrack/cgroup"
    return not by_cgroup or settings.get("SignalChildrenProcesses", "no") != "no"


class _RequestFile:
    """The file that processes read. Its length never changes, so that a request needs no room."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.saves = 0
        self.leaves = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._write()

    def save(self, _number: int, _frame: FrameType | None) -> None:
        self.saves += 1
        self._update()

    def leave(self, _number: int, _frame: FrameType | None) -> None:
        self.leaves += 1
        self._update()

    def _update(self) -> None:
        try:
            self._write()
        except OSError as error:
            # An exception in a handler of a signal would end the wrapper, and so the job.
            os.write(2, f"tiresias-job: {self.path}: {error.strerror}\n".encode())

    def _write(self) -> None:
        text = f"save {self.saves:09}\nleave {self.leaves:09}\n"
        os.pwrite(self._descriptor, text.encode(), 0)


PROGRAM = "tiresias-job"
DESCRIPTION = """\
For training programs in Slurm jobs that may be preempted: says how far they are, and lets the
processes of a launcher save before they leave. Programs in Python better use the library
slurm_tiresias.job."""
EPILOG = "Outside of Slurm all of it works, too, and the reports go nowhere."

RUN = """\
Runs a program whose launcher would end its processes on SIGTERM, such as torchrun. The launcher
does not get Slurm's SIGTERM and SIGUSR1. Its processes, which use slurm_tiresias.job, learn of them
and of SIGURG through a file: at SIGUSR1 and SIGURG they save after the step they are in, at SIGTERM
they also end. The exit code is the program's, or 128 and the number of the signal that ended it, or
143 if the program was told to leave and ended with 0."""
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
    saves.add_argument(
        "step", type=_steps, metavar="STEP", help="the number of steps in the checkpoint"
    )
    return whole


def _steps(text: str) -> int:
    if not re.fullmatch("[0-9]{1,16}", text) or int(text) > MOST_STEPS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps. Write 120.")
    return int(text)


def _progress(text: str) -> tuple[int, int | None]:
    done, slash, of = text.partition("/")
    step, total = _steps(done), _steps(of) if slash else None
    if total is not None and not 0 < total >= step:
        raise argparse.ArgumentTypeError(f"{text!r} is more than all steps. Write 120/5000.")
    return step, total


if __name__ == "__main__":
    sys.exit(main())
