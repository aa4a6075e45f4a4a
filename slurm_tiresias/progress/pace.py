"""The time that a job takes for a step, from when it reached each step: a likely value and a
range.

A training may change its pace, since it warms up or shares a disk. So only the steps since the last
change count, and the fewer they are compared with those that remain, the wider is the range.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from slurm_tiresias.model import Estimate

MOST_POINTS = 64
"""Reports kept of a run; when there are more, every other one is dropped."""

LATEST_POINTS = 24
"""The latest reports, all of which are kept: they show first that the pace has changed."""

LEAST_APART_S = 0.001
"""A report so soon after the last one is left out."""

BLOCKS = 10
"""The steps are divided into this many blocks with equal numbers of steps, or more if fewer steps
remain than a block has, and the times of the blocks are compared."""

T_90 = (6.31, 6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83)
"""Student's t for a two-sided range of 90 %, by degrees of freedom."""

LEAST_SPREAD = 0.03
"""The range is never narrower than this part of the remaining time, to either side: a training has
slow stretches that its steps so far do not show."""

MOST_CORRELATION = 0.6
"""Largest correlation of successive blocks of steps that is counted: it bounds how much a slow
change of the pace widens the range."""

ROUGH_SPREAD = 0.5
"""The range to either side if there are too few reports to measure it."""

FASTER, SLOWER = 0.14, 0.09
GROWTH = 1.5
"""If n times as many steps remain as were seen, the range allows for a later change of the pace:
faster by ``FASTER`` x n^``GROWTH``, slower by ``SLOWER`` x n^``GROWTH``. Faster is more usual: many
trainings start slowly."""

MOST_FASTER, MOST_SLOWER = 4.0, 2.0
"""The most that this adds to either side."""

PARTS = 3
"""The pace has changed at a report if the steps since, in this many parts, all took longer than any
such part of the steps before, or all shorter, by ``LEAST_CHANGE``. Pauses that recur are on both
sides."""

LEAST_CHANGE = 1.1

Point = tuple[int, float]
"""A number of steps done, and when, in seconds."""


class Pace:
    """When a run reached each step. Times are of any one clock, in seconds."""

    def __init__(self, step: int, at_s: float) -> None:
        self._start = (step, at_s)
        self._points: list[Point] = []
        self._latest: list[Point] = []

    def add(self, step: int, at_s: float) -> None:
        """Add a report. One that goes back, in steps or in time, starts the record anew."""
        last_step, last_s = self._latest[-1] if self._latest else self._start
        if step < last_step or at_s < last_s:
            self._start, self._points, self._latest = (step, at_s), [], []
        elif step > last_step and at_s - last_s >= LEAST_APART_S:
            # The steps before the first point are left out: the first one compiles and warms up.
            self._latest.append((step, at_s))
            del self._latest[:-LATEST_POINTS]
            self._points.append((step, at_s))
            if len(self._points) > MOST_POINTS:
                del self._points[1:-1:2]

    def of_next(self, steps: int) -> Estimate | None:
        """Return the average time of each of the next steps; None if no step has been seen."""
        if not self._latest:
            return None
        points = [self._start, *self._latest]
        if len(self._latest) > 1:
            before = bisect_left(self._points, self._latest[0])
            points = list(_since_last_change([*self._points[:before], *self._latest]))
        seen, took_s = points[-1][0] - points[0][0], points[-1][1] - points[0][1]
        steps = max(1, steps)
        mean_s, spread, ahead = took_s / seen, _spread(points, steps), (steps / seen) ** GROWTH
        faster = math.hypot(spread, min(MOST_FASTER, FASTER * ahead))
        slower = math.hypot(spread, min(MOST_SLOWER, SLOWER * ahead))
        return Estimate(mean_s, mean_s / (1 + faster), mean_s * (1 + slower))


def _since_last_change(points: Sequence[Point]) -> Sequence[Point]:
    """Return the reports since the pace last changed."""
    while (at := _change(points)) is not None:
        points = points[at:]
    return points


def _change(points: Sequence[Point]) -> int | None:
    """Return at which report the pace has changed; None if it has not."""
    if len(points) <= 2 * PARTS:
        return None
    (first_step, first_s), (last_step, last_s) = points[0], points[-1]
    best, most = PARTS, 0.0
    for at in range(PARTS, len(points) - PARTS):
        step, at_s = points[at]
        before, after = step - first_step, last_step - step
        ratio = math.log((at_s - first_s) * after / ((last_s - at_s) * before))
        if (gain := ratio * ratio * before * after) > most:
            best, most = at, gain
    length = min(points[best][0] - first_step, last_step - points[best][0]) / PARTS
    before_s, after_s = _times(points[: best + 1], length), _times(points[best:], length)
    slower = min(after_s) > LEAST_CHANGE * max(before_s)
    faster = LEAST_CHANGE * max(after_s) < min(before_s)
    return best if slower or faster else None


def _times(points: Sequence[Point], steps: float) -> Sequence[float]:
    """Return the time of a step in each of successive blocks of about so many steps."""
    (first_step, first_s), (last_step, last_s) = points[0], points[-1]
    number = min(MOST_POINTS, round((last_step - first_step) / steps))
    length = (last_step - first_step) / number
    inside_s = [_reached_s(points, first_step + k * length) for k in range(1, number)]
    return [(b - a) / length for a, b in pairwise([first_s, *inside_s, last_s])]


def _spread(points: Sequence[Point], steps: int) -> float:
    """Return how far the average time of the next steps may be from that of those seen, as a share
    of it."""
    seen = points[-1][0] - points[0][0]
    # Pauses between many steps average out, but not in a few remaining ones.
    number = min(max(BLOCKS, int(seen / steps)), (len(points) - 1) // 2)
    if number < 2:
        return ROUGH_SPREAD
    means_s = _times(points, seen / number)
    mean_s = fmean(means_s)
    off_s = [each - mean_s for each in means_s]
    variance = sum(each * each for each in off_s) / (number - 1)
    if variance > 0:
        alike = sum(a * b for a, b in pairwise(off_s)) / ((number - 1) * variance)
        alike = min(MOST_CORRELATION, max(0.0, alike + 1 / number))
        variance *= (1 + alike) / (1 - alike)
    # The variance of the mean so far, plus that of the mean of the remaining steps.
    error_s = math.sqrt(variance * (1 / number + seen / (number * steps)))
    return max(LEAST_SPREAD, T_90[min(number - 1, len(T_90) - 1)] * error_s / mean_s)


def _reached_s(points: Sequence[Point], step: float) -> float:
    """Return when the run reached this step, interpolated between two reports."""
    at = bisect_left(points, (step, -math.inf))
    after_step, after_s = points[at]
    if at == 0:
        return after_s
    before_step, before_s = points[at - 1]
    return before_s + (after_s - before_s) * (step - before_step) / (after_step - before_step)
