"""The controller's side of the process of forecasts."""

from __future__ import annotations

import itertools
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from slurm_tiresias.forecast.forecaster import Picture
from slurm_tiresias.forecast.futures import Present
from slurm_tiresias.forecast.sooner import Answer, Asked
from slurm_tiresias.settings import Config

PICTURE_EVERY_S = 60.0
"""How often a picture is made at most."""

TIMES_AS_LONG = 10.0
"""After how many times as long as the last picture took the next one is made."""

LONGEST_S = 600.0
"""If a picture takes longer, the next one is asked for all the same."""

ENDS_WITHIN_S = 2.0
_PACKAGE_IN = str(Path(__file__).resolve().parents[2])


class ForecastProcess:
    """Starts the process when there is something to forecast, and again if it has died."""

    def __init__(self, config: Config, ledger: Path) -> None:
        self._begins_with = pickle.dumps((config, ledger))
        self.picture: Picture | None = None
        """The last picture."""
        self._took_s = 0.0
        self._offered_s = -LONGEST_S
        self._offered_at_s = 0.0
        self._to_send: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._connection: Connection | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        self._asked: dict[int, Future[list[Answer]]] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve until the context exits."""
        sender = threading.Thread(target=self._send_all, name="forecasts", daemon=True)
        sender.start()
        try:
            yield
        finally:
            self._to_send.put(None)
            sender.join(ENDS_WITHIN_S)

    @property
    def is_due(self) -> bool:
        """Whether to offer the present."""
        waits_s = LONGEST_S
        if self._has_answered:
            waits_s = max(PICTURE_EVERY_S, TIMES_AS_LONG * self._took_s)
        return time.monotonic() - self._offered_s >= waits_s

    @property
    def _has_answered(self) -> bool:
        return self.picture is not None and self.picture.made_s >= self._offered_at_s

    def offer(self, at: Present) -> None:
        """Have a picture of this present made."""
        self._offered_s, self._offered_at_s = time.monotonic(), at.now_s
        # Here, and not in another thread: the jobs change in the next cycle.
        self._to_send.put(pickle.dumps(at, pickle.HIGHEST_PROTOCOL))

    def ask(self, about: str | Asked, most_s: float) -> list[Answer]:
        """Return when a job would start; empty if that is not known."""
        number = next(self._numbers)
        answer = self._asked[number] = Future()
        self._to_send.put(pickle.dumps((number, about)))
        try:
            return answer.result(most_s)
        except TimeoutError:
            return []
        finally:
            self._asked.pop(number, None)

    def _send_all(self) -> None:
        while (message := self._to_send.get()) is not None:
            try:
                if self._connection is None:
                    self._connection = self._started()
                self._connection.send_bytes(message)
            except OSError:
                self._end()
        self._end()

    def _started(self) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                (sys.executable, "-m", "slurm_tiresias.forecast", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": _PACKAGE_IN},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        connection = Connection(ours.detach())
        connection.send_bytes(self._begins_with)
        threading.Thread(target=self._read, args=(connection,), daemon=True).start()
        return connection

    def _read(self, connection: Connection) -> None:
        with suppress(EOFError, OSError):
            while True:
                told = connection.recv()
                if isinstance(told, Picture):
                    self._took_s = time.monotonic() - self._offered_s
                    self.picture = told
                elif answer := self._asked.pop(told[0], None):
                    answer.set_result(told[1])

    def _end(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None
        if self._child:
            self._child.kill()
            self._child.wait()
            self._child = None
