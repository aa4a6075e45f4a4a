"""The text of a comparison on a terminal: its inputs, and three tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurm_tiresias.cli.screen import Screen
from slurm_tiresias.gpu_hours import hours
from slurm_tiresias.simulator.report import (
    PAYS_ABOVE,
    SHORT_S,
    SMALL_GPUS,
    BinFigures,
    FairShareFigures,
    Figures,
    Multiples,
    Report,
    Result,
    ratio,
)
from slurm_tiresias.simulator.seeds import Record, Spread, spreads
from slurm_tiresias.simulator.who_pays import Group, baseline_of, who_pays
from slurm_tiresias.table import Column
from slurm_tiresias.text import NOTHING, duration, or_dash, printable

LABEL_CELLS = 11
MOST_SHOWN = 20
MULTIPLE = "{:.2f}".format


@dataclass(frozen=True, slots=True)
class _Row:
    """One policy's line in each table."""

    report: Report
    result: Result

    @property
    def figures(self) -> Figures:
        return self.result.figures

    @property
    def reference(self) -> Figures:
        return self.report.reference.figures

    @property
    def over_fair_share(self) -> FairShareFigures:
        return self.report.over_fair_share(self.result)

    def times(self, figure: str) -> str:
        """Return one of its figures as a multiple of the reference's."""
        multiple = ratio(getattr(self.figures, figure), getattr(self.reference, figure))
        return or_dash(multiple, MULTIPLE)


POLICY: Column[_Row] = Column("POLICY", lambda row: row.result.label)

COMPLETION: Sequence[Column[_Row]] = (
    POLICY,
    Column("AVERAGE", lambda row: duration(row.figures.average_jct_s), right=True),
    Column("MEDIAN", lambda row: duration(row.figures.median_jct_s), right=True),
    Column("P95", lambda row: duration(row.figures.p95_jct_s), right=True),
    Column("MAKESPAN", lambda row: duration(row.figures.makespan_s), right=True, goes=2),
    Column("xAVG", lambda row: row.times("average_jct_s"), right=True),
    Column("xMED", lambda row: row.times("median_jct_s"), right=True, goes=4),
    Column("xP95", lambda row: row.times("p95_jct_s"), right=True, goes=3),
    Column("xMAKE", lambda row: row.times("makespan_s"), right=True, goes=1),
    Column(
        "xBOUND",
        lambda row: or_dash(row.report.over_the_bound(row.result), MULTIPLE),
        right=True,
        goes=5,
    ),
)

FAIR_SHARE: Sequence[Column[_Row]] = (
    POLICY,
    Column("MEDIAN", lambda row: f"{row.over_fair_share.median:.2f}", right=True),
    Column("P99", lambda row: f"{row.over_fair_share.p99:.2f}", right=True),
    Column("MOST", lambda row: f"{row.over_fair_share.most:.2f}", right=True),
    Column(
        f"ABOVE {PAYS_ABOVE:g}",
        lambda row: f"{row.over_fair_share.above_twice_share:.1%}",
        right=True,
    ),
)

COST: Sequence[Column[_Row]] = (
    POLICY,
    Column("AVERAGE", lambda row: duration(row.figures.average_wait_s), right=True),
    Column("MEDIAN", lambda row: duration(row.figures.median_wait_s), right=True, goes=4),
    Column("P95", lambda row: duration(row.figures.p95_wait_s), right=True, goes=3),
    Column("PREEMPT", lambda row: f"{row.figures.preemptions:,}", right=True),
    Column("PROMOTE", lambda row: f"{row.figures.promotions:,}", right=True, goes=2),
    Column("LOST-GPU-H", lambda row: hours(row.figures.lost_gpu_s), right=True, goes=1),
    Column("LOST", lambda row: f"{row.figures.lost_share:.1%}", right=True),
    Column("GPU-USE", lambda row: f"{row.figures.gpu_use:.0%}", right=True),
)


AGAIN: Column[_Row] = Column("AGAIN", lambda row: f"{row.figures.again_share:.1%}", right=True)
"""Shown if the way programs save is simulated."""

FAILED: Sequence[Column[_Row]] = (
    Column("FAILED", lambda row: f"{row.figures.failures:,}", right=True),
    Column("GOODPUT", lambda row: f"{row.figures.goodput:.1%}", right=True),
)
"""Shown if failures of nodes are simulated."""


def lines(report: Report, screen: Screen) -> Iterator[str]:
    """Yield the whole comparison."""
    rows = [_Row(report, result) for result in report.results]
    bins = [_bin_column(n, found) for n, found in enumerate(report.reference.figures.bins)]
    yield from _head(report, screen)
    yield ""
    bound = duration(report.lower_bound_jct_s)
    yield from screen.prose(
        f"Job completion time. The x columns are in multiples of {report.reference.policy}; "
        f"xBOUND of the lower bound, {bound}: no scheduler's average is below it.",
        indent="",
    )
    yield from screen.table(COMPLETION, rows)
    yield ""
    yield from screen.prose(
        f"Average by kind of job: small (up to {SMALL_GPUS} GPUs) or large, then short (under "
        f"{SHORT_S:g} s) or long, and how many of them.",
        indent="",
    )
    yield from screen.table((POLICY, *bins), rows)
    yield ""
    yield from screen.prose(
        "Who pays: completion times in multiples of those with a fair share, that is if all jobs "
        f"shared the GPUs evenly at all times; and how many jobs take more than {PAYS_ABOVE:g} "
        "times as long.",
        indent="",
    )
    yield from screen.table(FAIR_SHARE, rows)
    yield ""
    saves = report.setup.costs.saves
    again = " Again: GPU time of work that was not saved, and was done again." if saves else ""
    yield from screen.prose(
        "Queueing delay, and what preemption costs. Lost: GPU time held while jobs saved and "
        f"loaded.{again}",
        indent="",
    )
    columns = (*COST, AGAIN) if saves else COST
    if report.setup.failures:
        columns = (*columns, *FAILED)
    yield from screen.table(columns, rows)


def who_pays_lines(report: Report, by: str, screen: Screen) -> Iterator[str]:
    """Yield the table of who pays under the reference policy."""
    groups = who_pays(report, report.reference, by)[:MOST_SHOWN]
    baseline = baseline_of(report)
    stock = f" and under {baseline.label} (S)" if baseline else ""
    yield ""
    yield from screen.prose(
        f"Who pays under {report.reference.policy}: completion times in multiples of those with a "
        f"fair share (F){stock}, and how many jobs take more than {PAYS_ABOVE:g} times as long.",
        indent="",
    )
    columns = [
        Column(by.upper(), lambda row: printable(row.name) or NOTHING, least=8),
        Column("JOBS", lambda row: f"{row.jobs:,}", right=True),
        *_multiples("F", lambda row: row.over_fair_share),
    ]
    if any(group.over_stock for group in groups):
        columns += _multiples("S", lambda row: row.over_stock)
    yield from screen.table(columns, groups)


def seeds_lines(report: Report, seeds: Sequence[Sequence[Record]], screen: Screen) -> Iterator[str]:
    """Yield the medians and ranges of several seeds, and on each seed the ratios of the first
    policy besides the reference; ``report`` is the first seed's."""
    reference = report.reference.policy
    yield from _head(report, screen)
    yield ""
    yield from screen.prose(
        f"Completion times in multiples of those of {reference}, and GPU time of work that was "
        f"done again: medians of {len(seeds)} seeds, and the smallest and largest values. The "
        "above describes the first.",
        indent="",
    )
    figures = (("xAVG", "avg_jct"), ("xMED", "median_jct"), ("xP95", "p95_jct"))
    yield from screen.table(
        (
            Column("POLICY", lambda row: row[0]),
            *(_spread(title, figure, "{:.2f}") for title, figure in figures),
            _spread("AGAIN", "again_share", "{:.1%}"),
        ),
        list(spreads(seeds).items()),
    )
    others = [name for name in spreads(seeds) if name != reference]
    rows = [one for seed in seeds for one in seed if one["policy"] in others[:1]]
    if not rows:
        return
    yield ""
    yield from screen.table(
        (
            Column("SEED", lambda row: printable(row["workload"])),
            Column("POLICY", lambda row: row["baseline"] or row["policy"]),
            *(Column(title, _multiple_of(figure), right=True) for title, figure in figures),
        ),
        rows,
    )


def _multiple_of(figure: str) -> Callable[[Record], str]:
    return lambda row: or_dash(row["over_reference"][figure], MULTIPLE)


def _spread(title: str, figure: str, shown: str) -> Column[tuple[str, Mapping[str, Spread | None]]]:
    def words(spread: Spread) -> str:
        median, least, most = map(shown.format, (spread.median, spread.least, spread.most))
        return f"{median} ({least}-{most})"

    return Column(title, lambda row: or_dash(row[1][figure], words), right=True)


def _multiples(of: str, found: Callable[[Group], Multiples | None]) -> Sequence[Column[Group]]:
    def column(title: str, value: Callable[[Multiples], str], goes: int) -> Column[Group]:
        return Column(
            f"{title} {of}", lambda row: or_dash(found(row), value), right=True, goes=goes
        )

    return (
        column("MEDIAN", lambda times: f"{times.median:,.2f}", 3),
        column("P99", lambda times: f"{times.p99:,.2f}", 2),
        column("MOST", lambda times: f"{times.most:,.2f}", 4),
        column(f"ABOVE {PAYS_ABOVE:g}", lambda times: f"{times.above_twice:,}", 1),
    )


def _head(report: Report, screen: Screen) -> Iterator[str]:
    notes = (*report.workload.notes, *report.left_out())
    for name, value in (*report.facts(), *(("note", note) for note in notes)):
        text = screen.prose(printable(value), indent=" " * LABEL_CELLS)
        yield name.ljust(LABEL_CELLS) + text[0].lstrip()
        yield from text[1:]


def _bin_column(number: int, found: BinFigures) -> Column[_Row]:
    title = f"{found.name} ({found.jobs:,})"
    return Column(
        title, lambda row: or_dash(row.figures.bins[number].average_jct_s, duration), right=True
    )
