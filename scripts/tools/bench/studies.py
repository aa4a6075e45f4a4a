"""The workloads of ``beyond``, how they are simulated, and the statistics."""

from __future__ import annotations

import math
import multiprocessing
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from slurm_tiresias.config import parse
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.run import Setup, simulate
from slurm_tiresias.simulator.sim_cluster import Costs, SimCluster, parse_cluster
from slurm_tiresias.simulator.traces import load_trace
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480, philly_like

CLAIRVOYANT = "srsf"
INTERVAL_S, REQUEUE_DELAY_S = 60.0, 5.0

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Sample:
    """One workload on one cluster: a generator's seed, or a section of a trace."""

    kind: str
    number: int
    cluster: str
    make: Callable[[], Workload]

    @property
    def site(self) -> SimCluster:
        return parse_cluster(self.cluster, "skew")

    def outcomes(self, policy: str, settings: Mapping[str, Any]) -> Sequence[Outcome]:
        """Simulate this workload with all costs counted."""
        costs = Costs(self.site, speeds=True, flat_s=None)
        timing = Timing(INTERVAL_S, REQUEUE_DELAY_S)
        setup = Setup(self.site, parse(dict(settings)), costs, timing)
        return simulate(self.make(), policy, setup)


PAPER480_SEEDS = 10
PHILLY_LIKE_SEEDS = 5
PHILLY_LIKE_JOBS = 4_000
PHILLY_LIKE_LOADS = (0.7, 1.0, 1.1, 2.0)
NODES, GPUS_PER_NODE = 64, 4

STRETCH_JOBS = 6_000
STRETCHES = 5
TRACE_LOADS = (1.1, 2.0)
TRACE_GPUS_PER_NODE = 8


@dataclass(frozen=True)
class Draw:
    """Selects seeds and sections of a trace: those on which the default was chosen, or, with
    ``fresh``, others on which it must hold too."""

    fresh: bool

    def seeds(self, count: int) -> range:
        return range(count + 1, 2 * count + 1) if self.fresh else range(1, count + 1)

    def starts(self, jobs: int) -> Sequence[int]:
        """Return where evenly spaced sections begin; fresh ones lie half-way between the others."""
        later = 0.5 if self.fresh else 0.0
        return [round((number + later) * jobs / STRETCHES) for number in range(STRETCHES)]


def generated(draw: Draw) -> Iterator[Sample]:
    for seed in draw.seeds(PAPER480_SEEDS):
        yield Sample("paper480", seed, "15x4", partial(paper480, seed))
    cluster, gpus = f"{NODES}x{GPUS_PER_NODE}", NODES * GPUS_PER_NODE
    for load in PHILLY_LIKE_LOADS:
        for seed in draw.seeds(PHILLY_LIKE_SEEDS):
            make = partial(philly_like, PHILLY_LIKE_JOBS, seed, gpus, load)
            yield Sample(f"philly-like, load {load:g}", seed, cluster, make)


USERS = 40
MOST_NAMES = 12
WITHIN_SIGMAS = (0.5, 1.0, 1.5)


def recurring(draw: Draw) -> Iterator[Sample]:
    """Yield workloads of jobs that recur under the same user and name."""
    cluster, gpus = f"{NODES}x{GPUS_PER_NODE}", NODES * GPUS_PER_NODE
    for sigma in WITHIN_SIGMAS:
        for seed in draw.seeds(PHILLY_LIKE_SEEDS):
            make = partial(named, PHILLY_LIKE_JOBS, seed, gpus, 2.0, sigma)
            yield Sample(f"names, sigma {sigma:g}, load 2", seed, cluster, make)


@dataclass(frozen=True)
class _Program:
    """The jobs that one user submits repeatedly under one name."""

    user: str
    name: str
    log_duration: float
    gpus: int


def named(jobs: int, seed: int, gpus: int, load: float, sigma_within: float) -> Workload:
    """Return a philly-like workload in which jobs of one user and name resemble each other.

    The logarithms of the durations vary as much as there, by ``sigma_within`` within a name and by
    the rest between names; all jobs of a name have one width. The frequencies of names are drawn
    from a long-tailed distribution. Durations within a name differ by a factor of about e to the
    power of ``sigma_within``: the smaller it is, the more a name helps to predict them.
    """
    plain = philly_like(jobs, seed, gpus, load)
    chance = random.Random(f"named:{seed}")
    logs = [math.log(max(1.0, job.duration_s)) for job in plain.jobs]
    middle, spread = statistics.mean(logs), statistics.pstdev(logs)
    between = math.sqrt(max(0.0, spread**2 - sigma_within**2))
    programs = [
        _Program(
            f"u{user}", f"n{name}", chance.gauss(middle, between), chance.choice(plain.jobs).gpus
        )
        for user in range(USERS)
        for name in range(chance.randint(2, MOST_NAMES))
    ]
    shares = [min(20.0, chance.paretovariate(1.0)) for _ in programs]
    drawn = chance.choices(programs, shares, k=jobs)
    renamed = [
        _job_of(program, job, chance.gauss(program.log_duration, sigma_within))
        for program, job in zip(drawn, plain.jobs, strict=True)
    ]
    return _at_load(replace(plain, name=f"named:{seed}", jobs=tuple(renamed)), gpus, load)


def _job_of(program: _Program, job: TraceJob, log_duration: float) -> TraceJob:
    duration_s = float(int(min(max(math.exp(log_duration), 10.0), 30 * 86400.0)))
    return replace(
        job, user=program.user, name=program.name, gpus=program.gpus, duration_s=duration_s
    )


def _at_load(workload: Workload, gpus: int, load: float) -> Workload:
    """Return the same jobs, arriving faster or slower."""
    span_s = workload.jobs[-1].submitted_s
    stretch = _work_gpu_s(workload.jobs) / (gpus * load) / span_s
    jobs = (
        replace(job, submitted_s=float(int(job.submitted_s * stretch))) for job in workload.jobs
    )
    return replace(workload, jobs=tuple(jobs))


def stretches(title: str, path: Path, draw: Draw) -> Iterator[Sample]:
    """Yield evenly spaced sections of a trace, each on as many nodes as give the wanted load."""
    starts = draw.starts(len(_trace(path).jobs))
    for load in TRACE_LOADS:
        for number, start in enumerate(starts, 1):
            jobs = _part(path, start).jobs
            gpus = _work_gpu_s(jobs) / (jobs[-1].submitted_s * load)
            nodes = max(round(gpus / TRACE_GPUS_PER_NODE), _nodes_of_widest(jobs))
            cluster = f"{nodes}x{TRACE_GPUS_PER_NODE}"
            real = gpus * load / (nodes * TRACE_GPUS_PER_NODE)
            print(f"{title}, jobs from {start:,}: {cluster}, load {real:.2f}", flush=True)
            make = partial(_part, path, start)
            yield Sample(f"{title}, load {load:g}", number, cluster, make)


@cache
def _trace(path: Path) -> Workload:
    return load_trace(path)


def _part(path: Path, start: int) -> Workload:
    whole = _trace(path)
    jobs = whole.jobs[start : start + STRETCH_JOBS]
    began_s = jobs[0].submitted_s
    moved = (replace(job, submitted_s=job.submitted_s - began_s) for job in jobs)
    return replace(whole, jobs=tuple(moved))


def _work_gpu_s(jobs: Sequence[TraceJob]) -> float:
    return sum(job.gpus * job.duration_s for job in jobs)


def _nodes_of_widest(jobs: Sequence[TraceJob]) -> int:
    return -(-max(job.gpus for job in jobs) // TRACE_GPUS_PER_NODE)


def drawn(fresh: bool, philly: Path | None, itp: Path | None) -> list[Sample]:
    """Return the generated workloads, and the stretches of the traces that are there."""
    draw, traces = Draw(fresh), (("Philly", philly), ("ITP", itp))
    parts = [one for title, path in traces if path for one in stretches(title, path, draw)]
    return [*generated(draw), *recurring(draw), *parts]


def kinds_of(samples: Iterable[Sample]) -> Mapping[str, Sequence[Sample]]:
    """Return the samples of each kind, in their order."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.kind, []).append(sample)
    return found


# Results


def in_processes(run: Callable[[T], R], trials: Sequence[T], workers: int | None) -> Mapping[T, R]:
    """Run every trial, on several processors; ``workers`` None is one process a core."""
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return dict(zip(trials, pool.map(run, trials), strict=True))


STUDENT_T = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""The 97.5th percentile by number of samples (degrees of freedom plus one)."""


def mean_and_interval(values: Sequence[float]) -> str:
    """Return the mean, and its 95 % confidence interval."""
    error = STUDENT_T[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.3f} ± {error:.3f}"
