"""Time limits that users might set on the jobs of a workload."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from slurm_tiresias.simulator.workload import TraceJob, Workload

LONGEST_TIMES = 10.0
ROUND_S = tuple(hours * 3600.0 for hours in (0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 72, 168))
ALIKE_S = 30 * 86_400.0

AT_MAXIMUM = 0.25

Chance = Callable[[], float]
"""Draws a number from 0 up to 1."""


def _times_too_long(job: TraceJob, chance: Chance) -> float:
    return job.duration_s * (1.0 + (LONGEST_TIMES - 1.0) * chance())


def _round(job: TraceJob, chance: Chance) -> float:
    needed_s = job.duration_s * (1.0 + 2.0 * chance())
    return next((limit_s for limit_s in ROUND_S if limit_s >= needed_s), ALIKE_S)


def _of_users(job: TraceJob, chance: Chance) -> float:
    """Draw a limit as users give them.

    In the logs of production systems, the share of its limit that a job uses is distributed
    uniformly (Mu'alem and Feitelson, IEEE TPDS 2001); limits are few round values, and the most
    frequent of them is the partition's maximum (Tsafrir, Etsion and Feitelson, JSSPP 2005). That a
    quarter of the jobs has it is an assumption; it is 30 days because the longest jobs of the
    generated workloads take as long.
    """
    if chance() < AT_MAXIMUM:
        return ALIKE_S
    needed_s = job.duration_s / (1.0 - chance())
    return next((limit_s for limit_s in ROUND_S if limit_s >= needed_s), ALIKE_S)


USERS, ALIKE = "users", "alike"
LIMIT_MODELS: Mapping[str, tuple[Callable[[TraceJob, Chance], float], str]] = {
    "exact": (lambda job, _: job.duration_s, "what each job needs"),
    "10x": (_times_too_long, "1 to 10 times what it needs"),
    "round": (
        _round,
        "1 to 3 times what it needs, up to the next of 15 minutes, 1 hour, 1 day ...",
    ),
    USERS: (
        _of_users,
        "30 days for a quarter of the jobs; of the others, each uses a share of its limit that is "
        "uniform in (0, 1], up to the next of 15 minutes, 1 hour, 1 day ...",
    ),
    ALIKE: (lambda *_: ALIKE_S, "30 days for every job"),
}
"""How users choose limits, by name, each with a description."""


def with_limits(workload: Workload, model: str) -> Workload:
    """Return the workload with time limits that users would set, which depend on job ids only."""
    limit_s, described = LIMIT_MODELS[model]

    def limited(job: TraceJob) -> TraceJob:
        chance = random.Random(f"limits:{workload.name}:{job.job_id}").random
        # Slurm would end a job at its limit.
        return replace(job, limit_s=max(job.duration_s, limit_s(job, chance)))

    note = f"time limits are drawn: {described}"
    return replace(workload, jobs=tuple(map(limited, workload.jobs)), notes=(*workload.notes, note))


def with_users_limits(workload: Workload) -> Workload:
    """Return the workload with limits drawn as users give them, for jobs that have none."""
    drawn = with_limits(workload, USERS).jobs
    jobs = (job if job.limit_s else other for job, other in zip(workload.jobs, drawn, strict=True))
    return replace(workload, jobs=tuple(jobs))
