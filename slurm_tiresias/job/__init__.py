"""For programs that run in a Slurm job: report progress, save when asked to, and resume.

    from slurm_tiresias import job

    for step in job.steps(10_000, save, done=load()):
        train(step)

``steps`` is all that most programs need. ``report``, ``save_due``, ``leaving``, ``saved`` and
``resumed`` are its parts, for loops of another shape; ``writing`` writes checkpoint files. Needs
only the standard library of Python 3.9. Outside of a managed job everything still works, and
reports are discarded.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 9):  # noqa: UP036 - says so to older ones
    raise ImportError("slurm_tiresias.job needs Python 3.9 or later.")

from slurm_tiresias.job.files import writing
from slurm_tiresias.job.session import LEFT, Session

__all__ = [
    "LEFT",
    "busy",
    "done",
    "leave",
    "leaving",
    "listen",
    "report",
    "resumed",
    "save_due",
    "saved",
    "saves_every",
    "saving",
    "session",
    "steps",
    "stop",
    "waiting",
    "writing",
]

session = Session()
"""The session of this program."""

busy = session.busy
done = session.done
leave = session.leave
leaving = session.leaving
listen = session.listen
report = session.report
resumed = session.resumed
save_due = session.save_due
saved = session.saved
saves_every = session.saves_every
saving = session.saving
steps = session.steps
stop = session.stop
waiting = session.waiting
