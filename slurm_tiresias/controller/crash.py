"""Errors of this program in a cycle: the report that is kept, and the job that caused them."""

from __future__ import annotations

import dataclasses
import enum
import gzip
import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_tiresias import __version__
from slurm_tiresias.core.job import Snapshot
from slurm_tiresias.slurm.protocol import Observation

MOST_REPORTS = 5
"""How many reports are kept; one with 10,000 jobs takes half a megabyte."""
REPORTS = "error-*.json.gz"

MOST_LEFT_ALONE = 20
"""The most jobs left alone at once: if more fail, the jobs are not the cause."""
LONGEST_SEARCH_S = 30.0
"""With 10,000 jobs, finding one takes fifteen decisions: two seconds."""


def signature(error: BaseException) -> str:
    """Return what identifies an error: its type and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{where}"


def write_report(state_dir: Path, error: BaseException, seen: Observation | None) -> Path:
    """Write an error and what the cycle observed to a file for the controller's user only.

    Keeps the ``MOST_REPORTS`` latest reports. Raises ``OSError``.
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
    """Convert what JSON cannot represent."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    return repr(value)


def culprits(
    snapshot: Snapshot, decide: Callable[[Snapshot], object], meanwhile: Callable[[], None]
) -> frozenset[str]:
    """Find managed jobs that make a decision fail; empty if the decision fails without any.

    Bisects for the shortest failing prefix of the managed jobs, and leaves its last job alone;
    repeats this until the decision succeeds. ``meanwhile`` is called before each decision.
    """
    managed = [job.job_id for job in snapshot.jobs if job.managed]
    until_s = time.monotonic() + LONGEST_SEARCH_S

    def fails(first: int, without: frozenset[str]) -> bool:
        """Whether the decision fails with the ``first`` managed jobs, less those in ``without``."""
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
    jobs = tuple(copy(job) for job in snapshot.jobs)
    for job in jobs:
        job.managed = job.managed and job.job_id not in keys
    return replace(snapshot, jobs=jobs)
