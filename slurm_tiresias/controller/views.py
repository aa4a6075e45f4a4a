"""Where Slurm keeps jobs private, what each user sees of the published state.

``PrivateData=jobs`` in slurm.conf hides a user's jobs from all others but operators. The published
state is then the controller's own file, and users ask a socket beside it. Nothing is read from
them: the kernel says who has connected, and what that user may see is the answer.
"""

from __future__ import annotations

import logging
import os
import pwd
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from slurm_tiresias.controller.published import VIEW_NAME, PublishedState, text_of

log = logging.getLogger("tiresias-slurm")

SEND_S = 1.0
"""Who does not read its answer keeps the others waiting no longer than this."""

_CREDENTIALS = struct.Struct("3i")
"""What ``SO_PEERCRED`` gives: pid, uid, gid."""


def seen_by(state: PublishedState, user: str) -> PublishedState:
    """The state with the jobs of this user only, and what happened to them.

    Sums over all jobs stay, and so do the bare ids of jobs that one of the user's makes room for
    or waits for.
    """
    mine = {job.job_id for job in state.jobs if user and job.user == user}
    return replace(
        state,
        jobs=tuple(job for job in state.jobs if job.job_id in mine),
        events=tuple(e for e in state.events if e.job_id in mine or e.other in mine),
        only_of=user or "nobody",
    )


class Views:
    """Answers users from a thread of its own: however many ask, no cycle waits for them."""

    def __init__(self, state_dir: Path, state: PublishedState) -> None:
        self._path = state_dir / VIEW_NAME
        self._closing = False
        self.show(state)

    def show(self, state: PublishedState) -> None:
        """From now on answer from this state. Beside it are kept the answers to those who have
        asked since, by uid."""
        self._shown: tuple[PublishedState, dict[int, bytes]] = state, {}

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
                log.warning("users cannot be shown their jobs for a moment: %s", error)
                time.sleep(SEND_S)
                continue
            with connection:
                try:
                    connection.settimeout(SEND_S)
                    connection.sendall(self._text_for(_uid_of(connection)))
                except OSError as error:
                    log.debug("somebody did not wait for the state: %s", error)

    def _text_for(self, uid: int) -> bytes:
        state, texts = self._shown
        if uid not in texts:
            seen = state if uid in (0, os.geteuid()) else seen_by(state, _name_of(uid))
            texts[uid] = text_of(seen)
        return texts[uid]


def _uid_of(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return int(uid)


def _name_of(uid: int) -> str:
    """The user's name, as Slurm has it too; empty for one that this host does not know."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
