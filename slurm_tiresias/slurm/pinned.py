"""Find priorities that were set by hand in the output of ``sprio``.

Slurm does not show that a job's priority is pinned (``scontrol update Priority=``). But it no
longer computes the factors of such a job, so sprio shows all of them as zero.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FIELDS = ("%i", "%r", "%Y", "%N", "%A", "%B", "%F", "%J", "%P", "%Q", "%S", "%T")
"""Job, partition, priority, nice, and every factor."""

FORMAT = "|".join(FIELDS)
COMPUTED_FLOOR = 1
"""The lowest priority that Slurm computes, for example if all weights are zero."""

_NOT_ZERO = re.compile(r"[1-9]")


@dataclass(frozen=True, slots=True)
class PinnedJob:
    """A waiting job with a pinned priority. Array tasks have their raw ids."""

    job_id: str
    partition: str
    priority: int


def pinned_jobs(answer: str) -> tuple[PinnedJob, ...]:
    """Return the pinned jobs in the output of ``sprio --format=FORMAT``."""
    found: list[PinnedJob] = []
    for line in answer.split("\n"):
        row = line.strip().split("|")
        if len(row) != len(FIELDS) or not row[2].isdecimal():
            continue
        job_id, partition, priority, *nice_and_factors = row
        # Pinning a priority also sets nice to zero.
        if int(priority) > COMPUTED_FLOOR and not any(map(_NOT_ZERO.search, nice_and_factors)):
            found.append(PinnedJob(job_id, partition, int(priority)))
    return tuple(found)
