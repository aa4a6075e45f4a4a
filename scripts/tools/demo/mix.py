"""The jobs of the demo: the mix of a shared GPU cluster, sixty times as fast.

One second of the demo stands for one minute. The shares of the four kinds are those of the paper's
testbed (Tiresias, NSDI 2019, Table 3); lengths are drawn uniformly on a logarithmic scale. Time
limits are either like those of users, by which Slurm's backfill can tell some short jobs from long
ones, or exact.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from scripts.tools.bench.replay.limits import USUAL_S, as_users_give_them

GPUS_PER_NODE = 4
MOST_GPUS = 16
STEP_S = 0.25
ARRIVALS_S = 25.0
"""Time within which all jobs are submitted."""
WORK_S = 58.0
"""How long all jobs together would take with all GPUs always in use."""
USERS, EXACT = "users", "exact"
LIMITS = {
    USERS: "as users give them: a quarter of the jobs has the longest, the others a usual value "
    "above what they need",
    EXACT: "in exact proportion to what each job needs, which no user knows",
}
EXACT_OVER_NEED = 20
"""Ratio of exact limits to run times. Slurm's limits are whole minutes and most jobs here last
seconds: with tighter limits nearly all would have one minute, and nothing could be backfilled. For
the same reason a minute of limit stands for a quarter of an hour of a user's limit."""


@dataclass(frozen=True)
class Kind:
    """One kind of job; a number listed twice in ``gpus`` is twice as likely."""

    name: str
    share: float
    gpus: tuple[int, ...]
    shortest_s: float
    longest_s: float


KINDS = (
    Kind("short, small", 0.635, (1, 1, 1, 2, 4), 2.0, 8.0),
    Kind("long, small", 0.125, (1, 2, 4), 20.0, 40.0),
    Kind("short, wide", 0.165, (8, 8, 8, 16), 2.0, 5.0),
    Kind("long, wide", 0.075, (8, 8, 16), 15.0, 25.0),
)


@dataclass(frozen=True)
class Job:
    """One job of the mix; ``arrives_s`` counts from the first submission."""

    name: str
    kind: str
    gpus: int
    steps: int
    arrives_s: float
    limit_min: int = 0
    """Time limit in Slurm's minutes; 0: none."""

    @property
    def nodes(self) -> int:
        return math.ceil(self.gpus / GPUS_PER_NODE)

    @property
    def needs_s(self) -> float:
        return self.steps * STEP_S

    @property
    def work_gpu_s(self) -> float:
        return self.gpus * self.needs_s


def make_jobs(seed: int, count: int, limits: str = USERS) -> list[Job]:
    """Return the jobs in order of arrival, determined by the arguments."""
    source = random.Random(seed)
    kinds = [kind for kind, number in shared_out(count) for _ in range(number)]
    source.shuffle(kinds)
    arrivals = sorted(source.uniform(0, ARRIVALS_S) for _ in kinds)
    jobs = [draw(source, kind, at - arrivals[0]) for kind, at in zip(kinds, arrivals, strict=True)]
    jobs = fitted(jobs)
    return [
        replace(job, name=f"demo{number}", limit_min=limit_min)
        for number, (job, limit_min) in enumerate(
            zip(jobs, limits_min(jobs, limits, seed), strict=True), 1
        )
    ]


def limits_min(jobs: Sequence[Job], limits: str, seed: int) -> Iterable[int]:
    if limits == EXACT:
        return [math.ceil(job.needs_s * EXACT_OVER_NEED / 60) for job in jobs]
    # A second of the demo stands for a minute.
    at_full_length_s = (job.needs_s * 60 for job in jobs)
    return [round(limit_s / USUAL_S[0]) for limit_s in as_users_give_them(at_full_length_s, seed)]


def shared_out(count: int) -> list[tuple[Kind, int]]:
    """Return the number of jobs of each kind; the first gets the remainder of rounding."""
    numbers = [round(kind.share * count) for kind in KINDS[1:]]
    return list(zip(KINDS, [count - sum(numbers), *numbers], strict=True))


def draw(source: random.Random, kind: Kind, arrives_s: float) -> Job:
    gpus = source.choice(kind.gpus)
    needs_s = math.exp(source.uniform(math.log(kind.shortest_s), math.log(kind.longest_s)))
    return Job("", kind.name, gpus, round(needs_s / STEP_S), arrives_s)


def fitted(jobs: list[Job]) -> list[Job]:
    """Scale all lengths alike, so that every seed gives the cluster the same amount of work."""
    scale = WORK_S * MOST_GPUS / sum(job.work_gpu_s for job in jobs)
    return [replace(job, steps=max(round(job.steps * scale), 4)) for job in jobs]
