"""The jobs of the demo: what a shared GPU cluster sees, sixty times as fast.

One second of the demo stands for one minute.  The shares of the four kinds are those of the
paper's testbed (Tiresias, NSDI 2019, Table 3), lengths are drawn evenly on a logarithmic scale,
and time limits are what users give: the next usual one well above what the job needs.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

GPUS_PER_NODE = 4
MOST_GPUS = 16
STEP_S = 0.25
ARRIVALS_S = 25.0
"""All jobs are submitted within this time."""
WORK_S = 58.0
"""What all jobs together would take if they could use all GPUs all the time."""
LIMITS_MIN = (1, 2, 4, 8, 24)
"""Usual time limits, in Slurm's minutes: 1, 2, 4, 8 hours and a day, sixty times as fast."""


@dataclass(frozen=True)
class Kind:
    """One kind of job; a number of ``gpus`` that stands twice is twice as likely."""

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
    limit_min: int
    arrives_s: float

    @property
    def nodes(self) -> int:
        return math.ceil(self.gpus / GPUS_PER_NODE)

    @property
    def needs_s(self) -> float:
        return self.steps * STEP_S

    @property
    def work_gpu_s(self) -> float:
        return self.gpus * self.needs_s


def make_jobs(seed: int, count: int) -> list[Job]:
    """The same jobs for the same seed and count, in the order in which they arrive."""
    source = random.Random(seed)
    kinds = [kind for kind, number in shared_out(count) for _ in range(number)]
    source.shuffle(kinds)
    arrivals = sorted(source.uniform(0, ARRIVALS_S) for _ in kinds)
    jobs = [draw(source, kind, at - arrivals[0]) for kind, at in zip(kinds, arrivals, strict=True)]
    return [replace(job, name=f"demo{number}") for number, job in enumerate(fitted(jobs), 1)]


def shared_out(count: int) -> list[tuple[Kind, int]]:
    """How many jobs of each kind; what rounding leaves over goes to the first."""
    numbers = [round(kind.share * count) for kind in KINDS[1:]]
    return list(zip(KINDS, [count - sum(numbers), *numbers], strict=True))


def draw(source: random.Random, kind: Kind, arrives_s: float) -> Job:
    gpus = source.choice(kind.gpus)
    needs_s = math.exp(source.uniform(math.log(kind.shortest_s), math.log(kind.longest_s)))
    limit_min = source.choice(limits_for(needs_s))
    return Job("", kind.name, gpus, round(needs_s / STEP_S), limit_min, arrives_s)


def limits_for(needs_s: float) -> tuple[int, ...]:
    """The two usual limits that a careful user would choose from: twice the need, and more."""
    return tuple(limit for limit in LIMITS_MIN if limit * 60 >= 2 * needs_s)[:2]


def fitted(jobs: list[Job]) -> list[Job]:
    """All lengths scaled alike, so that every seed asks the cluster for the same work."""
    scale = WORK_S * MOST_GPUS / sum(job.work_gpu_s for job in jobs)
    return [replace(job, steps=max(round(job.steps * scale), 4)) for job in jobs]
