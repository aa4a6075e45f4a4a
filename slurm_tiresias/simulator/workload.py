"""Workloads: the jobs that a simulation runs, and two generators of workloads.

Times are whole seconds from the first submission. A generated workload depends on its seed only and
is the same on every machine and release of Python: it uses the only method of ``random.Random``
whose sequence Python guarantees, and derives all distributions itself.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from slurm_tiresias.simulator.physics import MODELS

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One recorded or generated job.

    ``submitted_s`` counts from the workload's first job. ``duration_s`` is the running time at
    normal speed. ``group`` is the virtual cluster or partition, ``limit_s`` the requested time
    limit, ``account`` the Slurm account.
    """

    job_id: str
    submitted_s: float
    gpus: int
    duration_s: float
    model: str = ""
    gpu_type: str = ""
    user: str = ""
    name: str = ""
    group: str = ""
    limit_s: float | None = None
    account: str = ""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A line of a trace that did not become a job, and the reason."""

    line: int
    why: str


LINES_NAMED = 5
"""Maximum number of dropped lines that a summary names per reason."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of submission, and the lines of the trace that were dropped.

    ``notes`` are sentences on how the source was read. ``sha256`` is the hash of the file; it is
    empty for a generated workload, whose name contains its seed.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    format: str = ""
    sha256: str = ""

    def dropped_lines(self) -> dict[str, list[int]]:
        """Return the dropped line numbers by reason."""
        lines: dict[str, list[int]] = {}
        for each in self.dropped:
            lines.setdefault(each.why, []).append(each.line)
        return lines

    def what_was_dropped(self) -> tuple[str, ...]:
        """Return one sentence per reason, with the number of lines and the first of them."""
        lines = self.dropped_lines()
        return tuple(f"dropped {_lines(numbers)}: {why}" for why, numbers in lines.items())


def _lines(numbers: Sequence[int]) -> str:
    """``line 7``, or ``1,204 lines (3, 5, 8, 9, 11 ...)``."""
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    named = ", ".join(map(str, numbers[:LINES_NAMED]))
    more = " ..." if len(numbers) > LINES_NAMED else ""
    return f"{len(numbers):,} lines ({named}{more})"


class _Chance:
    """Random draws from several distributions, based on uniform numbers in [0, 1)."""

    def __init__(self, name: str) -> None:
        self.draw = random.Random(name).random

    def shuffled(self, items: Iterable[Item]) -> list[Item]:
        shuffled = list(items)
        for last in range(len(shuffled) - 1, 0, -1):
            other = int(self.draw() * (last + 1))
            shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
        return shuffled

    def exponential(self, mean: float) -> float:
        return -mean * math.log1p(-self.draw())

    def bounded_pareto(self, low: float, high: float, alpha: float) -> float:
        """Draw a value from ``low`` up to, excluding, ``high``; a small alpha gives a long tail."""
        lost = 1.0 - (low / high) ** alpha
        return float(low * (1.0 - self.draw() * lost) ** (-1.0 / alpha))

    def lognormal(self, median: float, sigma: float) -> float:
        radius = math.sqrt(-2.0 * math.log1p(-self.draw()))
        return median * math.exp(sigma * radius * math.cos(2.0 * math.pi * self.draw()))

    def one_of(self, items: Sequence[Item], shares: Sequence[float]) -> Item:
        """Draw an item with the probabilities in ``shares``, which sum to one."""
        mark = self.draw()
        for item, share in zip(items, shares, strict=True):
            mark -= share
            if mark < 0.0:
                return item
        return items[-1]


# The paper's workload

PUBLISHED_SEED = 1
"""The seed of the project's published numbers on this workload, unless they name another."""

PAPER_WIDTHS = {1: 240, 2: 40, 4: 80, 8: 90, 16: 25, 32: 5}
"""Number of jobs by GPUs (paper page 493): 480 jobs that request 1,920 GPUs in total."""

SMALL_GPUS = 4
PAPER_LONG_SMALL = 60
PAPER_LONG_LARGE = 36
"""Number of long jobs (800 s and more) among small jobs (up to 4 GPUs) and among large ones.

Table 3 has SS 63.5, SL 12.5, LS 16.5, LL 7.5 %, so 76 % small jobs, but the widths on the same page
give exactly 75 %. The widths are kept exact, and so are the long jobs of both kinds (12.5 % and
7.5 % of 480), which make up most of the work. The remaining one percent, five jobs, is counted as
LS (17.5 %), not as SS (62.5 %)."""

SHORT_S = (120.0, 800.0)
SHORT_ALPHA = 0.5
LONG_S = (800.0, 7201.0)
LONG_ALPHA = 1.0
"""The paper gives a range, 2 minutes to 2 hours, but no distribution. Bounded Pareto with these
exponents reproduces its headline ratios; the upper ends are excluded."""

PAPER_GAP_S = 30.0
"""Mean time between arrivals (paper page 493)."""


def paper480(seed: int = PUBLISHED_SEED) -> Workload:
    """Generate the 480 jobs of the paper's testbed (page 493); unpublished details are drawn.

    Exact: the widths, 48 jobs of each of the ten models, and the number of long jobs among small
    and large ones. Drawn: the assignment of these to jobs, the durations, and Poisson arrivals.
    """
    chance = _Chance(f"paper480:{seed}")
    widths = chance.shuffled(gpus for gpus, jobs in PAPER_WIDTHS.items() for _ in range(jobs))
    models = chance.shuffled(model for model in MODELS for _ in range(len(widths) // len(MODELS)))
    small = sum(gpus <= SMALL_GPUS for gpus in widths)
    long_small = iter(_choice(chance, PAPER_LONG_SMALL, small))
    long_large = iter(_choice(chance, PAPER_LONG_LARGE, len(widths) - small))
    jobs = []
    arrival_s = 0.0
    for number, (gpus, model) in enumerate(zip(widths, models, strict=True)):
        is_long = next(long_small if gpus <= SMALL_GPUS else long_large)
        span, alpha = (LONG_S, LONG_ALPHA) if is_long else (SHORT_S, SHORT_ALPHA)
        duration_s = float(int(chance.bounded_pareto(*span, alpha)))
        jobs.append(TraceJob(str(number), float(int(arrival_s)), gpus, duration_s, model))
        arrival_s += chance.exponential(PAPER_GAP_S)
    return Workload(f"paper480:{seed}", tuple(jobs), format="generated")


def _choice(chance: _Chance, chosen: int, among: int) -> list[bool]:
    return chance.shuffled([True] * chosen + [False] * (among - chosen))


# A workload similar to that of a large production cluster

PHILLY_WIDTHS = (1, 2, 4, 8, 16, 32)
PHILLY_SHARES = (0.70, 0.10, 0.12, 0.05, 0.02, 0.01)
PHILLY_MEDIAN_S = 1000.0
PHILLY_SIGMA = 2.0
PHILLY_SPAN_S = (10.0, 30 * 86400.0)
"""Limits of the lognormal durations: half of the jobs end within 17 minutes, and one in a hundred
runs for more than a day."""

DAY_S = 86400.0
SWING = 0.5
"""Amplitude of the daily arrival rate: arrivals at noon are three times as frequent as at midnight.
"""


def philly_like(jobs: int, seed: int, gpus: int, load: float) -> Workload:
    """Generate many jobs, most of them narrow and short, for a cluster with this many GPUs.

    ``load`` is the work of all jobs over the GPU-seconds of the cluster while they arrive. Above 1,
    the queue grows until the last job has arrived.
    """
    if jobs < 1 or gpus < 1 or not 0.0 < load < math.inf:
        raise ValueError("a workload needs jobs, GPUs and an offered load above zero")
    chance = _Chance(f"philly-like:{seed}")
    drawn = [_philly_job(chance) for _ in range(jobs)]
    span_s = sum(width * duration_s for width, duration_s, _ in drawn) / (gpus * load)
    arrivals_s = sorted(float(int(_daily_arrival_s(chance, span_s))) for _ in range(jobs))
    return Workload(
        f"philly-like:{seed}:{jobs}x{gpus}@{load:g}",
        tuple(
            TraceJob(str(number), arrival_s - arrivals_s[0], width, duration_s, model)
            for number, (arrival_s, (width, duration_s, model)) in enumerate(
                zip(arrivals_s, drawn, strict=True)
            )
        ),
        format="generated",
    )


def _philly_job(chance: _Chance) -> tuple[int, float, str]:
    """Draw the GPUs, the duration and the model of a job."""
    low_s, high_s = PHILLY_SPAN_S
    width = chance.one_of(PHILLY_WIDTHS, PHILLY_SHARES)
    duration_s = float(int(chance.lognormal(PHILLY_MEDIAN_S, PHILLY_SIGMA)))
    model = tuple(MODELS)[int(chance.draw() * len(MODELS))]
    return width, min(max(duration_s, low_s), high_s), model


def _daily_arrival_s(chance: _Chance, span_s: float) -> float:
    """Draw an arrival; it is more likely at noon than at midnight, when the trace begins."""
    while True:
        moment_s = chance.draw() * span_s
        rate = 1.0 - SWING * math.cos(2.0 * math.pi * moment_s / DAY_S)
        if chance.draw() * (1.0 + SWING) < rate:
            return moment_s
