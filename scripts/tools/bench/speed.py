"""The speed and memory use of the simulator."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path

import click

from scripts.tools.bench.record import TRACE, in_its_own_process, record
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


THRESHOLD = {
    "policy": {"thresholds_gpu_s": [3200]},
    "preemption": {"min_run_s": 0, "budget_share": 0},
}


@dataclass(frozen=True)
class Case:
    """One simulation, run in its own process."""

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

    def __str__(self) -> str:
        drawn = f"philly-like {self.jobs:,}, load {self.load:g}"
        work = self.trace.name if self.trace else drawn
        pooled = ", pooled" * (self.placement == "pooled")
        return f"{work}, {self.cluster}, {self.policy}{pooled}"


@click.command("simulator")
@click.option(
    "--trace",
    type=TRACE,
    help="A recorded trace for 256 nodes of 8 GPUs, such as Philly's, besides the generated one.",
)
def simulator(trace: Path | None) -> None:
    """Speed of the simulator."""
    cases = [
        Case("256x8", policy, placement, trace)
        for policy, placement in (
            *(("tiresias-l", "skew"), ("tiresias-g", "skew")),
            ("tiresias-l", "pooled"),
        )
        if trace
    ]
    few, many = (Case("64x4", "tiresias-l", "pooled", jobs=jobs) for jobs in (FEW, MANY))
    cases += [replace(few, placement="skew", load=FULL), replace(few, load=FULL)]
    cases += [replace(many, load=FULL), few, many]
    rows, took_s = [], {}
    for case in cases:
        jobs, load_s, run_s, peak_mb, preemptions = in_its_own_process(_measured, case)
        took_s[case] = run_s
        figures = (f"{load_s:.1f}", f"{run_s:.2f}", f"{jobs / run_s:,.0f}", f"{peak_mb:.0f}")
        rows.append((str(case), f"{jobs:,}", *figures, f"{preemptions:,}"))
        print(" | ".join(rows[-1]), flush=True)
    header = ("workload, cluster, policy", "jobs", "load s", "run s", "jobs/s")
    growth = (took_s[many] / took_s[few]) / (MANY / FEW) * 10
    text = (
        f"{markdown((*header, 'peak MB', 'preempt'), rows)}\n\n"
        f"Ten times the jobs take {growth:.1f} times as long (generated workload, load {LOAD:g}, "
        f"pooled: {FEW:,} and {MANY:,} jobs on the same cluster). At load {FULL:g} the queue grows "
        "for as long as jobs come, and the preemptions with it. A process a case; `load s` is "
        "reading or drawing the jobs. Placement and the model's overhead are simulated where it "
        "does not say pooled."
    )
    record("Speed of the simulator", text)


def _measured(case: Case) -> tuple[int, float, float, float, int]:
    """Return jobs, seconds to load and to run them, peak memory in MB, and preemptions."""
    site = parse_cluster(case.cluster, case.placement)
    pooled = case.placement == "pooled"
    costs = Costs(site, speeds=not pooled, flat_s=0.0 if pooled else None)
    began_s = time.perf_counter()
    workload, _ = fitting(case.workload(), site)
    loaded_s = time.perf_counter()
    outcomes = simulate(workload, case.policy, Setup(site, parse(THRESHOLD), costs, Timing()))
    run_s = time.perf_counter() - loaded_s
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    preemptions = sum(outcome.preemptions for outcome in outcomes)
    return len(outcomes), loaded_s - began_s, run_s, peak_mb, preemptions
