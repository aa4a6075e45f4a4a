"""How others reach a running controller: a control socket, and a file that says "look now".

A Unix stream socket in the state directory, mode 0600: only the controller's own user and root
can speak to it. One request is one line, a command and the time (of the machine's
monotonic clock) until which it is meant; the answer is one line of JSON: ``ok``, the
``mode`` it is in now, perhaps a ``text`` for people, or ``error`` with what went wrong.

slurmctld, in whose hooks nothing may wait, leaves a file instead, ``controller.nudge_file``.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

from slurm_tiresias.errors import NotRunningError, SlurmPermissionError

SOCKET_NAME = "control.sock"
COMMANDS = ("nudge", "pause", "resume", "release")
"""nudge: run a cycle now. pause: decide and publish, act no more. resume: act again.
release: pause, and give every managed job back to Slurm as it would have been."""


def send(state_dir: Path, command: str, timeout_s: float = 60.0) -> dict[str, Any]:
    """Send one of ``COMMANDS``; returns the controller's answer.

    Raises ``NotRunningError`` where no controller listens, ``SlurmPermissionError`` where this user
    may not speak to it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(state_dir / SOCKET_NAME))
            connection.sendall(request(command, timeout_s))
            with connection.makefile("r", encoding="utf-8") as answers:
                return _answer(answers.readline())
        except PermissionError as error:
            raise SlurmPermissionError(
                "This user may not command the controller",
                "Run this command as the user the controller runs as, or as root",
            ) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise NotRunningError(
                f"No controller answers in {state_dir} ({reason})",
                "Start it with: tiresias-slurm controller --config FILE, or name its config here",
            ) from error


def take_nudge(nudge_file: str) -> bool:
    """Whether a hook of Slurm's has left a nudge since this was last asked.

    Without the file's folder, which the service makes, there are none.
    """
    try:
        Path(nudge_file).unlink()
    except OSError:
        return False
    return True


def request(command: str, timeout_s: float) -> bytes:
    """A request says until when it is meant: its sender waits no longer."""
    return f"{command} {time.monotonic() + timeout_s:.3f}\n".encode()


def command_of(request: bytes) -> str:
    """The command of a request; empty for one that came too late or makes no sense."""
    command, _, until = request.decode("ascii", "replace").strip().partition(" ")
    try:
        in_time = time.monotonic() < float(until)
    except ValueError:
        return ""
    return command if in_time and command in COMMANDS else ""


def _answer(line: str) -> dict[str, Any]:
    answer = json.loads(line)
    if not isinstance(answer, dict):
        raise ValueError("not an answer")
    return answer
