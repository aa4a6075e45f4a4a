"""``tiresias-slurm simulate``: what a policy would have done, by the controller's own decision."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from slurm_tiresias.cli import table
from slurm_tiresias.cli.screen import stdout
from slurm_tiresias.cli.table import Column
from slurm_tiresias.cli.text import count, duration, printable
from slurm_tiresias.config import ORDERS, Config, parse
from slurm_tiresias.errors import UsageError
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.engine import Timing
from slurm_tiresias.simulator.report import Figures, figures
from slurm_tiresias.simulator.traces import AUTO, FORMATS, load_trace
from slurm_tiresias.simulator.workload import PUBLISHED_SEED, Workload, paper480
from slurm_tiresias.simulator.world import PLACEMENTS, Costs, parse_site

REFERENCE = "tiresias-l"
"""The policy that the others are given as multiples of, where it was run."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One policy's line of the table."""

    policy: str
    figures: Figures
    reference: Figures | None

    def ratio(self) -> str:
        if self.reference is None or not self.reference.average_jct_s:
            return "-"
        return f"{self.figures.average_jct_s / self.reference.average_jct_s:.2f}"


COLUMNS: Sequence[Column[_Row]] = (
    Column("POLICY", lambda row: row.policy),
    Column("AVERAGE", lambda row: duration(row.figures.average_jct_s), right=True),
    Column("MEDIAN", lambda row: duration(row.figures.median_jct_s), right=True),
    Column("P95", lambda row: duration(row.figures.p95_jct_s), right=True),
    Column("MAKESPAN", lambda row: duration(row.figures.makespan_s), right=True, goes=3),
    Column("WAITED", lambda row: duration(row.figures.average_wait_s), right=True, goes=2),
    Column("PREEMPT", lambda row: str(row.figures.preemptions), right=True),
    Column("GPU-USE", lambda row: f"{row.figures.gpu_use:.0%}", right=True, goes=1),
    Column("RATIO", _Row.ratio, right=True),
)


@click.command()
@click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="A trace to replay.")
@click.option("--format", "trace_format", type=click.Choice([AUTO, *FORMATS]), default=AUTO)
@click.option(
    "--workload",
    metavar="NAME[:SEED]",
    default="paper480",
    show_default=True,
    help="A generated one, where there is no trace: paper480, the 480 jobs of the paper.",
)
@click.option(
    "--cluster", "site", metavar="NxG", default="15x4", show_default=True, help="N nodes of G GPUs."
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(run.POLICIES),
    default=("yarn-cs", "srtf", "tiresias-g", "tiresias-l"),
    show_default=True,
    help="May be given several times.",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default=ORDERS[0],
    show_default=True,
    help="The order inside a tier.",
)
@click.option(
    "--thresholds",
    metavar="GPU-S[,...]",
    default="3200",
    show_default=True,
    help="Where the tiers are cut, in GPU-seconds.",
)
@click.option(
    "--promote-knob",
    type=click.FloatRange(min=0),
    default=0.0,
    help="PROMOTEKNOB of the paper; 0 is off.",
)
@click.option("--pack-limit", type=click.FloatRange(0, 1), default=0.5, show_default=True)
@click.option(
    "--placement",
    type=click.Choice(PLACEMENTS),
    default="skew",
    show_default=True,
    help="pooled counts GPUs and knows no nodes.",
)
@click.option(
    "--overhead",
    metavar="model|none|SECONDS",
    default="model",
    show_default=True,
    help="What a preemption costs.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Decide every so many seconds; 0: at every event.",
)
@click.option("--json", "as_json", is_flag=True, help="The same for programs.")
def simulate(
    trace: Path | None,
    trace_format: str,
    workload: str,
    site: str,
    policies: Sequence[str],
    order: str,
    thresholds: str,
    promote_knob: float,
    pack_limit: float,
    placement: str,
    overhead: str,
    interval_s: float,
    as_json: bool,
) -> None:
    """Replay a trace or a workload under one policy or several, and compare.

    The decision is the one that the controller takes; times are simulated.
    """
    jobs = load_trace(trace, trace_format) if trace else _generated(workload)
    where = parse_site(site, placement)
    setup = run.Setup(
        site=where,
        config=_config(order, thresholds, promote_knob, pack_limit),
        costs=Costs(where, speeds=overhead != "none", flat_s=_flat_s(overhead)),
        timing=Timing(interval_s),
    )
    fitting, wide = run.fitting(jobs, where)
    if not fitting.jobs:
        raise UsageError(f"No job of {printable(jobs.name)} fits {site}", "Name a larger --cluster")
    results = {
        policy: figures(_run(fitting, policy, setup), where.gpus)
        for policy in dict.fromkeys(policies)
    }
    if as_json:
        click.echo(json.dumps(_answer(fitting, len(wide), results)))
        return
    rows = [_Row(policy, found, results.get(REFERENCE)) for policy, found in results.items()]
    screen = stdout()
    screen.show(_preamble(fitting, len(wide), site))
    screen.show(table.lines(table.that_fit(COLUMNS, rows, screen), rows, screen))


def _generated(name: str) -> Workload:
    match = re.fullmatch(r"paper480(?::(\d{1,9}))?", name)
    if match is None:
        raise UsageError(f"{name!r} is no workload", "Write paper480 or paper480:SEED")
    return paper480(int(match[1]) if match[1] else PUBLISHED_SEED)


def _config(order: str, thresholds: str, promote_knob: float, pack_limit: float) -> Config:
    try:
        numbers = [float(number) for number in thresholds.split(",")]
    except ValueError as error:
        raise UsageError(
            f"--thresholds {thresholds!r} is no list of numbers",
            "Write GPU-seconds, like 3600,18000",
        ) from error
    policy = {"order": order, "thresholds_gpu_s": numbers, "promote_knob": promote_knob}
    guards = {"min_run_s": 0, "max_victims_per_cycle": 10**9}
    placement = {"pack_limit": pack_limit}
    return parse(
        {"policy": policy, "preemption": guards, "placement": placement}, "the command line"
    )


def _flat_s(overhead: str) -> float | None:
    if overhead == "model":
        return None
    if overhead == "none":
        return 0.0
    try:
        seconds = float(overhead)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < 1e9:
        raise UsageError(f"--overhead {overhead!r} is none", "Write model, none, or seconds")
    return seconds


def _run(workload: Workload, policy: str, setup: run.Setup) -> Any:
    with _progress(policy, len(workload.jobs)) as told:
        return run.simulate(workload, policy, setup, told)


@contextmanager
def _progress(policy: str, jobs: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while somebody watches it."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(policy, total=jobs)
        yield lambda done: bar.update(task, completed=done)


def _preamble(workload: Workload, wide: int, site: str) -> Iterator[str]:
    yield f"{printable(workload.name)}: {count(len(workload.jobs), 'job')} on {site}"
    yield from map(printable, workload.what_was_dropped())
    if wide:
        yield f"{count(wide, 'job')} left out: wider than the cluster"


def _answer(workload: Workload, wide: int, results: dict[str, Figures]) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "jobs": len(workload.jobs),
        "dropped": len(workload.dropped),
        "wider_than_the_cluster": wide,
        "policies": {policy: asdict(found) for policy, found in results.items()},
    }
