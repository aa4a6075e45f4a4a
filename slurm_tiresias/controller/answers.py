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
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from slurm_tiresias import json_text
from slurm_tiresias.controller.ledger import Ledger
from slurm_tiresias.controller.published import answer_of
from slurm_tiresias.controller.succession import newest_ledger
from slurm_tiresias.errors import DamagedLedgerError, NotRunningError, TiresiasError

log = logging.getLogger("tiresias-slurm")

PATIENCE_S = 1.0
"""Who does not speak, or does not read its answer, keeps the others waiting no longer than this."""
SLOWEST_BYTES_PER_S = 10e6
"""A long answer may take that much longer."""

T = TypeVar("T")

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
                    answer = self._answer(connection)
                    connection.settimeout(PATIENCE_S + len(answer) / SLOWEST_BYTES_PER_S)
                    connection.sendall(answer)
                except OSError as error:
                    log.debug("somebody did not wait for the answer: %s", error)
                except TiresiasError as error:
                    log.warning("somebody could not be answered: %s", error)


def asked_or_read(
    state_dir: Path,
    socket_name: str,
    question: str,
    schema: int,
    made_of: Callable[[Mapping[str, Any]], T],
    read: Callable[[Ledger], T],
) -> T:
    """What a controller answers to a question; where none does, what its ledger says, as far as
    one may read that.

    ``made_of`` is given the answer's JSON and raises ``ValueError`` and the like where it is none.
    ``NotRunningError`` where there is neither a controller nor a ledger to be read.
    """
    path = state_dir / socket_name
    try:
        answer = answer_of(path, f"{question}\n".encode())
    except OSError as error:
        return _read_instead(state_dir, read, error)
    try:
        raw = json_text.loads(answer)
        if raw["schema"] != schema:
            raise ValueError("another schema")
        return made_of(raw)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotRunningError(
            f"What answers at {path} is not a controller of this version",
            "Restart the controller with the same version as this command",
        ) from error


def _read_instead(state_dir: Path, read: Callable[[Ledger], T], refusal: OSError) -> T:
    path = newest_ledger(state_dir)
    try:
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}")
        with closing(Ledger.to_read(path)) as ledger:
            return read(ledger)
    except DamagedLedgerError:
        raise
    except (OSError, TiresiasError) as error:
        raise NotRunningError(
            f"No controller answers in {state_dir} ({refusal.strerror or refusal})",
            "Start it with: tiresias-slurm controller --config FILE, or name its config here",
        ) from error


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
