"""Runs something again and again in a thread of its own, such as reading a shared file system."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("tiresias-slurm")


class Background:
    """Calls ``step`` every so many seconds, in its own thread once started.

    What may hang belongs here: the thread then waits, and the program goes on without news. It ends
    with the program, in whatever it is doing. ``step`` handles its own errors; one that it does not
    handle is logged, and the next call comes all the same.
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
        """Begin no further step. Does not wait for one that is under way."""
        self._stop.set()
        self._soon.set()

    def step_soon(self, gap_s: float) -> None:
        """Begin the next step ``gap_s`` after the last one, or at once if that is over."""
        self._least_gap_s = gap_s
        self._soon.set()

    def step_unless_started(self) -> None:
        """Do one step here and now where there is no thread, as in tests."""
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
    """Run these in their threads until the context ends."""
    for one in all_of:
        one.start()
    try:
        yield
    finally:
        for one in all_of:
            one.stop()
