"""The signals of the controller: stop, and look now."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody has asked this process to stop."""

    def __init__(self) -> None:
        self.asked = False

    def catch(self, nudge: Callable[[], None] = lambda: None) -> None:
        """From now on SIGTERM and SIGINT ask to stop, and SIGUSR1 calls ``nudge``."""

        def stop(_signal: int, _frame: FrameType | None) -> None:
            self.asked = True

        def look(_signal: int, _frame: FrameType | None) -> None:
            nudge()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGUSR1, look)


@contextmanager
def wakeups_by_signal() -> Iterator[socket.socket]:
    """A socket that becomes readable when a signal arrives, so that none is slept through."""
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        previous = signal.set_wakeup_fd(writer.fileno())
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(previous)
