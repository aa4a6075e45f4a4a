"""The figures of the page, as SVG that takes its colours from the page's style sheet.

The same report gives the same bytes: ids follow from a fixed salt, and nothing is dated.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from slurm_tiresias.simulator import curves, spans
from slurm_tiresias.simulator.curves import Curve
from slurm_tiresias.simulator.report import BINS, Report, Result

INK, RULE = "#fd0000", "#fd0001"
SERIES = tuple(f"#fe00{number:02x}" for number in range(11))
"""No colours but marks: the page puts its own in their place, one set for light, one for dark."""

DASHES: Sequence[tuple[float, Sequence[float]]] = (
    (0, ()),
    (0, (5, 2)),
    (0, (1.5, 1.5)),
    (0, (7, 2, 1.5, 2)),
    (0, (10, 3)),
    (0, (3, 1.5, 1, 1.5, 1, 1.5)),
    (0, (2, 4)),
    (0, (12, 2, 3, 2)),
    (0, (5, 5)),
    (0, (1, 4)),
    (0, (8, 2, 1.5, 2, 1.5, 2)),
)
"""A pattern a policy, for those who cannot tell colours apart."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}
WIDE_IN, HIGH_IN = 8.4, 3.2


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure; inside it stands in words what it shows, for those who do not see it."""

    title: str
    caption: str
    svg: Markup


def pictures(report: Report) -> tuple[Picture, ...]:
    """All figures of a report, in the order of the page."""
    until_s = max(_ends_s(report), default=0.0)
    queues = [curves.queue_length(result.outcomes, until_s) for result in report.results]
    held = [curves.gpus_held(result.outcomes, until_s) for result in report.results]
    span = spans.span(until_s / curves.POINTS)
    with mpl.rc_context():
        # Not as whoever runs it likes his plots: as everybody gets them.
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        return (
            _distribution(report),
            _by_bin(report),
            _queue(report, queues, until_s, span),
            _gpu_use(report, held, until_s, span),
        )


def _ends_s(report: Report) -> Iterator[float]:
    return (outcome.end_s for result in report.results for outcome in result.outcomes)


def _distribution(report: Report) -> Picture:
    figure = Figure(figsize=(WIDE_IN, HIGH_IN), layout="constrained")
    axes = figure.subplots()
    axes.set_ylabel("share of the jobs")
    for number, result in enumerate(report.results):
        curve = curves.distribution([outcome.jct_s for outcome in result.outcomes])
        axes.step(curve.x, curve.y, where="post", label=result.policy, **_look(number))
    _logarithmic(axes, report.results)
    axes.set_ylim(0.0, 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    figure.legend(loc="outside right upper", handlelength=4)
    title = "How long jobs take"
    caption = (
        "Share of the jobs that end within a time of their submission; time is logarithmic. "
        f"At most {curves.POINTS} points of each curve are drawn."
    )
    says = _each(report.results, lambda result: spans.span(result.figures.median_jct_s))
    return Picture(title, caption, _svg(figure, title, f"Half of the jobs end within: {says}."))


def _by_bin(report: Report) -> Picture:
    results = report.results
    figure = Figure(figsize=(WIDE_IN, 1.0 + 0.28 * len(results)), layout="constrained")
    all_axes = figure.subplots(1, len(BINS), sharey=True)
    for place, (axes, (name, words)) in enumerate(zip(all_axes, BINS.items(), strict=True)):
        found = [result.figures.bins[place] for result in results]
        average_s = [each.average_jct_s or 0.0 for each in found]
        jobs = max(each.jobs for each in found)
        bars = axes.barh(range(len(results)), average_s, height=0.7, color=SERIES[0])
        axes.bar_label(bars, [spans.span(each) if each else "-" for each in average_s], padding=3)
        axes.set_title(f"{name}, {words}\n{jobs:,} jobs", loc="left")
        axes.set_xlim(0.0, max(*average_s, 1.0) * 1.75)
        axes.grid(visible=False)
        axes.xaxis.set_major_locator(NullLocator())
        axes.tick_params(left=False)
        axes.spines["bottom"].set_visible(False)
    all_axes[0].set_yticks(range(len(results)), [result.policy for result in results])
    all_axes[0].invert_yaxis()
    title = "Average by kind of job"
    caption = (
        "Average job completion time: small is up to 4 GPUs, short is under 800 s. Each column "
        "has a scale of its own. The figures stand in the second table."
    )
    return Picture(title, caption, _svg(figure, title, caption))


def _queue(report: Report, found: Sequence[Curve], until_s: float, span: str) -> Picture:
    figure, strips = _strips(report.results, found, until_s)
    # The same scale for all, up to the highest of the means: the strips are there to be compared.
    strips[0].set_ylim(0.0, max(1.0, *(float(curve.y.max()) for curve in found)) * 1.02)
    strips[0].yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
    title = "How many jobs wait"
    peaks = dict(zip((result.policy for result in report.results), found, strict=True))
    says = _each(report.results, lambda result: f"{peaks[result.policy].peak:,.0f}")
    caption = (
        f"Jobs that have come, hold no GPUs and have not ended: means of spans of {span}. "
        f"The longest queues: {says}."
    )
    return Picture(title, caption, _svg(figure, title, caption))


def _gpu_use(report: Report, found: Sequence[Curve], until_s: float, span: str) -> Picture:
    gpus = report.setup.site.gpus
    shares = [Curve(curve.x, curve.y / gpus, curve.peak / gpus) for curve in found]
    figure, strips = _strips(report.results, shares, until_s)
    strips[0].set_ylim(0.0, 1.0)
    strips[0].set_yticks([0.0, 0.5, 1.0], ["0%", "", "100%"])
    title = "How many GPUs are in use"
    says = _each(report.results, lambda result: f"{result.figures.gpu_use:.0%}")
    caption = (
        f"Share of the {gpus:,} GPUs that jobs hold, saving and loading included: means of spans "
        f"of {span}. Until the last job has ended: {says}."
    )
    return Picture(title, caption, _svg(figure, title, caption))


def _strips(
    results: Sequence[Result], found: Sequence[Curve], until_s: float
) -> tuple[Figure, Sequence[Axes]]:
    """A strip a policy, one above the other: so many curves in one plot could not be told apart."""
    figure = Figure(figsize=(WIDE_IN, 0.7 + 0.62 * len(found)), layout="constrained")
    grid = figure.subplots(len(found), 1, sharex=True, sharey=True, squeeze=False)
    strips: list[Axes] = list(grid[:, 0])
    unit, size_s = spans.unit_for(until_s)
    for axes, result, curve in zip(strips, results, found, strict=True):
        axes.fill_between(curve.x / size_s, curve.y, step="post", color=SERIES[0], linewidth=0)
        axes.set_ylabel(result.policy, rotation=0, ha="right", va="center")
        axes.set_xlim(0.0, max(1.0, until_s) / size_s)
    strips[-1].set_xlabel(f"{unit} since the first submission")
    return figure, strips


def _each(results: Sequence[Result], value: Callable[[Result], str]) -> str:
    return ", ".join(f"{result.policy} {value(result)}" for result in results)


def _look(number: int) -> dict[str, Any]:
    return {"color": SERIES[number % len(SERIES)], "linestyle": DASHES[number % len(DASHES)]}


def _logarithmic(axes: Axes, results: Sequence[Result]) -> None:
    """An axis of time from the shortest completion to the longest."""
    jct_s = [outcome.jct_s for result in results for outcome in result.outcomes]
    low_s, high_s = min(jct_s, default=1.0) * 0.9, max(jct_s, default=10.0) * 1.05
    axes.set_xscale("log")
    axes.set_xlim(low_s, high_s)
    axes.xaxis.set_major_locator(FixedLocator(spans.ticks_s(low_s, high_s)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at_s, _: spans.tick(at_s)))
    axes.set_xlabel("job completion time")


def _svg(figure: Figure, title: str, says: str) -> Markup:
    """The figure as an element for the page, with words for those who do not see it."""
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    name = re.sub(r"\W+", "-", title.lower())
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    drawn = file.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    # Names of groups, which nothing refers to, would be the same in every figure of the page.
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)
    drawn = re.sub(
        r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', _opening(name, title, says), drawn, count=1
    )
    for mark, colour in _colours():
        drawn = drawn.replace(mark, colour)
    return Markup(drawn)  # the one place where markup is made here, and escaped


def _opening(name: str, title: str, says: str) -> str:
    words = Markup('<title id="{0}-t">{1}</title><desc id="{0}-d">{2}</desc>').format(
        name, title, says
    )
    opening = f'<svg \\1 role="img" aria-labelledby="{name}-t {name}-d">'
    return opening + str(words).replace("\\", r"\\")


def _colours() -> list[tuple[str, str]]:
    series = [(mark, f"var(--series-{number})") for number, mark in enumerate(SERIES)]
    return [(INK, "var(--ink)"), (RULE, "var(--rule)"), *series]
