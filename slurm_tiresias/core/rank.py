"""Where a policy ranks a job among all others."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

Key = tuple[float, ...]

FIRST_LEVEL: Key = (0.0,)
"""The level of the first tier."""

BOOST_LEVEL: Key = (-1.0,)
"""The level of jobs that an administrator has boosted. They may preempt those of the first tier."""

IDLE_LEVEL: Key = (math.inf,)
"""The level of jobs whose GPUs have long been idle: all other jobs may preempt them, and they
preempt none."""

TIERS_APART = 3
"""A job below the first tier preempts only jobs at least this many tiers below its own: those have
attained 16 times as much by the default thresholds. A preemption for a long job gains less than
it makes be done again, unless its victim is longer by far."""


def level_above_victims(level: Key) -> Key:
    """Return the level above which a job of a tier preempts others. One of the first tier preempts
    those of all lower tiers."""
    return level if level <= FIRST_LEVEL else (level[0] + TIERS_APART - 1, *level[1:])


class JobRank(NamedTuple):
    """Where a job ranks. Smaller is better everywhere.

    ``level`` is the preemption class: a job may take GPUs only from jobs of a strictly larger
    level, and by a policy with tiers only above ``level_above_victims``. ``order_key`` ranks jobs
    of one level. ``tier`` is shown to users and determines the priority band in Slurm; for a
    discretized policy, level and tier are the same.
    """

    level: Key
    order_key: Key
    tier: int


class UniqueRank(NamedTuple):
    """A ``JobRank`` whose ties are broken by job id, so that no two jobs share a rank."""

    level: Key
    order_key: Key
    id_key: Key
    job_id: str


def job_id_key(job_id: str) -> Key:
    """Return the numbers in a job id, so that 9 sorts before 10 and 12_9 before 12_10."""
    if job_id.isdecimal():
        return (float(job_id),)
    return tuple(float(number) for number in re.findall(r"\d+", job_id))
