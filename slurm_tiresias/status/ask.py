"""Ask the controller that acts on this host.

A request is a line: a name and perhaps a text. The answer is one JSON object, and the socket says
to the controller which user asks (``server.py``).
"""

from __future__ import annotations

import errno
import math
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from slurm_tiresias import errors, json_codec
from slurm_tiresias.errors import NotRunningError, TiresiasError

SOCKET_NAME = "tiresias.sock"
COMMANDS = ("nudge", "pause", "resume", "hand-back", "boost", "clear-node")
"""Requests of root and the controller's user. nudge: run a cycle now. pause: decide and publish,
but do not act. resume: act again. hand-back: pause, and hand every managed job back to Slurm as if
it had not been managed. ``hand-back ID`` hands one job back, until ``resume ID``.
``boost ID TIME``: let a job go first, and not be preempted, until a time in seconds since the
epoch. clear-node NAME: clear a node of suspicion."""
COMMAND_SCHEMA = 1

ANSWER_S = 15.0
"""How long a client waits for each part of an answer."""
COMMAND_S = 60.0

START_IT = "Start it (systemctl start tiresias-slurm), or name its configuration with --config"

T = TypeVar("T")


def ask(
    state_dir: Path,
    request: str,
    schema: int,
    parse: Callable[[Mapping[str, Any]], T],
    answer_s: float | None = None,
) -> T:
    """Ask the controller; return what ``parse`` makes of the answer.

    Raises ``NotRunningError`` if none answers, and the error with which the controller refuses.
    """
    try:
        text = answer_of(state_dir, request, ANSWER_S if answer_s is None else answer_s)
    except OSError as error:
        raise NotRunningError(
            f"No controller answers in {state_dir} on this host ({error.strerror or error})",
            START_IT,
        ) from error
    try:
        raw = json_codec.loads(text)
        if refused := raw.get("refused"):
            what, remedy, exit_code = refused
            raise _error_class(exit_code)(str(what), str(remedy))
        if raw["schema"] == schema:
            return parse(raw)
        raise ValueError("another schema")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotRunningError(
            f"What answers at {state_dir / SOCKET_NAME} is not a controller of this version",
            "Restart the controller with the same version as this command",
        ) from error


def command(state_dir: Path, request: str) -> Mapping[str, Any]:
    """Send one of ``COMMANDS``; return the ``mode`` of the controller, and perhaps a ``text``."""
    return ask(state_dir, request, COMMAND_SCHEMA, lambda raw: raw, COMMAND_S)


def answer_of(state_dir: Path, request: str, answer_s: float = ANSWER_S) -> bytes:
    """Return the whole answer to a request, unchecked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        # While many others connect, a blocking call waits; one with a timeout fails at once.
        patience = struct.pack("ll", math.ceil(answer_s), 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        connection.connect(str(state_dir / SOCKET_NAME))
        connection.settimeout(answer_s)
        # The controller may have refused and disconnected already.
        with suppress(BrokenPipeError):
            connection.sendall(f"{request}\n".encode())
        with connection.makefile("rb") as answer:
            text = answer.read()
    if not text.endswith(b"\n"):
        raise ConnectionResetError(errno.ECONNRESET, "it disconnected before the end of its answer")
    return text


def _error_class(exit_code: object) -> type[TiresiasError]:
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type))
    ours = (kind for kind in kinds if issubclass(kind, TiresiasError))
    return next((kind for kind in ours if kind.exit_code == exit_code), TiresiasError)
