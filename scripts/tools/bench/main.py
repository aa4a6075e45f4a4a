"""The command line of the benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from scripts.tools.bench import (
    aged,
    beyond,
    by_skew,
    cycle,
    deciding,
    drivers,
    estimates,
    eta,
    in_memory,
    in_tier,
    job_library,
    latency,
    launch,
    monitor,
    paper480,
    printing,
    progress,
    ranges,
    saves,
    slowdown,
    speed,
    start,
)
from scripts.tools.bench.replay import course
from scripts.tools.bench.replay.policies import POLICIES
from scripts.tools.fidelity.limits import DAY, LIMITS

TRACE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group()
def bench() -> None:
    """Run benchmarks, and write the results into scripts/records/benchmarks.md."""


@bench.command()
@click.option(
    "--trace",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A recorded trace for 256 nodes of 8 GPUs, such as Philly's, besides the generated one.",
)
def simulator(trace: Path | None) -> None:
    """Speed of the simulator."""
    speed.measure(trace)


@bench.command(name="decide")
def one_decision() -> None:
    """Time of one decision, by jobs and nodes."""
    deciding.measure()


@bench.command(name="decide-next")
def next_decision() -> None:
    """Time of a decision when few jobs have changed since the last."""
    deciding.measure_kept()


@bench.command(name="paper480")
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(1, 1000))
def testbed_workload(seeds: int) -> None:
    """The paper's testbed workload under every policy."""
    paper480.measure(seeds)


@bench.command()
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(1, 1000))
def placement(seeds: int) -> None:
    """The benefit of placing models by their skew (the paper's Fig. 12)."""
    by_skew.measure(seeds)


@bench.command()
def orders() -> None:
    """The effect of the order inside a tier."""
    in_tier.measure()


@bench.command(name="beyond")
@click.option("--philly", type=TRACE, help="The Philly trace, as a file.")
@click.option("--itp", type=TRACE, help="The ITP trace, as a file.")
@click.option(
    "--fresh", is_flag=True, help="Use other seeds and sections, as a check of the default."
)
@click.option(
    "--workers", type=click.IntRange(1), help="Number of processes. Default: one per core."
)
def beyond_the_paper(
    philly: Path | None, itp: Path | None, fresh: bool, workers: int | None
) -> None:
    """How close a policy that knows no durations comes to a clairvoyant one."""
    beyond.measure(philly, itp, fresh, workers)


@bench.command(name="estimates")
@click.option("--philly", type=TRACE, help="The Philly trace, as a file.")
@click.option("--itp", type=TRACE, help="The ITP trace, as a file.")
@click.option(
    "--fresh", is_flag=True, help="Use other seeds and sections, as a check of the rules."
)
@click.option(
    "--workers", type=click.IntRange(1), help="Number of processes. Default: one per core."
)
def what_jobs_tell(philly: Path | None, itp: Path | None, fresh: bool, workers: int | None) -> None:
    """The benefit of estimating remaining service, and the cost of false reports."""
    estimates.measure(philly, itp, fresh, workers)


@bench.command(name="saves")
@click.option("--philly", type=TRACE, help="The Philly trace, as a file.")
@click.option("--itp", type=TRACE, help="The ITP trace, as a file.")
@click.option(
    "--fresh", is_flag=True, help="Use other seeds and sections, as a check of the rules."
)
@click.option(
    "--workers", type=click.IntRange(1), help="Number of processes. Default: one per core."
)
def work_done_again(
    philly: Path | None, itp: Path | None, fresh: bool, workers: int | None
) -> None:
    """How much work preemptions make jobs repeat, and the cost of avoiding it."""
    saves.measure(philly, itp, fresh, workers)


@bench.command(name="slowdown")
@click.option("--philly", type=TRACE, help="The Philly trace, as a file.")
@click.option("--itp", type=TRACE, help="The ITP trace, as a file.")
@click.option(
    "--workers", type=click.IntRange(1), help="Number of processes. Default: one per core."
)
def bound_on_slowdown(philly: Path | None, itp: Path | None, workers: int | None) -> None:
    """The cost of a bound on the slowdown, and how many jobs stay within it."""
    slowdown.measure(philly, itp, workers)


@bench.command(name="monitor")
@click.option("--pairs", default=400, show_default=True, type=click.IntRange(5, 1000))
def traffic_monitor(pairs: int) -> None:
    """How much throughput of a connection the traffic monitor costs."""
    monitor.measure(pairs)


@bench.command(name="output")
@click.option("--pairs", default=40, show_default=True, type=click.IntRange(5, 1000))
def printed_lines(pairs: int) -> None:
    """The cost of a print when the monitor searches it for progress."""
    printing.measure(pairs)


@bench.command(name="launch")
@click.option("--rounds", default=200, show_default=True, type=click.IntRange(5, 10_000))
def job_launch(rounds: int) -> None:
    """The cost of the SPANK plugin when a job is launched."""
    launch.measure(rounds)


@bench.command(name="start")
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(1, 1000))
def start_of_commands(rounds: int) -> None:
    """How long each command takes to start."""
    start.measure(rounds)


@bench.command(name="latency")
@click.option("--preemptions", default=200, show_default=True, type=click.IntRange(5, 10_000))
def preemption_latency(preemptions: int) -> None:
    """The period from sbatch until a job runs on GPUs that a lower tier held."""
    latency.measure(preemptions)


@bench.command(name="cycle")
@click.option("--jobs", default=10_000, show_default=True, type=click.IntRange(100, 100_000))
@click.option("--changes", default=1_000, show_default=True, type=click.IntRange(1, 100_000))
def controller_cycle(jobs: int, changes: int) -> None:
    """One cycle of the controller with thousands of waiting jobs in slurmctld."""
    cycle.measure(jobs, changes)


@bench.command(name="aged")
@click.option(
    "--jobs",
    "sizes",
    multiple=True,
    default=(10_000, 1_000_000),
    show_default=True,
    type=click.IntRange(1_000, 10_000_000),
    help="Number of ended jobs; may be repeated.",
)
def aged_ledger(sizes: tuple[int, ...]) -> None:
    """Starts, cycles, failovers and queries with a ledger of this many ended jobs."""
    aged.measure(sizes)


@bench.command(name="drivers")
@click.option(
    "--jobs",
    "sizes",
    multiple=True,
    default=(2_000, 10_000),
    show_default=True,
    type=click.IntRange(1_000, 100_000),
    help="Number of waiting jobs; may be repeated.",
)
def reading_and_writing(sizes: tuple[int, ...]) -> None:
    """The cost of reads and writes with each driver for the installed Slurm."""
    drivers.measure(sizes)


@bench.command(name="job-library")
def library_for_jobs() -> None:
    """The cost of the job library in a training loop."""
    job_library.measure()


@bench.command(name="ranges")
@click.option("--first-seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--runs", default=100, show_default=True, type=click.IntRange(1, 10_000))
def ranges_of_time_left(first_seed: int, runs: int) -> None:
    """How often the range of the time that is left holds the true end, on made-up trainings."""
    ranges.measure(first_seed, runs)


@bench.command(name="eta")
def estimates_of_the_time_left() -> None:
    """Accuracy of the estimated time left, on a real cluster (ten minutes)."""
    eta.measure()


@bench.command(name="progress")
def progress_of_all_jobs() -> None:
    """The cost of a cycle in which all jobs report progress."""
    progress.measure()


@bench.command(name="in-memory")
def in_memory_slurm() -> None:
    """How many cycles per second the in-memory Slurm can run."""
    in_memory.measure()


@bench.command(name="replay")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(list(POLICIES)),
    help="A policy to run, even if it has run; may be repeated. Default: those not run yet.",
)
@click.option("--jobs", default=480, show_default=True, type=click.IntRange(4, 480))
@click.option("--seed", default=1, show_default=True)
@click.option("--nodes", default=15, show_default=True, type=click.IntRange(1, 64))
@click.option("--gpus", default=4, show_default=True, type=click.IntRange(1, 16))
@click.option(
    "--limits",
    type=click.Choice(LIMITS),
    default=DAY,
    show_default=True,
    help="The jobs' time limits: a day for each, or distributed like users' limits.",
)
@click.option(
    "--factor",
    type=click.FloatRange(4, 400),
    help="The speedup. Default: a preemption costs relatively as much as on the paper's testbed.",
)
@click.option(
    "--into",
    default=course.default_results,
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder that keeps the results of each policy.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder for the clusters. Default: in /tmp.",
)
@click.option("--report", "report_only", is_flag=True, help="Run nothing; report what has run.")
def replay_on_slurm(**options: Any) -> None:
    """The paper's jobs on a real Slurm, one policy at a time; all 480 take over an hour."""
    sys.exit(course.run(course.Options(**options)))
