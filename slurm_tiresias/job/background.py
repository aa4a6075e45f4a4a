"""Commands that run beside the program, without delaying its steps."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping

_DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGPIPE)


class BackgroundCommand:
    """A command that shares no standard stream with the program.

    It has its own process group, so signals to the program's group do not reach it. Started by
    ``posix_spawn``, which does not copy the page tables of a program with much memory.

    Parameters
    ----------
    command
        The first word is a path.
    output
        The descriptor for its output; None: discard it.

    Raises
    ------
    OSError
        If it cannot be started.
    """

    def __init__(
        self, command: list[str], environment: Mapping[str, str], output: int | None = None
    ) -> None:
        self._code: int | None = None
        to_output = (
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
            if output is None
            else (os.POSIX_SPAWN_DUP2, output, 1)
        )
        self._pid = os.posix_spawn(
            command[0],
            command,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                to_output,
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setpgroup=0,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
        )

    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        if self._code is None:
            try:
                ended, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:
                # The program itself waits for all of its children, so the exit code is lost; 0 is
                # the best guess.
                self._code = 0
            else:
                self._code = _exit_code(status) if ended else None
        return self._code

    def kill(self) -> None:
        """Kill it. A later ``poll`` shows when it has ended."""
        if self.poll() is None:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)


def _exit_code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
