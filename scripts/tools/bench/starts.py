"""How often the forecast ranges of starts hold, replayed at what a site knows, and how much closer
their middles are than what ``squeue --start`` would say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import click

from scripts.tools.bench.record import TRACE, count_option, in_processes, record
from scripts.tools.document import markdown
from slurm_tiresias.config import parse
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.placement.node_set import node_set
from slurm_tiresias.forecast.forecaster import FUTURES, Forecaster
from slurm_tiresias.forecast.futures import Futures, Present, UniformPhysics, present
from slurm_tiresias.forecast.past import MOST_AHEAD_S, Past, PastJob
from slurm_tiresias.forecast.ranges import Range
from slurm_tiresias.model import JobState, Node, PlacementStyle
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.baselines.backfill import (
    DEFAULT_LIMIT_S,
    DEFAULTS,
    Backfill,
    RunningJob,
)
from slurm_tiresias.simulator.engine import Ask, SimJob, Simulation, Timing
from slurm_tiresias.simulator.limits import with_users_limits
from slurm_tiresias.simulator.reports import ReportModel, Reports
from slurm_tiresias.simulator.run import Setup, asking
from slurm_tiresias.simulator.saves import PESSIMISTIC
from slurm_tiresias.simulator.schedulers import TiresiasScheduler
from slurm_tiresias.simulator.sim_cluster import PARTITION, Costs, SimCluster
from slurm_tiresias.simulator.traces import load_trace
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480, philly_like

REPORT, SIGMA = 0.5, 0.1
"""The share of the jobs that report, and how far reports are off, in logarithms."""

INTERVAL_S, REQUEUE_S = 30.0, 5.0
JOBS, LOAD = 1500, 1.3
"""Of Philly-like workloads. Of a trace, the later jobs count: so many, or fewer."""

DAYS, DAY_S, BUSY_S = 4, 86400.0, 30000.0
"""A workload of the paper is submitted on each of so many days, since from one of four hours a site
learns nothing; its jobs take about so long."""

PART = 0.75
"""Forecasts are made in this part of other workloads: that nothing is submitted after the end could
not be known."""

LONG_S = 600.0


@dataclass(frozen=True)
class Case:
    """A workload on a cluster."""

    kind: str
    """The name of a generated one, or a group of jobs in a trace."""
    seed: int
    """Of a trace, the number of nodes on which its jobs run."""
    pictures: int
    cpu_s: float
    """CPU time of one picture."""
    trace: Path | None = None

    def make(self) -> tuple[Workload, SimCluster]:
        if self.trace:
            jobs = [job for job in load_trace(self.trace).jobs if job.group == self.kind]
            return _workload(self.kind, jobs[-2 * JOBS :]), SimCluster(self.seed, 8)
        if self.kind == "philly-like":
            site = SimCluster(16, 8)
            return philly_like(JOBS, self.seed, site.gpus, LOAD), site
        days = [
            replace(job, job_id=f"{day}-{job.job_id}", submitted_s=DAY_S * day + job.submitted_s)
            for day in range(DAYS)
            for job in paper480(DAYS * self.seed + day).jobs
        ]
        return _workload(self.kind, days), SimCluster(15, 4)

    @property
    def is_busy_daily(self) -> bool:
        """Whether it is idle for the greater part of each day."""
        return self.kind == "paper480"

    def __str__(self) -> str:
        return f"{self.trace.stem}, {self.kind}" if self.trace else f"{self.kind}, seed {self.seed}"


def _workload(name: str, jobs: Sequence[TraceJob]) -> Workload:
    since_s = jobs[0].submitted_s
    return Workload(
        name, tuple(replace(job, submitted_s=job.submitted_s - since_s) for job in jobs)
    )


class Said(NamedTuple):
    """What was said of one waiting job at one time, and how long it waited from then on."""

    found: Range | None
    squeue_s: float
    waited_s: float


class Observed(TiresiasScheduler):
    """Tiresias, with the starts of its jobs and those that have ended."""

    def __init__(self, config: Config, nodes: Sequence[Node], reports: Reports) -> None:
        super().__init__(make_policy(config.policy), config, nodes, reports)
        self.starts: dict[str, list[float]] = {}
        self.gone: list[PastJob] = []

    def runs(self, job: SimJob, now_s: float) -> None:
        assert job.running_since_s is not None
        self.starts.setdefault(job.job_id, []).append(job.running_since_s)
        super().runs(job, now_s)

    def started_s(self, job_id: str, since_s: float) -> float | None:
        """Return when a job first started at or after a time."""
        return next((s for s in self.starts.get(job_id, ()) if s >= since_s), None)

    def ended(self, job: SimJob) -> None:
        super().ended(job)
        self.gone.append(PastJob.of(job, ended=True))


def replay(case: Case) -> list[Said]:
    """Simulate a case, and forecast it in equal intervals from what is known then."""
    bare, site = case.make()
    workload, nodes = with_users_limits(bare), site.as_nodes()
    interval = {"interval_s": INTERVAL_S}
    config = parse({"manage": {"partitions": [PARTITION]}, "controller": interval})
    costs = Costs(site, speeds=True, flat_s=None, saves=PESSIMISTIC)
    setup = Setup(site, config, costs, Timing(INTERVAL_S, REQUEUE_S))
    reports = Reports(ReportModel(REPORT, SIGMA), workload)
    scheduler, forecaster = Observed(config, nodes, reports), Forecaster()
    said: list[tuple[float, str, Range | None, float]] = []
    last_s = workload.jobs[-1].submitted_s
    until_s, span_s = (last_s, DAYS * BUSY_S) if case.is_busy_daily else (PART * last_s,) * 2
    next_s = every_s = span_s / case.pictures

    def look(now_s: float) -> bool:
        nonlocal next_s
        live = list(simulation.live)
        if not next_s <= now_s <= until_s or all(job.state is JobState.RUNNING for job in live):
            return False
        next_s = now_s + every_s
        for job in live:
            if job.state is JobState.RUNNING:
                job.settle(now_s)
        so_far = (PastJob.of(job, ended=False) for job in live)
        past = Past([*scheduler.gone, *so_far], now_s)
        at = present(now_s, nodes, live)
        made = Futures(at, config, past, scheduler.policy)
        picture = forecaster.look(made, case.cpu_s, scheduler.started_s)
        squeue = squeue_start(at)
        for job_id in made.waiting:
            said.append((now_s, job_id, picture.ranges.get(job_id), squeue(job_id)))
        return False

    ask = asking(setup, only_consolidated=False)
    simulation = Simulation(workload.jobs, scheduler, costs, setup.timing, ask, until=look)
    simulation.run()
    return [
        Said(found, squeue_s, start_s - at_s)
        for at_s, job_id, found, squeue_s in said
        if (start_s := scheduler.started_s(job_id, at_s)) is not None
    ]


class _ByLimits(Backfill):
    """Slurm's backfill, with the starts that it makes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes, DEFAULTS)
        self.starts: dict[str, float] = {}

    def runs(self, job: SimJob, now_s: float) -> None:
        self.starts[job.job_id] = now_s

    def holds(self, job: SimJob, limit_end_s: float) -> None:
        gpus = {self._names.index(name): held.gpu_count for name, held in job.allocation.items()}
        self._free.add({number: -count for number, count in gpus.items()})
        self._running[job.job_id] = RunningJob(limit_end_s, node_set(gpus), gpus)


def squeue_start(at: Present) -> Callable[[str], float]:
    """Return after how long each job starts if each runs for its time limit, in Slurm's order."""
    slurm, costs = _ByLimits(at.nodes), UniformPhysics(())
    waiting = sum(job.state is JobState.PENDING for job in at.jobs)
    simulation = Simulation(
        (),
        slurm,
        costs,
        Timing(),
        lambda _job: Ask(at.jobs[0].request, PlacementStyle.SPREAD),
        until=lambda _now_s: len(slurm.starts) == waiting,
    )
    in_order = sorted(at.jobs, key=lambda job: (job.tier or 0, job.submitted_s))
    for number, job in enumerate(in_order):
        limit_s = job.time_limit_s or DEFAULT_LIMIT_S
        trace = TraceJob(job.job_id, job.submitted_s, job.gpus, limit_s, limit_s=limit_s)
        known = SimJob(trace, number, Ask(job.request, PlacementStyle.SPREAD), costs)
        if job.running_since_s is not None:
            since_s = job.running_since_s
            known.set(state=job.state, allocation=job.allocation, running_since_s=since_s)
            known.set(first_started_s=since_s, settled_s=at.now_s)
            known.end_s = max(since_s + limit_s, at.now_s + 1.0)
            slurm.holds(known, known.end_s)
        else:
            slurm.waits(known, at.now_s)
        simulation.resume(known)
    simulation.run(at.now_s)
    return lambda job_id: slurm.starts.get(job_id, math.inf) - at.now_s


def figures(said: Sequence[Said]) -> Mapping[str, Any]:
    """Return what the table shows of all that was said in a case."""
    given = [(one.found, one) for one in said if one.found]
    closed = [(found, one) for found, one in given if found.most_s < MOST_AHEAD_S]
    held = [found.least_s <= one.waited_s <= found.most_s for found, one in given]
    half = [found.quarter_s <= one.waited_s <= found.most_of_half_s for found, one in given]
    likely = [(found, one) for found, one in given if found.likely_s < MOST_AHEAD_S]
    widths = [(f.most_s - f.least_s) / f.likely_s for f, _ in closed if f.likely_s > LONG_S]
    return {
        "asked": f"{len(said):,}",
        "given": f"{len(given):,}",
        "with an end": f"{len(closed):,}",
        "nine of ten held": f"{fmean(held):.1%}" if held else "",
        "half held": f"{fmean(half):.1%}" if half else "",
        "width over wait": f"{median(widths):.1f}" if widths else "",
        "median wait, s": _median([one.waited_s for _, one in given]),
        "median error, s": _median([abs(f.likely_s - one.waited_s) for f, one in likely]),
        "of squeue, s": _median([abs(one.squeue_s - one.waited_s) for _, one in likely]),
    }


def _median(values: Sequence[float]) -> str:
    return f"{median(values):,.0f}" if values else ""


@click.command("starts")
@count_option("seeds", 2, 10)
@click.option("--first-seed", default=1, show_default=True)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    type=TRACE,
    help="Also the jobs of a group in a trace; may be repeated, each with --group and --nodes.",
)
@click.option("--group", "groups", multiple=True)
@click.option("--nodes", multiple=True, type=int, help="Number of nodes of 8 GPUs.")
@click.option("--pictures", default=60, show_default=True, help="Of one workload.")
@click.option("--cpu", default=4.0, show_default=True, help="CPU time of a picture, in seconds.")
@click.option("--workers", type=click.IntRange(1), help="Number of processes.")
def starts(
    seeds: int,
    first_seed: int,
    traces: Sequence[Path],
    groups: Sequence[str],
    nodes: Sequence[int],
    pictures: int,
    cpu: float,
    workers: int | None,
) -> None:
    """How often the forecast ranges of starts hold."""
    cases = [
        Case(kind, seed, pictures, cpu)
        for kind in ("paper480", "philly-like")
        for seed in range(first_seed, first_seed + seeds)
    ]
    cases += [
        Case(group, number, pictures, cpu, path)
        for path, group, number in zip(traces, groups, nodes, strict=True)
    ]
    found = in_processes(replay, cases, workers)
    rows = [{"workload": str(case), **figures(said)} for case, said in found.items()]
    everything = [one for said in found.values() for one in said]
    rows.append({"workload": "all", **figures(everything)})
    record(
        "When waiting jobs start",
        markdown(list(rows[0]), [tuple(map(str, row.values())) for row in rows]),
        f"A workload of paper480 on each of {DAYS} days on 15x4 (seed 1: those from {DAYS} on); "
        f"{JOBS:,} Philly-like jobs at a load of {LOAD:g} on 16x8; of traces the "
        f"last {2 * JOBS:,} jobs; of both, none are made in the last quarter. Half of the jobs "
        "report; limits are as users give them. "
        f"About {pictures} pictures of {FUTURES} futures in equal intervals while jobs wait; "
        "each waiting job counts in each. `given`: a range was given; `with an end`: its end is "
        "within the 14 days that futures look ahead, and so is shown. "
        "`width` is the median over waits expected to exceed ten minutes, `error` that of the "
        "likeliest start.",
    )
