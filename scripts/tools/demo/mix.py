"""The jobs of the demo: the mix of a busy GPU cluster, 300 times as fast.

One second of the demo stands for five minutes. The shares of the four kinds are those of the
paper's testbed (Tiresias, NSDI 2019, Table 3). Lengths are heavy-tailed: minutes to hours, drawn
uniformly on a logarithmic scale; the long fifth of the jobs is most of the work.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scripts.tools.bench.replay.setting import Setting
from slurm_tiresias.settings.policy import PolicyConfig
from slurm_tiresias.simulator.limits import ROUND_S, USERS, with_limits
from slurm_tiresias.simulator.workload import TraceJob, Workload

SPEED = 300
"""Seconds of a site in one second of the demo."""
NODES, GPUS_PER_NODE = 4, 4
MOST_GPUS = NODES * GPUS_PER_NODE
JOBS = 50
STEP_S = 0.25
ARRIVALS_S = 60.0
"""Time within which all jobs are submitted."""
LOAD = 1.5
"""Work that arrives, as a multiple of what all GPUs can do meanwhile."""
SAVE_EVERY_S = 1800 / SPEED
"""How often a program saves by itself: every half hour of a site."""
BEYOND_WINDOW_MIN = 30 * 24 * 60
"""A time limit of 30 days, beyond backfill's window of a day: no waiting job gets a reservation,
so that Slurm starts any job that fits, in the order of submission."""


@dataclass(frozen=True)
class Kind:
    """One kind of job; a number listed twice in ``gpus`` is twice as likely."""

    name: str
    share: float
    gpus: tuple[int, ...]
    shortest_s: float
    longest_s: float


KINDS = (
    Kind("short, small", 0.635, (1, 1, 1, 2, 4), 1.0, 8.0),
    Kind("long, small", 0.125, (1, 2, 4), 16.0, 64.0),
    Kind("short, wide", 0.165, (8, 8, 8, 16), 1.0, 8.0),
    Kind("long, wide", 0.075, (8, 8, 16), 16.0, 64.0),
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
    """Time limit in Slurm's minutes, as its user gives it; 0: none."""
    user: int = 0
    """Which of two users it belongs to."""

    @property
    def nodes(self) -> int:
        return math.ceil(self.gpus / GPUS_PER_NODE)

    @property
    def needs_s(self) -> float:
        return self.steps * STEP_S

    @property
    def work_gpu_s(self) -> float:
        return self.gpus * self.needs_s


def make_jobs(seed: int, count: int = JOBS) -> list[Job]:
    """Return the jobs in order of arrival, determined by the arguments."""
    source = random.Random(seed)
    kinds = [kind for kind, number in shared_out(count) for _ in range(number)]
    source.shuffle(kinds)
    arrivals = sorted(source.uniform(0, ARRIVALS_S) for _ in kinds)
    drawn = (draw(source, kind, at - arrivals[0]) for kind, at in zip(kinds, arrivals, strict=True))
    jobs = [replace(job, name=f"demo{n}") for n, job in enumerate(fitted(list(drawn)), 1)]
    needs = (TraceJob(job.name, 0.0, job.gpus, job.needs_s * SPEED) for job in jobs)
    limited = with_limits(Workload(f"demo:{seed}", tuple(needs)), USERS).jobs
    # Slurm's limits are whole minutes, so that one stands for a quarter of an hour.
    return [
        replace(job, limit_min=round((one.limit_s or 0.0) / ROUND_S[0]))
        for job, one in zip(jobs, limited, strict=True)
    ]


def shared_out(count: int) -> list[tuple[Kind, int]]:
    """Return the number of jobs of each kind; the first gets the remainder of rounding."""
    numbers = [round(kind.share * count) for kind in KINDS[1:]]
    return list(zip(KINDS, [count - sum(numbers), *numbers], strict=True))


def draw(source: random.Random, kind: Kind, arrives_s: float) -> Job:
    gpus = source.choice(kind.gpus)
    needs_s = math.exp(source.uniform(math.log(kind.shortest_s), math.log(kind.longest_s)))
    return Job("", kind.name, gpus, round(needs_s / STEP_S), arrives_s, user=source.randrange(2))


def fitted(jobs: Sequence[Job]) -> list[Job]:
    """Scale all lengths alike, so that every seed gives the cluster the same amount of work."""
    scale = LOAD * ARRIVALS_S * MOST_GPUS / sum(job.work_gpu_s for job in jobs)
    return [replace(job, steps=max(round(job.steps * scale), 4)) for job in jobs]


def setting(seed: int) -> Setting:
    """Return the default configuration, with all times divided by ``SPEED``."""
    thresholds_gpu_s = PolicyConfig().thresholds_gpu_s
    return Setting(
        *(JOBS, seed, NODES, GPUS_PER_NODE, SPEED, PolicyConfig().order),
        thresholds_gpu_s=thresholds_gpu_s,
        load_s=0.0,
    )
