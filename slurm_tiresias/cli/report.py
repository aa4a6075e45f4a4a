"""``tiresias-slurm report``: what the controller did for the site in a period."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_tiresias.cli.options import json_option, takes_config, words
from slurm_tiresias.cli.screen import Screen, stdout
from slurm_tiresias.cli.times import slurm_time
from slurm_tiresias.errors import NotRunningError, RefusedError, TiresiasError, UsageError
from slurm_tiresias.extras import check_installed
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator import files
from slurm_tiresias.status import published
from slurm_tiresias.status.published import PublishedCoverage
from slurm_tiresias.status.report_query import Period, query_report
from slurm_tiresias.text import moment, printable

if TYPE_CHECKING:
    from slurm_tiresias.report.figures import Drawn, Report
    from slurm_tiresias.simulator.sim_cluster import SimCluster

SINCE = "now-7days"
MOST_SHOWN = 10
NEEDED = ("pandas",)
NEEDED_FOR_A_PAGE = (*NEEDED, "matplotlib", "jinja2")


@click.command()
@click.option(
    "-S",
    "--since",
    "since_s",
    callback=slurm_time,
    metavar="TIME",
    default=SINCE,
    show_default=True,
    help="From this moment on, in any format of sacct.",
)
@click.option(
    "-E",
    "--until",
    "until_s",
    callback=slurm_time,
    metavar="TIME",
    help="Up to this moment; otherwise until now.",
)
@click.option(
    "-u", "--user", "users", callback=words, metavar="NAME[,...]", help="Jobs of these users only."
)
@click.option(
    "-A",
    "--account",
    "accounts",
    callback=words,
    metavar="NAME[,...]",
    help="Jobs of these accounts only.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    callback=words,
    metavar="NAME[,...]",
    help="Jobs of these partitions only.",
)
@click.option("--own", is_flag=True, help="Your own jobs only; the answer is then also shorter.")
@click.option("-n", "--noheader", is_flag=True, help="Tables without headers.")
@json_option
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the report as a page with plots.",
)
@click.option(
    "--against-stock",
    "stock_cluster",
    metavar="NxG|FILE",
    help="Also simulate the same jobs without Tiresias on these nodes (as `simulate --cluster`), "
    "and compare with the best of stock Slurm and other baselines.",
)
@takes_config
def report(
    config: Config,
    since_s: float,
    until_s: float | None,
    own: bool,
    noheader: bool,
    as_json: bool,
    html_file: Path | None,
    stock_cluster: str | None,
    users: tuple[str, ...],
    accounts: tuple[str, ...],
    partitions: tuple[str, ...],
) -> None:
    """Report what the controller did in a period, by job size, user and account.

    Shows completion times and queueing by size, preemptions and their cost, the service that they
    moved, who gained and who paid by user and account, and the use of the GPUs.
    docs/how-to/monitor.md explains each figure. If jobs are private, users other than root and the
    controller's user see only their own jobs. Exit code 1: there was no managed job. Exit code 3:
    no controller runs that could answer. Exit code 15: the answer is too large, or there were too
    many requests.
    """
    check_installed("report needs", NEEDED_FOR_A_PAGE if html_file else NEEDED)
    target = html_file and files.check_writable(html_file)
    now_s = time.time()
    until_s = now_s if until_s is None else min(until_s, now_s)
    if not since_s < until_s:
        raise UsageError(
            f"The period from {moment(since_s)} to {moment(until_s)} is empty",
            "Name a --since that has passed, and an --until after it",
        )
    cluster = stock_cluster and _parse_cluster(stock_cluster)
    state_dir = Path(config.controller.state_dir)
    period = query_report(state_dir, since_s, until_s, own=own)
    found, drawn = _make_report(period, (users, accounts, partitions), state_dir, cluster or None)
    try:
        if target:
            _write(target, found, drawn)
    finally:
        _show(found, as_json, not noheader)


def _parse_cluster(spec: str) -> SimCluster:
    # numpy takes a tenth of a second to load.
    from slurm_tiresias.simulator.sim_cluster import PLACEMENTS, parse_cluster

    return parse_cluster(spec, PLACEMENTS[0])


def _make_report(
    period: Period,
    only: Sequence[tuple[str, ...]],
    state_dir: Path,
    stock_cluster: SimCluster | None,
) -> tuple[Report, Drawn]:
    ended_before_it_began = period.began_s is not None and period.began_s >= period.until_s
    if ended_before_it_began or not period.jobs:
        raise _nothing(period, any(only))
    # pandas takes half a second to load.
    from slurm_tiresias.report.figures import Filters, make_report

    filters, known = Filters(*only), _cluster(state_dir)
    if stock_cluster is None:
        report, drawn = make_report(period, filters, *known)
    else:
        from slurm_tiresias.cli.progress import progress

        with progress("baselines", len(period.jobs)) as advance:
            report, drawn = make_report(period, filters, *known, stock_cluster, advance)
    if not report.jobs.there:
        raise _nothing(period, any(only))
    return report, drawn


def _cluster(
    state_dir: Path,
) -> tuple[str, int | None, PublishedCoverage | None]:
    """Return the cluster's name, its number of managed GPUs, and how often ranges of starts have
    held, if the last state can be read."""
    try:
        state = published.read(state_dir)
    except (NotRunningError, RefusedError):
        return "", None, None
    return state.cluster, state.gpus.total or None, state.starts_held


def _nothing(period: Period, filtered: bool) -> TiresiasError:
    which = "such job" if filtered else "managed job"
    whose = f" of {printable(period.only_of)}" if period.only_of else ""
    return TiresiasError(
        f"No {which}{whose} was there from {moment(period.since_s)} to {moment(period.until_s)}",
        "Ask for more: -S now-30days" + (", or of others" if filtered else ""),
    )


def as_data(report: Report) -> dict[str, Any]:
    """Return the report for ``--json``; fields are added, never changed."""
    data = asdict(report)
    for parties, kind in ((report.users, "users"), (report.accounts, "accounts")):
        for party, fields in zip(parties, data[kind], strict=True):
            fields["balance_gpu_s"] = party.balance_gpu_s
    return data


def _write(target: Path, report: Report, drawn: Drawn) -> None:
    from slurm_tiresias.report.page import html

    files.write_whole(target, html(report, drawn))


def _show(report: Report, as_json: bool, header: bool) -> None:
    if as_json:
        click.echo(json.dumps(as_data(report), allow_nan=False))
        return
    screen = stdout()
    screen.show(lines(report, screen, header))


def lines(report: Report, screen: Screen, header: bool = True) -> Iterator[str]:
    """Yield the report for people."""
    from slurm_tiresias.report.content import parts, summary

    for sentence in summary(report):
        yield from screen.prose(sentence, indent="")
    for part in parts(report, MOST_SHOWN):
        yield ""
        yield from screen.prose(part.title, indent="", look="title")
        for sentence in part.sentences:
            yield from screen.prose(sentence, indent="")
        for number, table in enumerate(part.tables):
            if number or part.sentences:
                yield ""
            yield from screen.table(table.columns, table.rows, header)
            if table.below:
                yield from screen.prose(table.below, indent="")
        if part.course:
            yield from screen.table(part.course.columns, part.course.rows, header)
    yield ""
    yield from screen.prose(
        "The meaning and limits of each figure: docs/how-to/monitor.md", indent=""
    )
