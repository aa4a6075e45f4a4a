"""How close policies that know no durations come to a clairvoyant one, with all costs counted."""

from __future__ import annotations

import math
import multiprocessing
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from scripts.tools.document import markdown, write_section
from slurm_tiresias.config import parse
from slurm_tiresias.settings.policy import PolicyConfig
from slurm_tiresias.simulator.engine import Timing
from slurm_tiresias.simulator.report import Figures, figures
from slurm_tiresias.simulator.run import Setup, simulate
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.traces import load_trace
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480, philly_like

TITLE = "Beyond the paper"
CLAIRVOYANT = "srsf"
INTERVAL_S, REQUEUE_DELAY_S = 60.0, 5.0

LADDER_5 = [3600 * 5**rung for rung in range(4)]
DEFAULT_GPU_S = PolicyConfig().thresholds_gpu_s
LADDER_8 = [900 * 4**rung for rung in range(7)]


T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Candidate:
    """A policy of the simulator, and its ``[policy]`` table."""

    title: str
    policy: str
    thresholds_gpu_s: tuple[float, ...]
    order: str = "first-start"

    def table(self) -> dict[str, Any]:
        return {
            "thresholds_gpu_s": list(self.thresholds_gpu_s),
            "order": self.order,
        }


CANDIDATES = (
    Candidate("2 tiers (the paper)", "tiresias-l", (3600,)),
    Candidate("3 tiers, 3250 and 7200 (the authors' simulator)", "tiresias-l", (3250, 7200)),
    Candidate("5 tiers from 3600, each 5 times the last", "tiresias-l", tuple(LADDER_5)),
    Candidate("6 tiers, the same ladder (the default)", "tiresias-l", DEFAULT_GPU_S),
    Candidate("5 tiers, newest first", "tiresias-l", tuple(LADDER_5), "newest"),
    Candidate("8 tiers from 900, each 4 times the last", "tiresias-l", tuple(LADDER_8)),
    Candidate("5 tiers by user and name, from 1 job on", "tiresias-h", tuple(LADDER_5)),
    Candidate("5 tiers, Gittins knowing the distribution", "tiresias-g", tuple(LADDER_5)),
)


@dataclass(frozen=True)
class Sample:
    """One workload on one cluster: a generator's seed, or a section of a trace."""

    kind: str
    number: int
    cluster: str
    make: Callable[[], Workload]


@dataclass(frozen=True)
class Trial:
    """One simulation. ``candidate`` None: the clairvoyant policy."""

    sample: Sample
    candidate: Candidate | None

    def figures(self) -> Figures:
        site = parse_cluster(self.sample.cluster, "skew")
        config = parse({"policy": self.candidate.table() if self.candidate else {}})
        timing = Timing(INTERVAL_S, REQUEUE_DELAY_S)
        setup = Setup(site, config, Costs(site, speeds=True, flat_s=None), timing)
        policy = self.candidate.policy if self.candidate else CLAIRVOYANT
        return figures(simulate(self.sample.make(), policy, setup), site.gpus)


# The workloads

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


def of_traces(philly: Path | None, itp: Path | None, draw: Draw) -> list[Sample]:
    """Return the stretches of the traces that are there."""
    traces = (("Philly", philly), ("ITP", itp))
    return [one for title, path in traces if path for one in stretches(title, path, draw)]


def trace_options(philly: Path | None, itp: Path | None) -> str:
    """Return the options that named the traces, as a command shows them."""
    return "".join(f" --{name} FILE" for name, path in (("philly", philly), ("itp", itp)) if path)


# Results


def in_processes(run: Callable[[T], R], trials: Sequence[T], workers: int | None) -> Mapping[T, R]:
    """Run every trial, on several processors; ``workers`` None is one process a core."""
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return dict(zip(trials, pool.map(run, trials), strict=True))


def measure(philly: Path | None, itp: Path | None, fresh: bool, workers: int | None) -> None:
    draw = Draw(fresh)
    samples = [*generated(draw), *recurring(draw)]
    samples += of_traces(philly, itp, draw)
    trials = [Trial(sample, each) for sample in samples for each in (None, *CANDIDATES)]
    found = in_processes(Trial.figures, trials, workers)
    kinds = list(dict.fromkeys(sample.kind for sample in samples))
    parts = [_part_of(kind, [s for s in samples if s.kind == kind], found) for kind in kinds]
    if fresh:
        parts = []  # the averages suffice as a check
    title = f"{TITLE}, on other work" if fresh else TITLE
    options = trace_options(philly, itp)
    options += " --fresh" if fresh else ""
    paper = CANDIDATES[0]
    text = (
        f"{_what_is_shown(fresh)}\n\n{_against(None, kinds, samples, found)}\n\n"
        f"The same over that of {paper.title} on the same sample:\n\n"
        f"{_against(paper, kinds, samples, found)}\n\n" + "\n\n".join(parts)
    )
    write_section(title, f"scripts/dev bench beyond{options}", text)
    print(text)


def _what_is_shown(fresh: bool) -> str:
    other = "Seeds and stretches that no setting was chosen on. " if fresh else ""
    return other + (
        f"Average JCT over that of clairvoyant SRSF with the same restart costs, decisions every "
        f"{INTERVAL_S:.0f} s and a requeue delay of {REQUEUE_DELAY_S:.0f} s; the candidates, not "
        "SRSF, also heed the default guards. Means over seeds, or over stretches of "
        f"{STRETCH_JOBS:,} jobs of a trace on as many 8-GPU nodes as make the load, and how far "
        "chance may move each mean (95 %, Student's t)."
    )


Found = Mapping[Trial, Figures]


def _against(
    other: Candidate | None, kinds: Sequence[str], samples: Sequence[Sample], found: Found
) -> str:
    """Return a table of each candidate's average JCT as a multiple of the other's, per sample."""
    shown = [each for each in CANDIDATES if each != other]
    rows = []
    for kind in kinds:
        some = [sample for sample in samples if sample.kind == kind]
        ratios = (_ratios(each, some, found, _average, other) for each in shown)
        rows.append((kind, *map(mean_and_interval, ratios)))
    return markdown(("workload", *(each.title for each in shown)), rows)


def _part_of(kind: str, samples: Sequence[Sample], found: Found) -> str:
    rows = [
        (
            candidate.title,
            mean_and_interval(_ratios(candidate, samples, found, _average)),
            _mean(_ratios(candidate, samples, found, lambda one: one.median_jct_s)),
            _mean(_ratios(candidate, samples, found, lambda one: one.p99_jct_s)),
            f"{statistics.mean(found[Trial(s, candidate)].preemptions for s in samples):,.0f}",
        )
        for candidate in CANDIDATES
    ]
    clairvoyant = [found[Trial(sample, None)] for sample in samples]
    seconds = statistics.mean(map(_average, clairvoyant))
    preemptions = statistics.mean(one.preemptions for one in clairvoyant)
    table = markdown(("policy", "average", "median", "99th", "preemptions"), rows)
    clusters = ", ".join(dict.fromkeys(sample.cluster for sample in samples))
    return (
        f"### {kind}\n\n{table}\n\n{len(samples)} samples on {clusters}; SRSF: average JCT "
        f"{seconds:,.0f} s, {preemptions:,.0f} preemptions."
    )


def _average(one: Figures) -> float:
    return one.average_jct_s


def _ratios(
    candidate: Candidate,
    samples: Sequence[Sample],
    found: Found,
    of: Callable[[Figures], float],
    other: Candidate | None = None,
) -> list[float]:
    """Return the ratio for each sample; ``other`` None: relative to the clairvoyant policy."""
    return [of(found[Trial(s, candidate)]) / of(found[Trial(s, other)]) for s in samples]


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.2f}"


STUDENT_T = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""The 97.5th percentile by number of samples (degrees of freedom plus one)."""


def mean_and_interval(values: Sequence[float]) -> str:
    """Return the mean, and its 95 % confidence interval."""
    error = STUDENT_T[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.3f} ± {error:.3f}"
