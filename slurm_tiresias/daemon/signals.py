"""The controller's signals: stop, run a cycle now, and a file was created."""

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
    """Records whether this process was asked to stop (``asked``)."""

    def __init__(self) -> None:
        self.asked = False

    def catch(self, nudge: Callable[[], None] = lambda: None) -> None:
        """Make SIGTERM and SIGINT set ``asked``, and SIGUSR1 call ``nudge``."""

        def stop(_signal: int, _frame: FrameType | None) -> None:
            self.asked = True

        def look(_signal: int, _frame: FrameType | None) -> None:
            nudge()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGUSR1, look)


@contextmanager
def wakeups_by_signal() -> Iterator[socket.socket]:
    """Yield a socket that becomes readable when a signal arrives, so that a select wakes up."""
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
    """Have the kernel send SIGIO when a file is created in the folder of ``file``.

    This does nothing if the folder does not exist, nor on NFS, so callers must also poll.
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
