"""The time limits of a replay's jobs: a day for all, or like those that users give."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from slurm_tiresias.simulator.baselines.backfill import DEFAULT_LIMIT_S
from slurm_tiresias.simulator.workload import Workload

DAY, USERS = "day", "users"
LIMITS = (DAY, USERS)

USUAL_S = tuple(hours * 3600.0 for hours in (0.25, 0.5, 1, 2, 4, 8, 12, 24))
"""Round values from which users choose (Tsafrir, Etsion and Feitelson, JSSPP 2005)."""

SHARE_OF_MAXIMUM = 0.25
"""Share of jobs with the partition's maximum, the most frequent value in most logs."""


def with_limits(workload: Workload, kind: str, seed: int) -> Workload:
    """Return the same jobs with time limits of one ``kind``, at full length."""
    needed_s = (job.duration_s for job in workload.jobs)
    limits_s = as_users_give_them(needed_s, seed) if kind == USERS else _days()
    jobs = (
        replace(job, limit_s=limit_s) for job, limit_s in zip(workload.jobs, limits_s, strict=False)
    )
    return replace(workload, jobs=tuple(jobs))


def _days() -> Iterator[float]:
    while True:
        yield DEFAULT_LIMIT_S


def as_users_give_them(needed_s: Iterable[float], seed: int) -> Iterator[float]:
    """Yield limits for jobs of these lengths, overestimated as in the logs of real clusters.

    The share of its limit that a job uses is distributed uniformly (Mu'alem and Feitelson, IEEE
    TPDS 2001); the limit is rounded up to the next usual value.
    """
    draw = random.Random(f"limits:{seed}").random
    for need_s in needed_s:
        takes_maximum, used = draw() < SHARE_OF_MAXIMUM, 1.0 - draw()
        estimate_s = math.inf if takes_maximum else need_s / used
        yield next((usual_s for usual_s in USUAL_S if usual_s >= estimate_s), USUAL_S[-1])


def in_minutes(limit_s: float) -> int:
    """Round a time limit up to whole minutes, as Slurm does."""
    return math.ceil(limit_s / 60)
