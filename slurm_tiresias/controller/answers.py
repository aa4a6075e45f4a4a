"""A Unix socket that anybody on the host may ask: one answer for each connection.

It is served from a thread of its own, so however many ask, no cycle waits for them; and the kernel
says who asks.
"""

from __future__ import annotations

import logging
import os
import pwd
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_tiresias.errors import TiresiasError

log = logging.getLogger("tiresias-slurm")

PATIENCE_S = 1.0
"""Who does not speak, or does not read its answer, keeps the others waiting no longer than this."""

_CREDENTIALS = struct.Struct("3i")
"""What ``SO_PEERCRED`` gives: pid, uid, gid."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The user at the other end. ``name`` is as Slurm has it too; empty for one that this host
    does not know."""

    uid: int
    name: str

    @property
    def sees_everything(self) -> bool:
        """Whether it is root or the controller's own user."""
        return self.uid in (0, os.geteuid())


class Answers:
    """Answers whoever connects, until it is closed."""

    def __init__(self, path: Path, answer: Callable[[socket.socket], bytes]) -> None:
        """``answer`` makes the whole answer for a connection; it may raise ``OSError`` or
        ``TiresiasError`` where there is none."""
        self._path = path
        self._answer = answer
        self._closing = False

    @contextmanager
    def open(self) -> Iterator[None]:
        """Answer until the end of the block."""
        self._path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(self._path))
            self._path.chmod(0o666)
            listener.listen(64)
            threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
            try:
                yield
            finally:
                # The thread waits in accept(), which close() does not end.
                self._closing = True
                listener.shutdown(socket.SHUT_RDWR)
                self._path.unlink(missing_ok=True)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if self._closing:
                    return
                log.warning("users are not answered at %s for a moment: %s", self._path, error)
                time.sleep(PATIENCE_S)
                continue
            with connection:
                try:
                    connection.settimeout(PATIENCE_S)
                    connection.sendall(self._answer(connection))
                except OSError as error:
                    log.debug("somebody did not wait for the answer: %s", error)
                except TiresiasError as error:
                    log.warning("somebody could not be answered: %s", error)


def peer_of(connection: socket.socket) -> Peer:
    """Who is connected, by the word of the kernel."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(uid, _name_of(uid))


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
