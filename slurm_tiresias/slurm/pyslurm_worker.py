"""The process that imports pyslurm, so that no other has to (``pyslurm_process.py`` starts it).

Slurm's C library exits the process if it cannot read slurm.conf. If slurmctld does not answer, it
blocks with the interpreter lock held for as long as slurm.conf says, and if pyslurm was built for
another release it may crash. So it runs here, where it can be killed and restarted.

The process reads one request per line from standard input and writes one answer per line. It sends
only the jobs that have changed since the previous request.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import sys
import time
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, BinaryIO

from slurm_tiresias import json_codec
from slurm_tiresias.slurm.pyslurm_records import SeenJob

BUILT_FOR = "slurm-release"
"""The file in the package's metadata to which ``scripts/pyslurm`` writes the Slurm release that it
was built for. Without it, pyslurm's own version counts."""

Answer = dict[str, Any]

_OWN_FIELDS = tuple(name for name in SeenJob._fields if not name.startswith("tres_"))
_JOB = attrgetter(*_OWN_FIELDS)
_UNREADABLE = (UnicodeDecodeError, OverflowError)
"""Raised for users' text that is not UTF-8, and for the run time of a job that seems to start in
the future because this host's clock was set back."""


def main() -> None:
    """Send pyslurm's version, then answer requests until standard input is closed."""
    # Redirect what the binding prints to standard error, so that standard output has only answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import pyslurm

    worker = _Worker(pyslurm)
    _send(answers, _releases(pyslurm))
    for line in sys.stdin.buffer:
        _send(answers, worker.answer(json_codec.loads(line)))


def _releases(pyslurm: Any) -> Answer:
    """Return pyslurm's version, and the Slurm release that it was built for."""
    built_for = importlib.metadata.distribution("pyslurm").read_text(BUILT_FOR)
    return {"pyslurm": pyslurm.__version__, "built_for": (built_for or pyslurm.__version__).strip()}


def _send(answers: BinaryIO, answer: Answer) -> None:
    answers.write(json_codec.dumps(answer) + b"\n")
    answers.flush()


class _Worker:
    def __init__(self, pyslurm: Any) -> None:
        self._pyslurm = pyslurm
        self._jobs: dict[int, tuple[Any, ...]] = {}

    def answer(self, request: Mapping[str, Any]) -> Answer:
        try:
            return self._write(request) if "writes" in request else self._observe()
        except self._pyslurm.PyslurmError as error:
            return {"error": str(error)}

    def _observe(self) -> Answer:
        jobs = {job.id: _seen(job) for job in self._pyslurm.Jobs.load().values()}
        answer = {
            "jobs": [seen for job_id, seen in jobs.items() if self._jobs.get(job_id) != seen],
            "gone": list(self._jobs.keys() - jobs.keys()),
        }
        self._jobs = jobs
        return answer

    def _write(self, request: Mapping[str, Any]) -> Answer:
        """Change these jobs in order; return the index and message of each refused change."""
        _end_at(request["until_s"])
        said = [self._change(job_id, changes) for job_id, changes in request["writes"]]
        _end_at(None)
        return {"refused": [(place, words) for place, words in enumerate(said) if words]}

    def _change(self, job_id: int, changes: Mapping[str, Any]) -> str:
        try:
            self._pyslurm.Job(job_id).modify(self._pyslurm.JobSubmitDescription(**changes))
        except self._pyslurm.PyslurmError as error:
            return f"{error} for job {job_id}"
        return ""


def _seen(job: Any) -> tuple[Any, ...]:
    try:
        return (*_JOB(job), *_tres(job))
    except _UNREADABLE:
        return (*(_readable(job, name) for name in _OWN_FIELDS), *_tres(job))


def _readable(job: Any, name: str) -> Any:
    """Return one attribute of a job, or None if pyslurm cannot read it."""
    try:
        return getattr(job, name)
    except _UNREADABLE:
        return None


def _tres(job: Any) -> tuple[int | None, int | None, dict[str, int]]:
    """Return the nodes, memory in MiB and GRES that the job holds or, before that, requests."""
    tres = job.allocated_tres or job.requested_tres
    if tres is None:
        return None, None, {}
    gres = {name: one.count for name, one in tres.gres.items()}
    return _count(tres.node), _count(tres.mem), gres


def _count(one: Any) -> int | None:
    return one.count if one else None


def _end_at(until_s: float | None) -> None:
    """Have the kernel kill this process at that time (in ``CLOCK_BOOTTIME``); None cancels it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    left_s = 0.0
    if until_s is not None:
        left_s = until_s - time.clock_gettime(time.CLOCK_BOOTTIME)
        if left_s <= 0:
            signal.raise_signal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, left_s)


if __name__ == "__main__":
    main()
