"""The signals of the controller: stop, look now, and a file has come."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType


class Stop:
    """Whether this process has been asked to stop."""

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


@contextmanager
def signalled_when_made(file: str) -> Iterator[None]:
    """The kernel sends SIGIO when a file is made in the folder of this one.

    Not where there is no such folder, and not on NFS: a caller looks now and then all the same.
    """
    signal.signal(signal.SIGIO, lambda _signal, _frame: None)  # by default it ends the process
    try:
        folder = str(Path(file).parent) if file else ""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_NOTIFY, fcntl.DN_CREATE | fcntl.DN_MULTISHOT)
        yield
    finally:
        os.close(descriptor)
