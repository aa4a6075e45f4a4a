"""Drawing of figures as SVG that takes its colours from the page's style sheet.

The same figures give the same bytes: ids come from a fixed salt, and there are no dates.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from slurm_tiresias.plotting import spans
from slurm_tiresias.plotting.curves import Curve, distribution

INK, RULE = "#fd0000", "#fd0001"
SERIES = tuple(f"#fe00{number:02x}" for number in range(15))
"""Placeholder colours, replaced by the page's own for light and dark mode."""

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
    (0, (3, 3)),
    (0, (14, 3, 1, 3)),
    (0, (6, 1, 1, 1)),
    (0, (2, 1, 2, 4)),
)
"""A line pattern per curve, for readers who cannot distinguish the colours."""

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
    """A figure; its SVG includes a text description for screen readers."""

    title: str
    caption: str
    svg: Markup


@contextmanager
def house_style() -> Iterator[None]:
    """Apply the project's style, whatever the user's own matplotlib settings."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def strips(
    names: Sequence[str],
    found: Sequence[Curve],
    until_s: float,
    since: str,
    high_in: float = 0.62,
    common_scale: bool = True,
) -> tuple[Figure, Sequence[Axes]]:
    """Draw each curve in a separate strip, because many curves in one plot could not be
    distinguished.

    ``since`` names the zero of the time axis in its label.
    """
    figure = Figure(figsize=(WIDE_IN, 0.7 + high_in * len(found)), layout="constrained")
    grid = figure.subplots(len(found), 1, sharex=True, sharey=common_scale, squeeze=False)
    drawn: list[Axes] = list(grid[:, 0])
    unit, size_s = spans.unit_for(until_s)
    for axes, name, curve in zip(drawn, names, found, strict=True):
        axes.fill_between(curve.x / size_s, curve.y, step="post", color=SERIES[0], linewidth=0)
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
        axes.set_xlim(0.0, max(1.0, until_s) / size_s)
    drawn[-1].set_xlabel(f"{unit} since {since}")
    return figure, drawn


def look(number: int) -> dict[str, Any]:
    """Return the colour and line pattern of a curve."""
    return {"color": SERIES[number % len(SERIES)], "linestyle": DASHES[number % len(DASHES)]}


def logarithmic(axes: Axes, times_s: Sequence[float], label: str) -> None:
    """Make the x axis a logarithmic time axis from the shortest to the longest of these times."""
    low_s, high_s = min(times_s, default=1.0) * 0.9, max(times_s, default=10.0) * 1.05
    axes.set_xscale("log")
    axes.set_xlim(low_s, high_s)
    axes.xaxis.set_major_locator(FixedLocator(spans.ticks_s(low_s, high_s)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at_s, _: spans.tick(at_s)))
    axes.set_xlabel(label)


def distributions(
    by_name: Mapping[str, Sequence[float]],
    limits_s: Sequence[float],
    label: str,
    *,
    to_edges: bool = False,
) -> Figure:
    """Draw the share of the jobs within a time, one curve per name, on a logarithmic time axis.

    ``to_edges`` extends each curve to 0 and 1 at the edges, so that even a single job is visible.
    """
    figure = Figure(figsize=(WIDE_IN, HIGH_IN), layout="constrained")
    axes = figure.subplots()
    axes.set_ylabel("share of the jobs")
    logarithmic(axes, limits_s, label)
    from_s, to_s = axes.get_xlim()
    for number, (name, values) in enumerate(by_name.items()):
        curve = distribution(values)
        x, y = curve.x.tolist(), curve.y.tolist()
        if to_edges:
            x, y = [from_s, x[0], *x, to_s], [0.0, 0.0, *y, 1.0]
        axes.step(x, y, where="post", label=name, **look(number))
    axes.set_ylim(0.0, 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    legend_beside(axes)
    return figure


def legend_beside(axes: Axes) -> None:
    """Put the legend to the right of the axes; works with the Matplotlib of Debian 12 (3.6)."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0.0, handlelength=4)


def svg(figure: Figure, title: str, says: str) -> Markup:
    """Return the figure as an SVG element for the page, with a description for screen readers."""
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    name = re.sub(r"\W+", "-", title.lower())
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    drawn = file.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    # Group ids are never referred to and would be duplicates in the page.
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)
    words = Markup('<title id="{0}-t">{1}</title><desc id="{0}-d">{2}</desc>').format(
        name, title, says
    )
    opening = f'<svg \\1 role="img" aria-labelledby="{name}-t {name}-d">'
    opening += str(words).replace("\\", r"\\")
    drawn = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', opening, drawn, count=1)
    drawn = drawn.replace(INK, "var(--ink)").replace(RULE, "var(--rule)")
    for number, mark in enumerate(SERIES):
        drawn = drawn.replace(mark, f"var(--series-{number})")
    return Markup(drawn)  # the only place where markup is made; title and text are escaped above
