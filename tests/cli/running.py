"""Run the command line in tests: in this process, in another process, or on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result

from scripts.testbed.patience import PATIENCE_S
from slurm_tiresias.cli.main import cli
from slurm_tiresias.status import published
from slurm_tiresias.status.published import PublishedState

ROOT = Path(__file__).parents[2]
_NOT_PASSED_ON = ("PYTHONUNBUFFERED", "NO_COLOR", "JOURNAL_STREAM", "COLUMNS", "LINES")
COMMAND = (sys.executable, "-m", "slurm_tiresias.cli")


class Site:
    """A machine with a configuration file and, once published, a state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "tiresias.toml"
        self.configure("")

    def configure(self, text: str) -> None:
        settings = f'[controller]\nstate_dir = "{self.folder}"\n'
        self.config.write_text(settings + text, encoding="utf-8")

    def publish(self, state: PublishedState) -> None:
        published.write(state, self.folder)

    def run(self, *arguments: str, **environment: str) -> Result:
        """Run in this process; a traceback of the program fails the test."""
        runner = CliRunner(env={"TIRESIAS_CONFIG": str(self.config), **environment})
        result = runner.invoke(cli, list(arguments), prog_name="tiresias-slurm")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def environment(self, **changes: str) -> Mapping[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in _NOT_PASSED_ON}
        return {
            **kept,
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color",
            "TIRESIAS_CONFIG": str(self.config),
            **changes,
        }

    def spawn(
        self, *arguments: str, command: Sequence[str] = COMMAND, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run in a separate process with its output piped."""
        return subprocess.run(
            [*command, *arguments],
            cwd=ROOT,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
            check=False,
        )

    def on_terminal(
        self, width: int, *arguments: str, command: Sequence[str] = COMMAND, **environment: str
    ) -> tuple[int, str]:
        """Run in a separate process on a terminal that is ``width`` cells wide."""
        with on_new_terminal(width) as (terminal, shown):
            ended = subprocess.run(
                [*command, *arguments],
                cwd=ROOT,
                env=self.environment(**environment),
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                timeout=PATIENCE_S,
                check=False,
            )
        return ended.returncode, shown()


def watched_until_interrupted(environment: Mapping[str, str]) -> tuple[int, str]:
    """Run ``status -w`` on a terminal, and interrupt it once it has shown the cluster; return how
    it ended."""
    with on_new_terminal(80) as (terminal, shown):
        process = subprocess.Popen(
            [*COMMAND, "status", "-w", "0.1"],
            cwd=ROOT,
            env=environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )
        give_up_s = time.monotonic() + PATIENCE_S
        while "hopper" not in shown() and time.monotonic() < give_up_s:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=PATIENCE_S)
    return code, shown()


@contextmanager
def on_new_terminal(width: int) -> Iterator[tuple[int, Callable[[], str]]]:
    """A terminal that other processes write to, and that keeps what was written."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    output: list[bytes] = []
    # The terminal buffers only a few bytes: a writer blocks until they are read.
    reader = threading.Thread(target=lambda: output.extend(_pieces_from(ours)))
    reader.start()
    try:
        yield theirs, lambda: b"".join(output).decode("utf-8").replace("\r\n", "\n")
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)


def typed(folder: Path, *, strict: bool) -> tuple[str, ...]:
    """Options: a trace in which two jobs name a GPU type that the cluster does not have."""
    trace, cluster = folder / "typed.csv", folder / "typed.toml"
    rows = ("a,0,1,500,v100", "b,1,1,500,h100", "c,2,1,500,", "d,3,2,500,h100")
    header = "job_id,submit_time_s,num_gpus,duration_s,gpu_type"
    trace.write_text("\n".join((header, *rows)) + "\n")
    group = '[[group]]\nnodes = 2\ngpus = 2\ntype = "v100"\n'
    cluster.write_text(f"strict_types = {str(strict).lower()}\n{group}")
    return ("--trace", str(trace), "--cluster", str(cluster))


def _pieces_from(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            return
        if not piece:
            return
        yield piece


def error_of(result: Result) -> str:
    """Return the single line on standard error that every error has."""
    line: str = result.stderr
    assert line.startswith("tiresias-slurm: error: "), line
    assert line.count("\n") == 1, line
    assert line.endswith(".\n"), line
    return line.removeprefix("tiresias-slurm: error: ").rstrip("\n")
