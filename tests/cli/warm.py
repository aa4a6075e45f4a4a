"""Run the program in separate processes without its start-up time: a process that has loaded
everything forks for every call.

The fork inherits what the interpreter fixed at its start, such as the encoding of its output: use a
separate ``Warm`` for each such setting.
"""

from __future__ import annotations

import codecs
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.running import ROOT, on_new_terminal

LONGEST_S = 120
MOST_BYTES = 1 << 16
NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended; ``stdout`` is empty if it was redirected."""

    code: int
    stdout: str
    stderr: str


class Warm:
    """Calls the program in forks of one process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def call(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        stdout: int | None = None,
        closed: bool = False,
        as_nobody: bool = False,
    ) -> Ended:
        """Call it in this folder. ``stdout``: a file for the output; ``closed``: no standard
        output."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            files = [out.fileno() if stdout is None else stdout, err.fileno()]
            code = self._asked(arguments, environment, folder, files, closed, as_nobody)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode("utf-8", "backslashreplace"))
        return Ended(code, *texts)

    def on_terminal(
        self, width: int, arguments: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> Ended:
        """Call it on a terminal that is ``width`` cells wide; standard error goes there too."""
        with on_new_terminal(width) as (theirs, shown):
            code = self._asked(arguments, environment, folder, [theirs, theirs], False, False)
        return Ended(code, shown(), "")

    def _asked(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        files: Sequence[int],
        closed: bool,
        as_nobody: bool,
    ) -> int:
        asked = {
            "arguments": arguments,
            "environment": dict(environment),
            "folder": str(folder),
            "closed": closed,
            "as_nobody": as_nobody,
        }
        socket.send_fds(self._connection, [json.dumps(asked).encode()], files)
        code: int = json.loads(self._connection.recv(MOST_BYTES))
        return code


@contextmanager
def warm(environment: Mapping[str, str], checkout: Path = ROOT) -> Iterator[Warm]:
    """Start a process with this environment and the program of this checkout."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = (sys.executable, "-m", "tests.cli.warm", str(theirs.fileno()))
    with ours:
        with theirs:
            process = subprocess.Popen(
                command, cwd=checkout, env=environment, pass_fds=[theirs.fileno()]
            )
        ours.settimeout(2 * LONGEST_S)
        try:
            yield Warm(ours)
        finally:
            ours.close()
            process.wait(timeout=2 * LONGEST_S)


def _serve(connection: socket.socket) -> None:
    """Fork for each call until the other end is closed; run the program in the fork."""
    while True:
        asked, files, _, _ = socket.recv_fds(connection, MOST_BYTES, 2)
        if not asked:
            return
        child = os.fork()
        if child == 0:
            connection.close()
            _be_the_program(json.loads(asked), files)
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        connection.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())


def _be_the_program(asked: Mapping[str, Any], files: Sequence[int]) -> None:
    from slurm_tiresias.cli.main import main

    signal.alarm(LONGEST_S)
    out, err = files
    if asked["closed"]:
        os.close(1)
        sys.stdout = sys.__stdout__ = None  # type: ignore[misc]
    else:
        os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, max(files) + 1)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    if asked["as_nobody"]:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    sys.argv = ["tiresias-slurm", *asked["arguments"]]
    main()


def _load_everything() -> None:
    import click
    import rich.live  # noqa: F401

    import slurm_tiresias.controller.run  # noqa: F401
    from slurm_tiresias.cli.main import cli

    # Another user may be unable to reach modules that Python would load later.
    codecs.lookup("utf-8-sig")
    context = click.Context(cli)
    for name in cli.list_commands(context):
        cli.get_command(context, name)


if __name__ == "__main__":
    _load_everything()
    gc.freeze()  # existing objects are not scanned at the end of each fork
    _serve(socket.socket(fileno=int(sys.argv[1])))
