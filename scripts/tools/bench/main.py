"""The command line of the benchmarks."""

from __future__ import annotations

import click

from scripts.tools.bench.aged import aged
from scripts.tools.bench.cycle import cycle
from scripts.tools.bench.deciding import next_decision, one_decision
from scripts.tools.bench.demo import demo
from scripts.tools.bench.job_library import job_library
from scripts.tools.bench.latency import latency
from scripts.tools.bench.launch import launch
from scripts.tools.bench.monitor import monitor
from scripts.tools.bench.paper480 import testbed_workload
from scripts.tools.bench.ranges import ranges
from scripts.tools.bench.replay.course import replay
from scripts.tools.bench.site import site
from scripts.tools.bench.speed import simulator
from scripts.tools.bench.starts import starts

COMMANDS = (
    *(aged, cycle, demo, job_library, latency, launch, monitor, next_decision),
    *(one_decision, ranges, replay, simulator, site, starts, testbed_workload),
)


@click.group(commands=list(COMMANDS))
def bench() -> None:
    """Run benchmarks, and write the results into scripts/records/benchmarks.md."""
