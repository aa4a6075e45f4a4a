"""The demo's jobs in the simulator: ten seeds, since one proves little."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence

import click

from scripts.testbed.constants import replaced
from scripts.testbed.real_cluster import short_folder
from scripts.tools.bench.record import count_option, record
from scripts.tools.bench.replay.setting import BATCH_SCHED_DELAY_S, SLURM
from scripts.tools.demo.main import prepare, race, stop, three_runs
from scripts.tools.demo.mix import KINDS, SAVE_EVERY_S, make_jobs, setting
from scripts.tools.demo.screen import change, console
from scripts.tools.document import markdown
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.reports import ReportModel
from slurm_tiresias.simulator.saves import SaveModel
from slurm_tiresias.simulator.sim_cluster import Costs
from slurm_tiresias.simulator.workload import TraceJob, Workload

TIMING = Timing(interval_s=1.0, requeue_delay_s=2.5, preempting_delay_s=0.5)
"""As measured on a real Slurm (fidelity.md)."""
BASELINES = ("slurm-30d", "best-effort", "slurm")
Figure = Callable[[Sequence[Outcome]], float]


@click.command("demo")
@count_option("seeds", 10, 1000)
@count_option("real", 1, 10, least=0)
def demo(seeds: int, real: int) -> None:
    """The demo's jobs in the simulator, seed by seed, and the demo itself with the first seeds."""
    found = [simulated(seed) for seed in range(1, seeds + 1)]
    stock = [each["slurm-30d"] for each in found]
    ours = ("limits", "reports")
    rows = [
        (
            name,
            f"{statistics.median(map(figure, stock)):.1f} s",
            *(
                span([change(figure(a), figure(e[o])) for a, e in zip(stock, found, strict=True)])
                for o in ours
            ),
        )
        for name, figure in figures()
    ]
    by_seed = [
        (str(seed), *(f"{jct_s(each[name]):.1f}" for name in (*BASELINES, *ours)))
        for seed, each in enumerate(found, 1)
    ]
    measured = [in_reality(seed) for seed in range(1, real + 1)]
    record(
        "The demo",
        "Stock Slurm at its best (limits beyond its backfill's window), and how much longer (+) or "
        "shorter (-) completion times are with Tiresias: the median of the seeds, the smallest and "
        "the largest.",
        markdown(("", "stock Slurm", "Tiresias", "Tiresias, jobs save and report"), rows),
        "The average JCT in seconds by seed; `slurm` sees limits as users give them.",
        markdown(("seed", *BASELINES, *ours), by_seed),
        *measured,
    )


def in_reality(seed: int) -> str:
    """Return the figures of the demo on a real Slurm."""
    with short_folder() as folder:
        runs = three_runs(folder / "demo")
        prepare(folder / "demo")
        try:
            results = race(console(stderr=True), runs, seed)
        finally:
            stop(folder / "demo")
    stock_s = results[runs[0].name].average_jct_s
    rows = [
        (
            name,
            f"{one.average_jct_s:.1f} s ({change(stock_s, one.average_jct_s):+.0%})",
            *(f"{jct_s:.1f} s" for jct_s in one.average_jct_s_by_kind.values()),
            f"{one.median_jct_s:.1f} s",
            f"{one.makespan_s:.0f} s",
            str(one.preemptions),
            f"{one.again_share:.1%}",
        )
        for name, one in results.items()
    ]
    kinds = results[runs[0].name].average_jct_s_by_kind
    header = ("run", "average JCT", *kinds, "median", "makespan", "preemptions", "done again")
    load = f"load average {os.getloadavg()[1]:.1f} over the last five minutes"
    cores = f"{os.cpu_count()} cores, {load}"
    return f"On a real Slurm, seed {seed}, {cores}:\n\n{markdown(header, rows)}"


def simulated(seed: int) -> dict[str, tuple[Outcome, ...]]:
    jobs = tuple(
        TraceJob(
            job.name,
            job.arrives_s,
            job.gpus,
            job.needs_s,
            user=str(job.user),
            name=job.name,
            group=job.kind,
            limit_s=job.limit_min * 60.0,
        )
        for job in make_jobs(seed)
    )
    return {
        name: one(Workload(f"demo:{seed}", jobs), seed, name)
        for name in (*BASELINES, "limits", "reports")
    }


def one(workload: Workload, seed: int, name: str) -> tuple[Outcome, ...]:
    own = setting(seed)
    saves = SaveModel(((SAVE_EVERY_S, 1.0),), told=0.0)
    costs = Costs(own.site(), False, 0.0, None if name == "reports" else saves)
    setup = run.Setup(
        own.site(),
        own.config,
        costs,
        TIMING,
        slurm=SLURM,
        own_pace_s=BATCH_SCHED_DELAY_S,
        reports=ReportModel(1.0) if name == "reports" else None,
    )
    with replaced(own.constants):
        return run.simulate(workload, name if name in BASELINES else "tiresias-l", setup)


def figures() -> list[tuple[str, Figure]]:
    return [
        ("average JCT", jct_s),
        *((f"  {kind.name}", of_kind(kind.name)) for kind in KINDS),
        ("median JCT", lambda some: statistics.median(o.jct_s for o in some)),
        ("makespan", lambda some: max(o.end_s for o in some)),
    ]


def jct_s(outcomes: Sequence[Outcome]) -> float:
    return statistics.fmean(outcome.jct_s for outcome in outcomes)


def of_kind(kind: str) -> Figure:
    return lambda some: jct_s([outcome for outcome in some if outcome.job.group == kind])


def span(values: Sequence[float]) -> str:
    return f"{statistics.median(values):+.0%} ({min(values):+.0%} to {max(values):+.0%})"
