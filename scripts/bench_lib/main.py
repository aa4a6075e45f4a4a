"""The command line of the benchmarks."""

from __future__ import annotations

from pathlib import Path

import click

from scripts.bench_lib import by_skew, cycle, in_tier, latency, monitor, speed, testbed


@click.group()
def bench() -> None:
    """Measure, and write what was measured into docs/benchmarks.md."""


@bench.command()
@click.option(
    "--trace",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A recorded trace, for 256 nodes of 8 GPUs, such as that of Philly; beside the generated.",
)
def simulator(trace: Path | None) -> None:
    """How fast the simulator is."""
    speed.measure(trace)


@bench.command()
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(1, 1000))
def paper480(seeds: int) -> None:
    """The paper's testbed workload under every policy."""
    testbed.measure(seeds)


@bench.command()
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(1, 1000))
def placement(seeds: int) -> None:
    """What it brings to place models by their skew (the paper's Fig. 12)."""
    by_skew.measure(seeds)


@bench.command()
def orders() -> None:
    """What the order inside a tier decides."""
    in_tier.measure()


@bench.command(name="monitor")
@click.option("--pairs", default=400, show_default=True, type=click.IntRange(5, 1000))
def traffic_monitor(pairs: int) -> None:
    """What the traffic monitor costs the throughput of a connection."""
    monitor.measure(pairs)


@bench.command(name="latency")
@click.option("--preemptions", default=200, show_default=True, type=click.IntRange(5, 10_000))
def preemption_latency(preemptions: int) -> None:
    """From sbatch to running on GPUs that a lower tier holds."""
    latency.measure(preemptions)


@bench.command(name="cycle")
@click.option("--jobs", default=10_000, show_default=True, type=click.IntRange(100, 100_000))
@click.option("--changes", default=1_000, show_default=True, type=click.IntRange(1, 100_000))
def controller_cycle(jobs: int, changes: int) -> None:
    """One cycle of the controller on a slurmctld with thousands of waiting jobs."""
    cycle.measure(jobs, changes)
