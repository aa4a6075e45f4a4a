"""Sensitivity to one setting: the sweeps of the paper's Figs. 14 and 15 (page 496)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_tiresias.simulator.report import mean, median, percentile
from slurm_tiresias.simulator.sweep import Cell, Measured, Result

HOUR_GPU_S = 3600.0
OF_THE_PAPER = ("tiresias-l", "tiresias-g")

THRESHOLDS = tuple((hours * HOUR_GPU_S,) for hours in (1.0, 0.5, 2.0, 4.0))
TIERS = tuple(tuple(HOUR_GPU_S * 2**step for step in range(tiers - 1)) for tiers in (2, 3, 4))
KNOBS = (0.0, 8.0, 4.0, 2.0, 1.0)

SWEEPS: Mapping[str, Sequence[Cell]] = {
    "thresholds": [Cell(cuts) for cuts in THRESHOLDS],
    "tiers": [Cell(cuts) for cuts in TIERS],
    "knob": [Cell((HOUR_GPU_S,), promote_knob=knob) for knob in KNOBS],
}
"""The settings of each sweep; the others are compared to the first."""


@dataclass(frozen=True, slots=True)
class Row:
    """The results of one setting. Ratios are relative to the first setting of the same policy; None
    if that failed.

    The percentile is an actual value, as in ``report.figures``.
    """

    cell: Cell
    average_jct_s: float
    average: float | None
    median: float | None
    p95: float | None
    largest: float | None
    preemptions: int
    promotions: int


def cells_of(sweep: str) -> tuple[Cell, ...]:
    """Return the settings of a sweep under both of Tiresias' policies."""
    return tuple(
        Cell(cell.thresholds_gpu_s, policy, cell.promote_knob)
        for policy in OF_THE_PAPER
        for cell in SWEEPS[sweep]
    )


def compared(results: Sequence[Result]) -> tuple[Row, ...]:
    """Return a row for each setting that could be simulated."""
    first: dict[str, Result] = {}
    for result in results:
        first.setdefault(result.cell.policy, result)
    return tuple(
        _row(result, first[result.cell.policy])
        for result in results
        if isinstance(result, Measured)
    )


def _row(measured: Measured, reference: Result) -> Row:
    mine = _figures(measured)
    average, median, p95, largest = (
        [figure / first for figure, first in zip(mine, _figures(reference), strict=True)]
        if isinstance(reference, Measured)
        else [None] * len(mine)
    )
    return Row(
        cell=measured.cell,
        average_jct_s=mine[0],
        average=average,
        median=median,
        p95=p95,
        largest=largest,
        preemptions=measured.preemptions,
        promotions=measured.promotions,
    )


def _figures(measured: Measured) -> tuple[float, float, float, float]:
    """Return the average, median, 95th percentile and maximum of the completion times."""
    jct_s = np.array(measured.jct_s)
    return mean(jct_s), median(jct_s), percentile(jct_s, 95), float(jct_s.max())
