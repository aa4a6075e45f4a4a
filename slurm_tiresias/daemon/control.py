"""Send commands to a running controller: through a control socket, or a nudge file.

The Unix stream socket is in the state directory, with mode 0600: only the controller's user and
root can connect. A request is one line: a command and its expiry time (of the machine's monotonic
clock). The answer is one line of JSON: ``ok``, the current ``mode``, perhaps a ``text`` for people,
or ``error`` with the reason.

Hooks of slurmctld must not wait, so they create a file instead, ``controller.nudge_file``.
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
"""nudge: run a cycle now. pause: decide and publish, but do not act. resume: act again.
release: pause, and hand every managed job back to Slurm as if it had not been managed."""


def send(state_dir: Path, command: str, timeout_s: float = 60.0) -> dict[str, Any]:
    """Send one of ``COMMANDS``; return the controller's answer.

    Raises ``NotRunningError`` if no controller listens, ``SlurmPermissionError`` if this user may
    not connect to it.
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
                "This user may not control the controller",
                "Run this command as the user the controller runs as, or as root",
            ) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise NotRunningError(
                f"No controller answers in {state_dir} ({reason})",
                "Start it with: tiresias-slurm controller --config FILE, or name its configuration "
                "here",
            ) from error


def take_nudge(nudge_file: str) -> bool:
    """Remove the nudge file; return whether a hook of Slurm had created it since the last call."""
    try:
        Path(nudge_file).unlink()
    except OSError:
        return False
    return True


def request(command: str, timeout_s: float) -> bytes:
    """Return a request that expires when its sender stops waiting."""
    return f"{command} {time.monotonic() + timeout_s:.3f}\n".encode()


def command_of(request: bytes) -> str:
    """Return the command of a request; "" if it has expired or is malformed."""
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
