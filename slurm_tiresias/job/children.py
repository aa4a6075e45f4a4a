"""Processes that the program forks, such as the workers of ``multiprocessing``.

Slurm may send SIGTERM to all processes of a job, and without its workers the program could not
finish the step after which it saves. So a child survives one SIGTERM that its parent has not sent
with ``Process.terminate``. A handler of Python does not learn who sent a signal: ``terminate``
leaves a mark in shared memory before.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

GRACE_S = 30.0
"""How long a child lives after a SIGTERM that only it got. Its sender, such as a parent that uses
``os.kill``, may be waiting for its end."""

AGAIN_S = 0.05
"""How often a child whose parent waits for its end gets the signal of ``terminate`` again."""

_SLOTS = 1 << 16
_TOLD = 0
"""The slot that says whether the whole job was told to leave; the others are by process id."""

_marks: memoryview | None = None
_forks = 0
"""Which fork of its ancestors this process comes from. A mark is the number of forks when it was
made, so one that was made for an earlier process of the same id is lower."""


def before_fork() -> None:
    """Prepare the parent: its ``Process.terminate`` is to end the child."""
    global _marks, _forks
    _forks += 1
    if _marks is None:
        from mmap import mmap

        _marks = memoryview(mmap(-1, 8 * _SLOTS)).cast("Q")
    module = sys.modules.get("multiprocessing.popen_fork")
    if module is not None and not hasattr(module.Popen.terminate, "marks"):
        _mark_in(module.Popen)


def _mark_in(popen: Any) -> None:
    terminate, wait = popen.terminate, popen.wait

    def marked(child: Any) -> None:
        if _marks is not None:
            _marks[_slot(child.pid)] = _forks
        child.is_marked = True
        terminate(child)

    def repeated(child: Any, timeout: float | None = None) -> Any:
        # Python runs no handler if the signal comes just before a system call that blocks.
        again = timeout is None and hasattr(child, "is_marked")
        while again and child.poll() is None:
            terminate(child)
            time.sleep(AGAIN_S)
        return wait(child, timeout)

    marked.marks = True  # type: ignore[attr-defined]
    popen.terminate, popen.wait = marked, repeated


def job_is_told_to_leave() -> None:
    """Note it for the children: they live on until Slurm's SIGKILL."""
    if _marks is not None:
        _marks[_TOLD] = 1


def survive_one(_number: int, _frame: FrameType | None) -> None:
    """The handler of SIGTERM in a child."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if _is_marked():
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        # Not threading: its locks may be held by the code that the signal has interrupted.
        _thread.start_new_thread(_end_if_it_was_alone, ())


def _is_marked() -> bool:
    return _marks is not None and _marks[_slot(os.getpid())] >= _forks > 0


def _end_if_it_was_alone() -> None:
    time.sleep(GRACE_S)
    if _marks is None or not _marks[_TOLD]:
        os.kill(os.getpid(), signal.SIGTERM)


def _slot(process: int) -> int:
    return 1 + process % (_SLOTS - 1)
