"""The speed and memory use of the simulator."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

from scripts.tools.bench.record import TRACE, record
from scripts.tools.document import markdown
from slurm_tiresias.config import parse
from slurm_tiresias.simulator.engine import Timing
from slurm_tiresias.simulator.run import Setup, fitting, simulate
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.traces import load_trace
from slurm_tiresias.simulator.workload import Workload, philly_like

FEW, MANY = 8_000, 80_000
LOAD, FULL = 0.7, 1.0
"""Offered loads. At the second, queue and preemptions grow for as long as jobs arrive, so ten times
the jobs cause more than ten times the events."""


@dataclass(frozen=True)
class Case:
    """One simulation, run in its own process."""

    name: str
    cluster: str
    policy: str
    placement: str
    trace: Path | None = None
    jobs: int = 0
    load: float = LOAD

    def workload(self) -> Workload:
        if self.trace is not None:
            return load_trace(self.trace)
        return philly_like(self.jobs, 1, parse_cluster(self.cluster, "pooled").gpus, self.load)


@dataclass(frozen=True)
class Measured:
    jobs: int
    load_s: float
    run_s: float
    peak_mb: float
    preemptions: int

    @property
    def jobs_per_s(self) -> float:
        return self.jobs / self.run_s


@click.command("simulator")
@click.option(
    "--trace",
    type=TRACE,
    help="A recorded trace for 256 nodes of 8 GPUs, such as Philly's, besides the generated one.",
)
def simulator(trace: Path | None) -> None:
    """Speed of the simulator."""
    cases = [*_of_trace(trace), *_generated()]
    rows = []
    found: dict[str, Measured] = {}
    for case in cases:
        one = found[case.name] = _in_its_own_process(case)
        rows.append(_row(case, one))
        print(" | ".join(rows[-1]), flush=True)
    header = (
        "workload, cluster, policy",
        "jobs",
        "load s",
        "run s",
        "jobs/s",
        "peak MB",
        "preempt",
    )
    few, many = (found[_name("pooled", jobs, LOAD)] for jobs in (FEW, MANY))
    growth = (many.run_s / few.run_s) / (MANY / FEW) * 10
    text = (
        f"{markdown(header, rows)}\n\n"
        f"Ten times the jobs take {growth:.1f} times as long (generated workload, load {LOAD:g}, "
        f"pooled: {FEW:,} and {MANY:,} jobs on the same cluster). At load {FULL:g} the queue grows "
        "for as long as jobs come, and the preemptions with it. A process a case; `load s` is "
        "reading or drawing the jobs. Placement and the model's overhead are simulated where it "
        "does not say pooled."
    )
    record("Speed of the simulator", text)


def _of_trace(trace: Path | None) -> Sequence[Case]:
    if trace is None:
        return []
    return [
        Case(
            f"{trace.name}, 256x8, {policy}{', pooled' if pooled else ''}",
            "256x8",
            policy,
            how,
            trace,
        )
        for policy, pooled, how in (
            ("tiresias-l", False, "skew"),
            ("tiresias-g", False, "skew"),
            ("tiresias-l", True, "pooled"),
        )
    ]


def _generated() -> Sequence[Case]:
    return [
        Case(_name(how, jobs, load), "64x4", "tiresias-l", how, jobs=jobs, load=load)
        for how, jobs, load in (
            ("skew", FEW, FULL),
            ("pooled", FEW, FULL),
            ("pooled", MANY, FULL),
            ("pooled", FEW, LOAD),
            ("pooled", MANY, LOAD),
        )
    ]


def _name(how: str, jobs: int, load: float) -> str:
    return f"philly-like {jobs:,}, load {load:g}, 64x4, tiresias-l{', pooled' * (how == 'pooled')}"


def _row(case: Case, one: Measured) -> Sequence[str]:
    return (
        case.name,
        f"{one.jobs:,}",
        f"{one.load_s:.1f}",
        f"{one.run_s:.2f}",
        f"{one.jobs_per_s:,.0f}",
        f"{one.peak_mb:.0f}",
        f"{one.preemptions:,}",
    )


def _in_its_own_process(case: Case) -> Measured:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, case).result()


def _measured(case: Case) -> Measured:
    site = parse_cluster(case.cluster, case.placement)
    config = parse(
        {
            "policy": {"thresholds_gpu_s": [3200]},
            "preemption": {"min_run_s": 0, "budget_share": 0},
        }
    )
    pooled = case.placement == "pooled"
    costs = Costs(site, speeds=not pooled, flat_s=0.0 if pooled else None)
    began_s = time.perf_counter()
    workload, _ = fitting(case.workload(), site)
    loaded_s = time.perf_counter()
    outcomes = simulate(workload, case.policy, Setup(site, config, costs, Timing()))
    ended_s = time.perf_counter()
    return Measured(
        jobs=len(outcomes),
        load_s=loaded_s - began_s,
        run_s=ended_s - loaded_s,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        preemptions=sum(outcome.preemptions for outcome in outcomes),
    )
