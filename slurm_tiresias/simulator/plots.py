"""The figures of a simulation's page (``plotting/drawing.py`` draws them)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from slurm_tiresias.plotting import curves, spans
from slurm_tiresias.plotting.curves import Curve
from slurm_tiresias.plotting.drawing import (
    SERIES,
    WIDE_IN,
    Picture,
    distributions,
    house_style,
    strips,
    svg,
)
from slurm_tiresias.simulator.engine import Outcome
from slurm_tiresias.simulator.report import BINS, Report, Result

SINCE = "the first submission"


def pictures(report: Report) -> tuple[Picture, ...]:
    """Return all figures of a report, in the order of the page."""
    ends_s = (outcome.end_s for result in report.results for outcome in result.outcomes)
    until_s = max(ends_s, default=0.0)
    queues = [queue_length(result.outcomes, until_s) for result in report.results]
    held = [gpus_held(result.outcomes, until_s) for result in report.results]
    span = spans.span(until_s / curves.POINTS)
    with house_style():
        return (
            _distribution(report),
            _by_bin(report),
            _queue(report, queues, until_s, span),
            _gpu_use(report, held, until_s, span),
        )


def queue_length(outcomes: Sequence[Outcome], until_s: float) -> Curve:
    """Return the number of waiting jobs over time: submitted, not ended and without GPUs."""
    runs = [run for outcome in outcomes for run in outcome.runs]
    return curves.course(
        [
            ([outcome.job.submitted_s for outcome in outcomes], 1.0),
            ([outcome.end_s for outcome in outcomes], -1.0),
            ([start_s for start_s, _ in runs], -1.0),
            ([end_s for _, end_s in runs], 1.0),
        ],
        until_s,
    )


def gpus_held(outcomes: Sequence[Outcome], until_s: float) -> Curve:
    """Return the number of GPUs in use over time."""
    runs = [(run, float(outcome.job.gpus)) for outcome in outcomes for run in outcome.runs]
    gpus = np.array([gpus for _, gpus in runs])
    return curves.course(
        [([run[0] for run, _ in runs], gpus), ([run[1] for run, _ in runs], -gpus)], until_s
    )


def _distribution(report: Report) -> Picture:
    by_policy = {
        result.label: [outcome.jct_s for outcome in result.outcomes] for result in report.results
    }
    figure = distributions(by_policy, [*chain(*by_policy.values())], "job completion time")
    title = "How long jobs take"
    caption = (
        "Share of the jobs that end within a time of their submission; time is logarithmic. "
        f"At most {curves.POINTS} points of each curve are drawn."
    )
    says = _each(report.results, lambda result: spans.span(result.figures.median_jct_s))
    return Picture(title, caption, svg(figure, title, f"Half of the jobs end within: {says}."))


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
    all_axes[0].set_yticks(range(len(results)), [result.label for result in results])
    all_axes[0].invert_yaxis()
    title = "Average by kind of job"
    caption = (
        "Average job completion time: small is up to 4 GPUs, short is under 800 s. Each column "
        "has a scale of its own. The figures stand in the second table."
    )
    return Picture(title, caption, svg(figure, title, caption))


def _queue(report: Report, found: Sequence[Curve], until_s: float, span: str) -> Picture:
    names = [result.label for result in report.results]
    figure, drawn = strips(names, found, until_s, SINCE)
    # All strips share one scale, so that they can be compared.
    drawn[0].set_ylim(0.0, max(1.0, *(float(curve.y.max()) for curve in found)) * 1.02)
    drawn[0].yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
    title = "How many jobs wait"
    peaks = dict(zip(names, found, strict=True))
    says = _each(report.results, lambda result: f"{peaks[result.label].peak:,.0f}")
    caption = (
        f"Jobs that have come, hold no GPUs and have not ended: means of spans of {span}. "
        f"The longest queues: {says}."
    )
    return Picture(title, caption, svg(figure, title, caption))


def _gpu_use(report: Report, found: Sequence[Curve], until_s: float, span: str) -> Picture:
    gpus = report.setup.cluster.gpus
    shares = [Curve(curve.x, curve.y / gpus, curve.peak / gpus) for curve in found]
    names = [result.label for result in report.results]
    figure, drawn = strips(names, shares, until_s, SINCE)
    drawn[0].set_ylim(0.0, 1.0)
    drawn[0].set_yticks([0.0, 0.5, 1.0], ["0%", "", "100%"])
    title = "How many GPUs are in use"
    says = _each(report.results, lambda result: f"{result.figures.gpu_use:.0%}")
    caption = (
        f"Share of the {gpus:,} GPUs that jobs hold, saving and loading included: means of spans "
        f"of {span}. Until the last job has ended: {says}."
    )
    return Picture(title, caption, svg(figure, title, caption))


def _each(results: Sequence[Result], value: Callable[[Result], str]) -> str:
    return ", ".join(f"{result.label} {value(result)}" for result in results)
