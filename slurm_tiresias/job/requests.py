"""What the job was asked for: to leave, or to save and go on.

Signals only set a flag: what is being saved is never torn by another signal. A launcher that would
end its processes on a signal (torchrun, after 30 s) is started by ``tiresias-job run`` instead,
which takes the signals itself and writes them into a file that the processes look at.

The controller asks a job that listens to save by SIGURG before it preempts it: a process that does
not handle that signal ignores it, so that it ends neither a shell nor a worker of the job.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType

FILE_VARIABLE = "TIRESIAS_REQUEST_FILE"
"""Names the file of ``tiresias-job run``: "save N" and "leave N" count its requests."""

LOOK_EVERY_S = 0.25
LEAVE_SIGNAL = signal.SIGTERM
SAVE_SIGNALS = (signal.SIGUSR1, signal.SIGURG)


class Requests:
    """The requests to this process; ``listen`` must have been called in its main thread."""

    def __init__(
        self, environment: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = environment.get(FILE_VARIABLE, "")
        self._clock = clock
        self._next_look_s = 0.0
        self._saves_seen = 0
        self._leave = False
        self._save = False
        self.asked_s: float | None = None
        """When the latest request came, by ``clock``."""
        self.listens = False
        self._takes_signals = False

    def listen(self) -> bool:
        """Take the signals from whatever had them; whether this could be done.

        Python lets only the main thread of a program do that.
        """
        if threading.current_thread() is not threading.main_thread():
            return False
        signal.signal(LEAVE_SIGNAL, self._asked_to_leave)
        for number in SAVE_SIGNALS:
            signal.signal(number, self._asked_to_save)
        self.listens = self._takes_signals = True
        return True

    @property
    def reach_it(self) -> bool:
        """Whether requests reach this process."""
        return self._takes_signals or self.by_wrapper

    @property
    def by_wrapper(self) -> bool:
        """Whether requests come from ``tiresias-job run``."""
        return bool(self._path)

    @property
    def leave(self) -> bool:
        """Whether the job is to save and end; it stays so."""
        self._look()
        return self._leave

    @property
    def save(self) -> bool:
        """Whether the job is to save, until ``saving_begins``."""
        self._look()
        return self._save or self._leave

    def saving_begins(self) -> None:
        """What is asked for from now on is not answered by the save that begins."""
        self._save = False

    def _asked_to_leave(self, _number: int, _frame: FrameType | None) -> None:
        self.asked_s = self._clock()
        self._leave = True

    def _asked_to_save(self, _number: int, _frame: FrameType | None) -> None:
        self.asked_s = self._clock()
        self._save = True

    def _look(self) -> None:
        if not self._path or self._clock() < self._next_look_s:
            return
        self._next_look_s = self._clock() + LOOK_EVERY_S
        saves, leaves = read(self._path)
        if saves > self._saves_seen or (leaves and not self._leave):
            self.asked_s = self._clock()
        self._save = self._save or saves > self._saves_seen
        self._saves_seen = saves
        self._leave = self._leave or leaves > 0


def read(path: str) -> tuple[int, int]:
    """How many requests to save and to leave a file holds; none where it cannot be read."""
    counts = {"save": 0, "leave": 0}
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0, 0
    with os.fdopen(descriptor, "rb") as file:
        for line in file.read(256).decode("ascii", "replace").splitlines():
            name, _, count = line.partition(" ")
            if name in counts and count.isdecimal():
                counts[name] = int(count)
    return counts["save"], counts["leave"]
