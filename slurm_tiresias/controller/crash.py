"""When a cycle fails of an error of this program: what is kept of it, and which job caused it."""

from __future__ import annotations

import dataclasses
import enum
import gzip
import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_tiresias import __version__
from slurm_tiresias.model import JobAccount, JobStatus, JobView, Snapshot
from slurm_tiresias.slurm.protocol import Observation

MOST_REPORTS = 5
"""The latest ones; what a cycle saw of 10,000 jobs takes half a megabyte."""
REPORTS = "error-*.json.gz"

MOST_LEFT_ALONE = 20
"""Jobs that are left alone at once: with more it is not the jobs."""
LONGEST_SEARCH_S = 30.0
"""With 10,000 jobs it takes fifteen decisions, two seconds, to find one."""


def signature(error: BaseException) -> str:
    """What tells one error from another: its kind and the line where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{where}"


def write_report(state_dir: Path, error: BaseException, seen: Observation | None) -> Path:
    """Keep an error with what the cycle saw, for the controller's user only; raises ``OSError``.

    The oldest report makes room where there are ``MOST_REPORTS``.
    """
    report = {
        "version": __version__,
        "at_s": time.time(),
        "traceback": traceback.format_exception(error),
        "seen": seen,
    }
    stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{time.time_ns() % 10**9:09d}"
    path = state_dir / f"error-{stamp}.json.gz"
    for old in sorted(state_dir.glob(REPORTS))[: -(MOST_REPORTS - 1)]:
        old.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        text = json.dumps(report, default=_plain, skipkeys=True)
        file.write(gzip.compress(text.encode(), compresslevel=1))
    return path


def _plain(value: Any) -> object:
    """What JSON has no word for."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    return repr(value)


def job_in_hand(error: BaseException) -> str:
    """The job that the code was at work on when it failed, by its variables; "" for none."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in frame.f_locals.values():
            if isinstance(value, JobStatus | JobAccount):
                return value.key
            if isinstance(value, JobView):
                return value.job_id
    return ""


def culprits(
    snapshot: Snapshot, decide: Callable[[Snapshot], object], meanwhile: Callable[[], None]
) -> frozenset[str]:
    """The managed jobs without which a decision that fails succeeds; empty where there are none.

    One after the other: the last of the fewest jobs, from the first on, with which it fails. It is
    enough to leave these alone. ``meanwhile`` is called between decisions.
    """
    managed = [job.job_id for job in snapshot.jobs if job.managed]
    until_s = time.monotonic() + LONGEST_SEARCH_S

    def fails(first: int, without: frozenset[str]) -> bool:
        """Whether it fails with the first so many of the managed jobs but these."""
        meanwhile()
        try:
            decide(_left_alone(snapshot, without.union(managed[first:])))
        except Exception:
            return True
        return False

    found: frozenset[str] = frozenset()
    if fails(0, found):
        return found
    while fails(len(managed), found):
        low, high = 0, len(managed)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fails(middle, found) else (middle, high)
        found |= {managed[high - 1]}
        if len(found) > MOST_LEFT_ALONE or time.monotonic() > until_s:
            return frozenset()
    return found


def _left_alone(snapshot: Snapshot, keys: frozenset[str]) -> Snapshot:
    jobs = (
        replace(job, managed=False) if job.managed and job.job_id in keys else job
        for job in snapshot.jobs
    )
    return replace(snapshot, jobs=tuple(jobs))
