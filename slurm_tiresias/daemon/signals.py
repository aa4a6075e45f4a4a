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


class Wakeups:
    """Ends a wait when a signal arrives, or when another thread calls ``wake``."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)

    def __enter__(self) -> Wakeups:
        self._previous = signal.set_wakeup_fd(self._writer.fileno())
        return self

    def __exit__(self, *_exception: object) -> None:
        signal.set_wakeup_fd(self._previous)
        self._reader.close()
        self._writer.close()

    def wake(self) -> None:
        with suppress(OSError):
            self._writer.send(b"x")

    def wait(self, seconds: float) -> bool:
        """Wait for at most this long; return whether the wait was ended."""
        self._reader.settimeout(seconds)
        try:
            self._reader.recv(4096)
        except (TimeoutError, BlockingIOError):
            return False
        return True


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


def take_nudge(nudge_file: str) -> bool:
    """Remove the nudge file; return whether a hook of Slurm had created it since the last call.

    Hooks of slurmctld must not wait, so they create a file instead of asking the controller.
    """
    try:
        Path(nudge_file).unlink()
    except OSError:
        return False
    return True
