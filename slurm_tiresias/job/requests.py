"""Requests to the job: to leave, or to save and continue.

Signals only set a flag, so that no signal interrupts a save. A launcher that would end its
processes on a signal (torchrun, after 30 s) is started by ``tiresias-job run``, which handles the
signals itself and writes them into a file that the processes read.

Before it preempts a job that listens, the controller asks it to save by SIGURG: processes that do
not handle this signal ignore it, so it ends neither a shell nor a worker of the job.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from slurm_tiresias.job import children

FILE_VARIABLE = "TIRESIAS_REQUEST_FILE"
"""The variable with the file of ``tiresias-job run``, in which "save N" and "leave N" count
requests."""

LOOK_EVERY_S = 0.25
LEAVE_SIGNAL = signal.SIGTERM
SAVE_SIGNALS = (signal.SIGUSR1, signal.SIGURG)
DUMP_SIGNAL = signal.SIGWINCH
"""Makes a program print the stacks of all of its threads. Like SIGURG, processes that do not handle
it ignore it."""

_SIGNALS = (LEAVE_SIGNAL, *SAVE_SIGNALS)

_forks_are_watched = False


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
        """When the last request was received, by the clock; None before the first."""
        self.listens = False
        self._takes_signals = False
        self.replaced: dict[int, Any] = {}
        """The handlers of the program that its own replace, by signal."""

    def listen(self) -> bool:
        """Install the signal handlers; return whether that was possible."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self._replace(LEAVE_SIGNAL, self._asked_to_leave)
        for number in SAVE_SIGNALS:
            self._replace(number, self._asked_to_save)
        if self.by_wrapper:
            # The launcher may have been started with them blocked, which its children inherit.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        self.listens = self._takes_signals = True
        watch_forks()
        return True

    def release(self, number: int, runs_handlers: bool) -> None:
        """Handle a signal as if the library did not listen, but survive what Slurm sends to all
        processes of a job; for a child of the program.

        ``runs_handlers``: whether Python calls handlers in it.
        """
        self.listens = self._takes_signals = False
        earlier = self.replaced[number]
        if earlier not in (signal.SIG_DFL, None):
            signal.signal(number, earlier)
        elif number != LEAVE_SIGNAL:
            signal.signal(number, _ignore)
        elif runs_handlers:
            signal.signal(number, children.survive_one)
        else:
            signal.signal(number, signal.SIG_DFL)

    def _replace(self, number: int, handler: Callable[[int, FrameType | None], None]) -> None:
        earlier = signal.signal(number, handler)
        if _listener(earlier) is None and earlier not in (children.survive_one, _ignore):
            self.replaced[number] = earlier
        else:
            self.replaced.setdefault(number, signal.SIG_DFL)

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
        """Whether the job must save and exit; once true, it stays true."""
        self._look()
        return self._leave

    @property
    def save(self) -> bool:
        """Whether the job must save; reset by ``saving_begins``."""
        self._look()
        return self._save or self._leave

    def saving_begins(self) -> None:
        """Note that a save begins: it does not answer requests that come later."""
        self._save = False

    def _asked_to_leave(self, _number: int, _frame: FrameType | None) -> None:
        self.asked_s = self._clock()
        self._leave = True
        children.job_is_told_to_leave()

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


def _listener(handler: Any) -> Requests | None:
    """Whose handler this is; None if it is not one of this module's."""
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, Requests) else None


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Unlike SIG_IGN, a handler is not inherited by the programs that a child starts."""


def dump_stacks_on_signal() -> bool:
    """Print the stacks of this process to stderr on ``DUMP_SIGNAL``, even if it hangs in a call of
    a library; return whether that was possible."""
    try:
        import faulthandler

        faulthandler.register(DUMP_SIGNAL, chain=True)
    except (ImportError, AttributeError, OSError, RuntimeError, ValueError):
        return False  # for example, stderr is no file
    return True


def watch_forks() -> None:
    """From now on make the processes that the program forks survive one SIGTERM."""
    global _forks_are_watched
    if not _forks_are_watched:
        _forks_are_watched = True
        os.register_at_fork(
            before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
        )


_masks: dict[int, set[int]] = {}
"""The signal masks of threads that are about to fork."""

_main_thread: int | None = None
"""The main thread of the process that forks; in the child, its only thread is the main one."""


def _before_fork() -> None:
    global _main_thread
    _main_thread = threading.main_thread().ident
    children.before_fork()
    # Python drops signals that a child gets before its hooks have run.
    _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.pop(threading.get_ident()))


def _after_fork_in_child() -> None:
    # In Python 3.13.0 handlers are never called in a child of another thread.
    runs_handlers = sys.version_info < (3, 13) or _main_thread == threading.get_ident()
    for number in _SIGNALS:
        listener = _listener(signal.getsignal(number))
        if listener is not None:
            listener.release(number, runs_handlers)
    _after_fork()


def read(path: str) -> tuple[int, int]:
    """The numbers of save and leave requests in a file; zero if it cannot be read."""
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
