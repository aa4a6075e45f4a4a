"""Priorities that were set by hand, as ``sprio`` shows them.

Slurm does not say of a job that its priority is pinned (``scontrol update Priority=``). But it no
longer computes the factors of one that is: all of them are then shown as zero.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FIELDS = ("%i", "%r", "%Y", "%N", "%A", "%B", "%F", "%J", "%P", "%Q", "%S", "%T")
"""Job, partition, priority, nice, and every factor."""

FORMAT = "|".join(FIELDS)
COMPUTED_FLOOR = 1
"""The least that Slurm computes, where all weights are zero, say."""

_NOT_ZERO = re.compile(r"[1-9]")


@dataclass(frozen=True, slots=True)
class PinnedJob:
    """A waiting job with a priority that Slurm has not computed. Tasks have their raw ids."""

    job_id: str
    partition: str
    priority: int


def pinned_jobs(answer: str) -> tuple[PinnedJob, ...]:
    """The pinned ones of what ``sprio --format`` printed by ``FORMAT``."""
    found: list[PinnedJob] = []
    for line in answer.split("\n"):
        row = line.strip().split("|")
        if len(row) != len(FIELDS) or not row[2].isdecimal():
            continue
        job_id, partition, priority, *nice_and_factors = row
        # Slurm sets nice to zero where it pins.
        if int(priority) > COMPUTED_FLOOR and not any(map(_NOT_ZERO.search, nice_and_factors)):
            found.append(PinnedJob(job_id, partition, int(priority)))
    return tuple(found)
