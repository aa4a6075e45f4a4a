"""How often the forecast ranges of starts hold, replayed at what a site knows, and how much closer
their middles are than what ``squeue --start`` would say."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple

import click

from scripts.tools.bench.record import count_option, record
from scripts.tools.document import markdown
from slurm_tiresias.config import parse
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.placement.node_set import node_set
from slurm_tiresias.forecast.forecaster import FUTURES, Forecaster
from slurm_tiresias.forecast.futures import Futures, Present, present
from slurm_tiresias.forecast.past import Past, PastJob
from slurm_tiresias.forecast.ranges import Range
from slurm_tiresias.model import JobState, Node, PlacementStyle
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.baselines.backfill import DEFAULT_LIMIT_S, Backfill, RunningJob
from slurm_tiresias.simulator.engine import Ask, SimJob, Simulation, Timing
from slurm_tiresias.simulator.limits import with_users_limits
from slurm_tiresias.simulator.reports import ReportModel, Reports
from slurm_tiresias.simulator.run import Setup, asking
from slurm_tiresias.simulator.saves import PESSIMISTIC
from slurm_tiresias.simulator.schedulers import TiresiasScheduler
from slurm_tiresias.simulator.sim_cluster import PARTITION, Costs, SimCluster
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480, philly_like

SIGMA = 0.1
"""How far reports are off, in logarithms."""

INTERVAL_S, REQUEUE_S = 30.0, 5.0
PHILLY_JOBS, PHILLY_LOAD, PHILLY_EVERY = 1500, 1.3, 3
LONG_S = 600.0


@dataclass(frozen=True)
class Case:
    """A workload on a cluster; of its jobs, ``share`` report."""

    kind: str
    seed: int
    share: float
    every_s: float
    cpu_s: float
    """CPU time of one picture."""

    def make(self) -> tuple[Workload, SimCluster]:
        if self.kind == "paper480":
            return paper480(self.seed), SimCluster(15, 4)
        site = SimCluster(16, 8)
        return philly_like(PHILLY_JOBS, self.seed, site.gpus, PHILLY_LOAD), site


class Said(NamedTuple):
    """What was said of one waiting job at one time, and how long it waited from then on."""

    corrected: Range | None
    raw: Range
    squeue_s: float
    waited_s: float


class Observed(TiresiasScheduler):
    """Tiresias, with the starts of its jobs and those that have ended."""

    def __init__(self, config: Config, nodes: Sequence[Node], reports: Reports | None) -> None:
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
        self.gone.append(_past(job, ended=True))


def _past(job: SimJob, *, ended: bool) -> PastJob:
    names = job.user, job.name, job.time_limit_s
    return PastJob(job.submitted_s, job.gpus, *names, job.run_s, ended)


def replay(case: Case) -> list[Said]:
    """Simulate a case, and forecast it as often as it says from what is known then."""
    bare, site = case.make()
    workload, nodes = with_users_limits(bare), site.as_nodes()
    interval = {"interval_s": INTERVAL_S}
    config = parse({"manage": {"partitions": [PARTITION]}, "controller": interval})
    costs = Costs(site, speeds=True, flat_s=None, saves=PESSIMISTIC)
    setup = Setup(site, config, costs, Timing(INTERVAL_S, REQUEUE_S))
    reports = Reports(ReportModel(case.share, SIGMA), workload) if case.share else None
    scheduler, forecaster = Observed(config, nodes, reports), Forecaster(config)
    said: list[tuple[float, str, Range | None, Range, float]] = []
    next_s = case.every_s

    def look(now_s: float) -> bool:
        nonlocal next_s
        live = list(simulation.live)
        if now_s < next_s or all(job.state is JobState.RUNNING for job in live):
            return False
        next_s = now_s + case.every_s
        for job in live:
            if job.state is JobState.RUNNING:
                job.settle(now_s)
        past = Past([*scheduler.gone, *(_past(job, ended=False) for job in live)], now_s)
        at = present(now_s, nodes, live)
        made = Futures(at, config, past, scheduler.policy)
        picture = forecaster.look(made, past, case.cpu_s, scheduler.started_s)
        squeue = squeue_start(at)
        for job_id, raw in picture.raw.items():
            said.append((now_s, job_id, picture.corrected[job_id], raw, squeue(job_id)))
        return False

    ask = asking(setup, only_consolidated=False)
    simulation = Simulation(workload.jobs, scheduler, costs, setup.timing, ask, until=look)
    simulation.run()
    return [
        Said(corrected, raw, squeue_s, min(s for s in scheduler.starts[job_id] if s >= at_s) - at_s)
        for at_s, job_id, corrected, raw, squeue_s in said
    ]


class _NoCosts:
    """Jobs of which only their limits are known."""

    def speed(self, _job: TraceJob, _allocation: object) -> float:
        return 1.0

    def is_spread(self, _job: TraceJob, _allocation: object) -> bool:
        return False

    def restart_s(self, _job: TraceJob) -> float:
        return 0.0

    def save_every_s(self, _job: TraceJob) -> float:
        return 0.0

    def tells_saves(self, _job: TraceJob) -> bool:
        return False


class _ByLimits(Backfill):
    """Slurm's backfill, with the starts that it makes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self.starts: dict[str, float] = {}

    def runs(self, job: SimJob, now_s: float) -> None:
        self.starts[job.job_id] = now_s

    def holds(self, job: SimJob, limit_end_s: float) -> None:
        gpus = {self._names.index(name): held.gpu_count for name, held in job.allocation.items()}
        self._free.add({number: -count for number, count in gpus.items()})
        self._running[job.job_id] = RunningJob(limit_end_s, node_set(gpus), gpus)


def squeue_start(at: Present) -> Callable[[str], float]:
    """Return after how long each job starts if each runs for its time limit, in Slurm's order."""
    slurm, costs = _ByLimits(at.nodes), _NoCosts()
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
    given = [(one.corrected, one) for one in said if one.corrected]
    told = [(found, one) for found, one in given if found.most_s < math.inf]
    long = [found for found, _ in told if found.likely_s > LONG_S]
    held = [found.least_s <= one.waited_s <= found.most_s for found, one in told]
    half = [found.quarter_s <= one.waited_s <= found.most_of_half_s for found, one in told]
    ours = [abs(found.likely_s - one.waited_s) for found, one in told]
    slurms = [abs(one.squeue_s - one.waited_s) for _, one in told]
    width = median((f.most_s - f.least_s) / f.likely_s for f in long) if long else math.nan
    return {
        "asked": len(said),
        "given a range": len(told),
        "nine of ten held": f"{fmean(held):.1%}" if held else "",
        "half held": f"{fmean(half):.1%}" if half else "",
        "width over wait": f"{width:.1f}" if long else "",
        "median wait, s": f"{median(one.waited_s for _, one in told):,.0f}" if told else "",
        "median error, s": f"{median(ours):,.0f}" if told else "",
        "of squeue, s": f"{median(slurms):,.0f}" if told else "",
    }


@click.command("starts")
@count_option("seeds", 2, 10)
@click.option("--every", default=900.0, show_default=True, help="Seconds between two pictures.")
@click.option("--cpu", default=6.0, show_default=True, help="CPU time of a picture, in seconds.")
@click.option("--workers", type=click.IntRange(1), help="Number of processes.")
def starts(seeds: int, every: float, cpu: float, workers: int | None) -> None:
    """How often the forecast ranges of starts hold."""
    cases = [
        Case(kind, seed, share, every * (1 if kind == "paper480" else PHILLY_EVERY), cpu)
        for seed in range(1, seeds + 1)
        for kind, share in (("paper480", 0.5), ("philly-like", 0.5))
    ]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        found = dict(zip(cases, pool.map(replay, cases), strict=True))
    rows = [
        {"workload": f"{case.kind}, seed {case.seed}", **figures(said)}
        for case, said in found.items()
    ]
    everything = [one for said in found.values() for one in said]
    rows.append({"workload": "all", **figures(everything)})
    record(
        "When waiting jobs start",
        markdown(list(rows[0]), [list(map(str, row.values())) for row in rows]),
        f"paper480 on 15x4; {PHILLY_JOBS:,} Philly-like jobs at a load of {PHILLY_LOAD:g} on 16x8. "
        "Half of the jobs report; limits are as users give them; jobs have no names. A picture of "
        f"{FUTURES} futures every {every:g} s, for Philly-like jobs every "
        f"{PHILLY_EVERY * every:g} s; each waiting job counts in each picture once ranges are "
        "known. Others are not started in all futures, or too few ranges were known to correct "
        "theirs. `width` is the median over waits expected to exceed ten minutes.",
    )
