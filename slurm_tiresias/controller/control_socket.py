"""The controller's side of the control socket (``daemon/control.py`` has the other)."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm_tiresias.daemon.control import SOCKET_NAME, command_of
from slurm_tiresias.errors import ConfigError, TiresiasError
from slurm_tiresias.status.answers import Peer, peer_of, removed_afterwards

log = logging.getLogger("tiresias-slurm")

READ_REQUEST_S = 1.0


@contextmanager
def control_socket(state_dir: Path) -> Iterator[socket.socket]:
    path = state_dir / SOCKET_NAME
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        previous = os.umask(0o177)
        try:
            listener.bind(str(path))
        except OSError as error:
            raise ConfigError(
                f"The control socket {path} cannot be made: {error}",
                "Give controller.state_dir a path of less than 90 characters on a local disk",
            ) from error
        finally:
            os.umask(previous)
        listener.listen(8)
        with removed_afterwards(path):
            yield listener


def serve(listener: socket.socket, obey: Callable[[str, Peer], dict[str, Any]]) -> None:
    """Answer one request. ``obey`` carries a command out, and returns what is answered."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(READ_REQUEST_S)
        try:
            command = command_of(connection.recv(64))
            answer = answer_to(command, peer_of(connection), obey)
            connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError as error:
            log.warning("a request on the control socket was incomplete: %s", error)


def answer_to(
    command: str, who: Peer, obey: Callable[[str, Peer], dict[str, Any]]
) -> dict[str, Any]:
    """Return the answer to a command; "" stands for one that is not known or has expired."""
    if not command:
        return {"ok": False, "error": "That is no command, or it came too late"}
    try:
        return {"ok": True, **obey(command, who)}
    except TiresiasError as error:
        return {"ok": False, "error": str(error), "exit_code": error.exit_code}
