"""Run something repeatedly in a separate thread, such as reading a shared file system."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("tiresias-slurm")


class Background:
    """Calls ``step`` at a fixed interval, in its own thread once started.

    It is for work that may hang: then only this thread waits, and the program continues with old
    data. The thread is a daemon: it ends with the program, even in the middle of a step. ``step``
    handles its own errors; an unhandled one is logged, and the next call follows as usual.
    """

    def __init__(self, name: str, step: Callable[[], None], every_s: float) -> None:
        self._name = name
        self._step = step
        self._every_s = every_s
        self._stop = threading.Event()
        self._soon = threading.Event()
        self._least_gap_s = 0.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Start no further step. Does not wait for a step that is under way."""
        self._stop.set()
        self._soon.set()

    def step_soon(self, gap_s: float) -> None:
        """Begin the next step ``gap_s`` after the last one, or at once if that is over."""
        self._least_gap_s = gap_s
        self._soon.set()

    def step_unless_started(self) -> None:
        """Run one step in the calling thread if the thread was not started, as in tests."""
        if self._thread is None:
            self._step()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except Exception:
                log.exception("%s failed", self._name)
            if self._soon.wait(self._every_s):
                self._soon.clear()
                self._stop.wait(self._least_gap_s)


@contextmanager
def running(*all_of: Background) -> Iterator[None]:
    """Run these in their threads until the context exits."""
    for one in all_of:
        one.start()
    try:
        yield
    finally:
        for one in all_of:
            one.stop()
