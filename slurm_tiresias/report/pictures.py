"""The figures of a report's page (``plotting/drawing.py`` draws them)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from slurm_tiresias.plotting import curves, spans
from slurm_tiresias.plotting.drawing import (
    INK,
    SERIES,
    WIDE_IN,
    Picture,
    distributions,
    house_style,
    legend_beside,
    strips,
    svg,
)
from slurm_tiresias.plotting.pages import visible
from slurm_tiresias.report.figures import Drawn, Numbers, PartyFigures, Report

LEAST_S = 1.0
"""Shorter times are drawn as this long, because a logarithmic axis has no zero."""
MOST_PARTIES = 12
"""Maximum number of users shown from each end of the balance."""
LONGEST_NAME = 24


def pictures(report: Report, drawn: Drawn) -> Mapping[str, Picture]:
    """Return the pictures ``jct``, ``queueing``, ``balance`` and ``course``; those without data are
    left out."""
    with house_style():
        return dict(_pictures(report, drawn))


def _pictures(report: Report, drawn: Drawn) -> Iterator[tuple[str, Picture]]:
    if report.jobs.completed:
        jct = "From submission to end"
        yield "jct", _distribution("How long jobs take", jct, "job completion time", drawn.jct_s)
        queueing = f"All time that a job did not run; under {spans.span(LEAST_S)} counts as that"
        yield (
            "queueing",
            _distribution("How long jobs wait", queueing, "queueing delay", drawn.queueing_s),
        )
    if any(user.given_gpu_s or user.received_gpu_s for user in report.users):
        yield "balance", _balance(report.users)
    yield "course", _over_time(report, drawn)


def _distribution(title: str, what: str, label: str, by_kind: Mapping[str, Numbers]) -> Picture:
    there = {k: np.maximum(v, LEAST_S).tolist() for k, v in by_kind.items() if v.size}
    least, most = min(map(min, there.values())), max(map(max, there.values()))
    # The limits are at least a decade apart, so that there are ticks between them.
    wider = max(1.0, 10.0 * least / most) ** 0.5
    figure = distributions(there, (least / wider, most * wider), label, to_edges=True)
    medians = ", ".join(f"{k} {spans.span(float(np.median(v)))}" for k, v in there.items())
    caption = (
        f"{what}: share of the jobs that ended in the time, by kind; time is logarithmic. "
        f"At most {curves.POINTS} points of each curve are drawn."
    )
    return Picture(title, caption, svg(figure, title, f"Medians: {medians}."))


def _balance(users: Sequence[PartyFigures]) -> Picture:
    """Draw a bar per user: GPU-hours received to the right, given to the left."""
    moved = [user for user in users if user.given_gpu_s or user.received_gpu_s]
    many = len(moved) > 2 * MOST_PARTIES
    shown = [*moved[:MOST_PARTIES], *moved[-MOST_PARTIES:]] if many else moved
    figure = Figure(figsize=(WIDE_IN, 0.8 + 0.24 * len(shown)), layout="constrained")
    axes = figure.subplots()
    places = range(len(shown))
    received = [user.received_gpu_s / 3600 for user in shown]
    given = [-user.given_gpu_s / 3600 for user in shown]
    axes.barh(places, received, height=0.7, color=SERIES[0], label="received")
    axes.barh(places, given, height=0.7, color=SERIES[1], label="given")
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.set_yticks(places, [_name(user) for user in shown], parse_math=False)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda hours, _: f"{abs(hours):,g}"))
    axes.set_xlabel("GPU-hours")
    legend_beside(axes)
    title = "Who received GPUs by preemption, and who gave them"
    left_out = f" {len(moved) - len(shown):,} between them are left out." if many else ""
    caption = (
        "GPU-hours that a user's jobs ran on GPUs which others had left for them (right), and that "
        f"others ran on GPUs which the user's jobs had left (left), by the balance.{left_out}"
    )
    return Picture(title, caption, svg(figure, title, caption))


def _name(user: PartyFigures) -> str:
    name = visible(user.name) or "-"
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _over_time(report: Report, drawn: Drawn) -> Picture:
    span_s = report.until_s - report.since_s
    names = ("GPUs in use", "jobs waiting")
    figure, (gpus, waiting) = strips(
        names, (drawn.gpus, drawn.waiting), span_s, "the beginning", high_in=1.1, common_scale=False
    )
    for axes, curve, room in (
        (gpus, drawn.gpus, report.gpus_now or 0),
        (waiting, drawn.waiting, 0),
    ):
        axes.set_ylim(0.0, max(1.0, room, float(curve.y.max()) * 1.05))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
    title = "GPUs in use, and jobs that wait"
    of = f" of the {report.gpus_now:,} that there are now" if report.gpus_now else ""
    caption = (
        f"Means of spans of {spans.span(span_s / curves.POINTS)}, with a scale each. At the most "
        f"{drawn.gpus.peak:,.0f} GPUs{of} were in use, and {drawn.waiting.peak:,.0f} jobs waited."
    )
    return Picture(title, caption, svg(figure, title, caption))
