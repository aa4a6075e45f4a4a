"""``tiresias-slurm shadow report``: what shadow mode would have done, compared with what Slurm
did."""

from __future__ import annotations

import shlex
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import click

from slurm_tiresias.cli.options import config_option, config_path, json_option, takes_config
from slurm_tiresias.cli.screen import Screen, show_or_json
from slurm_tiresias.cli.times import slurm_time
from slurm_tiresias.errors import NotRunningError, TiresiasError
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.sizes import WIDTHS, width_title
from slurm_tiresias.status.shadow_comparison import (
    SHADOW,
    EarlierStart,
    ShadowComparison,
    ShadowVictim,
    compare_shadow,
)
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.terms import newest_ledger
from slurm_tiresias.table import Column
from slurm_tiresias.text import NOTHING, count, duration, moment, or_dash, printable

SHADOW_SCHEMA = 1
LEAST_INTERVALS = 2
"""Cycles by which a start must differ to count: small differences to Slurm are chance."""

MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Width:
    """Jobs with a similar number of GPUs, and how many seconds sooner each would have started."""

    title: str
    sooner_s: tuple[float, ...]


@click.group(no_args_is_help=False)
@config_option
def shadow() -> None:
    """What the controller would have done in shadow mode."""


@shadow.command()
@click.option(
    "--since",
    "since_s",
    callback=slurm_time,
    metavar="TIME",
    help="From this day or moment on; otherwise since shadow mode last began.",
)
@json_option
@takes_config
def report(config: Config, since_s: float | None, as_json: bool) -> None:
    """Compare what shadow mode would have done with what Slurm did.

    Reads the ledger, so it is for the controller's user and root. Exit code 1: the controller was
    never in shadow mode.
    """
    found = _found(config, since_s)
    show_or_json(as_json, lambda: as_data(found), lambda screen: lines(found, screen))


def _found(config: Config, since_s: float | None) -> ShadowComparison:
    path = newest_ledger(Path(config.controller.state_dir))
    if not path.exists():
        raise NotRunningError(
            f"There is no ledger in {path.parent}",
            "Start a controller in shadow mode: tiresias-slurm controller --shadow",
        )
    least_s = LEAST_INTERVALS * config.controller.interval_s
    with closing(Ledger.to_read(path)) as ledger:
        found = compare_shadow(ledger, since_s, time.time(), least_s)
    if found is None:
        set_it = 'Set mode = "shadow" in the configuration, restart'
        raise TiresiasError(
            "The controller was never in shadow mode",
            f"{'Restart' if config.controller.mode == SHADOW else set_it} the controller, and ask "
            "again in a week",
        )
    return found


def as_data(found: ShadowComparison) -> dict[str, object]:
    """Return the report for ``--json``; fields are added, never changed."""
    sooner = [{**asdict(one), "by_s": one.by_s} for one in found.sooner]
    return {"schema": SHADOW_SCHEMA, **asdict(found), "sooner": sooner}


def lines(found: ShadowComparison, screen: Screen) -> Iterator[str]:
    """Yield the report for people."""
    span = duration(found.until_s - found.since_s)
    yield from screen.prose(
        f"Shadow mode since {moment(found.since_s)}, {span}: "
        f"{count(found.jobs, 'managed job')} existed.",
        indent="",
    )
    yield ""
    yield from _gained(found.sooner, screen)
    yield ""
    yield from _paid(found.disturbed, screen)
    yield ""
    yield from screen.prose(
        "Each job is judged alone, as if the rest of the queue had stayed as it was. The effect on "
        "all jobs together, if Slurm keeps accounts:",
        indent="",
    )
    since = f"{datetime.fromtimestamp(found.since_s):%Y-%m-%d}"
    yield f"    tiresias-slurm simulate --from-sacct --since {since} \\"
    yield f"        --config {shlex.quote(str(config_path()))} --cluster NODESxGPUS"


def _gained(sooner: Sequence[EarlierStart], screen: Screen) -> Iterator[str]:
    if not sooner:
        yield from screen.prose("No job would have started sooner.", indent="")
        return
    by_s = [one.by_s for one in sooner]
    yield from screen.prose(
        f"{count(len(sooner), 'job')} would have started sooner: "
        f"{duration(statistics.median(by_s))} in the median, {duration(statistics.mean(by_s))} on "
        f"average, {duration(max(by_s))} at most.",
        indent="",
    )
    yield ""
    yield from screen.table(WIDTH_COLUMNS, _by_width(sooner))
    yield ""
    yield screen.style("Those that would have gained most", "title")
    yield from screen.table(EARLIER_COLUMNS, sooner[:MOST_SHOWN])


def _by_width(sooner: Sequence[EarlierStart]) -> list[Width]:
    started = [(one.gpus, one.by_s) for one in sooner if one.gpus is not None]
    rows = []
    for low, high in WIDTHS:
        by_s = [by_s for gpus, by_s in started if gpus >= low and (high is None or gpus <= high)]
        rows.append(Width(width_title(low, high), tuple(by_s)))
    rows.append(Width("never ran", tuple(one.by_s for one in sooner if one.gpus is None)))
    return [row for row in rows if row.sooner_s]


def _paid(disturbed: Sequence[ShadowVictim], screen: Screen) -> Iterator[str]:
    if not disturbed:
        yield from screen.prose("No job would have been preempted.", indent="")
        return
    times = sum(one.times for one in disturbed)
    yield from screen.prose(
        f"{count(len(disturbed), 'job')} would have been preempted, {count(times, 'time')} in all "
        f"and at most {count(disturbed[0].times, 'time')} each.",
        indent="",
    )
    yield ""
    yield from screen.table(VICTIM_COLUMNS, disturbed[:MOST_SHOWN])


WIDTH_COLUMNS: tuple[Column[Width], ...] = (
    Column("GPUS", lambda row: row.title),
    Column("JOBS", lambda row: f"{len(row.sooner_s)}", right=True),
    Column("MEDIAN", lambda row: duration(statistics.median(row.sooner_s)), right=True),
    Column("MEAN", lambda row: duration(statistics.mean(row.sooner_s)), right=True),
    Column("MOST", lambda row: duration(max(row.sooner_s)), right=True),
)

EARLIER_COLUMNS: tuple[Column[EarlierStart], ...] = (
    Column("JOBID", lambda one: printable(one.job_id), right=True),
    Column("USER", lambda one: printable(one.user) or NOTHING, least=6, goes=2),
    Column("NAME", lambda one: printable(one.name) or NOTHING, least=8, goes=1),
    Column("GPUS", lambda one: or_dash(one.gpus, str), right=True),
    Column("WOULD START", lambda one: moment(one.would_start_s), goes=3),
    Column("SOONER BY", lambda one: duration(one.by_s), right=True),
)

VICTIM_COLUMNS: tuple[Column[ShadowVictim], ...] = (
    Column("JOBID", lambda one: printable(one.job_id), right=True),
    Column("USER", lambda one: printable(one.user) or NOTHING, least=6, goes=2),
    Column("NAME", lambda one: printable(one.name) or NOTHING, least=8, goes=1),
    Column("WOULD BE PREEMPTED", lambda one: count(one.times, "time"), right=True),
)
