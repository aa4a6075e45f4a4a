"""The time that a job takes for a step, from when it reached each step: a likely value and a
range."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from slurm_tiresias.model import Estimate

MOST_POINTS = 64
"""Reports kept of a run; when there are more, every other one is dropped."""

BLOCKS = 10
"""A run is divided into this many blocks with equal numbers of steps, whose times are compared."""

T_95 = (12.7, 12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t for a two-sided range of 95 %, by degrees of freedom; it covers 90 % if step times
have heavier tails or a longer memory than the theory assumes."""

LEAST_SPREAD = 0.03
"""The range is never narrower than this part of the remaining time, to either side: a training has
slow stretches that its steps so far do not show."""

MOST_CORRELATION = 0.6
"""Bounds what a slow change, seen as blocks that resemble their neighbours, adds to the range."""

ROUGH_SPREAD = 0.5
"""The range to either side if there are too few reports to measure it."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds per step.

    ``block_s`` is the standard deviation of the mean of ``block_steps`` steps, as if blocks were
    independent of each other; ``blocks`` is how many it comes from, 0 where it is unknown.
    """

    mean_s: float
    block_s: float = 0.0
    block_steps: float = 0.0
    blocks: int = 0

    def of_next(self, steps: int) -> Estimate:
        """Return the average time of each of the next steps."""
        spread = ROUGH_SPREAD
        if self.blocks > 1:
            # The variance of the mean so far, plus that of the mean of the remaining steps.
            error_s = self.block_s * math.sqrt(
                1 / self.blocks + min(1.0, self.block_steps / max(1, steps))
            )
            t = T_95[min(self.blocks - 1, len(T_95) - 1)]
            spread = max(LEAST_SPREAD, t * error_s / self.mean_s)
        return Estimate(self.mean_s, self.mean_s / (1 + spread), self.mean_s * (1 + spread))


class Pace:
    """When a run reached each step. Times are of any one clock, in seconds."""

    def __init__(self, step: int, at_s: float) -> None:
        self._start = (step, at_s)
        self._points: list[tuple[int, float]] = []

    def add(self, step: int, at_s: float) -> None:
        """Add a report. One that goes back, in steps or in time, starts the record anew."""
        last_step, last_s = self._points[-1] if self._points else self._start
        if step < last_step or at_s < last_s:
            self._start, self._points = (step, at_s), []
        elif step > last_step and at_s > last_s:
            # The steps before the first point are left out: the first one compiles and warms up.
            self._points.append((step, at_s))
            if len(self._points) > MOST_POINTS:
                del self._points[1:-1:2]

    def step_time(self) -> StepTime | None:
        """Return the time of one step; None if no step has been seen."""
        points = self._points
        if len(points) < 2:
            return _between(self._start, points[-1]) if points else None
        first_step, (last_step, last_s) = points[0][0], points[-1]
        number = min(BLOCKS, (len(points) - 1) // 2)
        if number < 2:
            return _between(points[0], points[-1])
        length = (last_step - first_step) / number
        ends_s = [self._reached_s(first_step + k * length) for k in range(number)] + [last_s]
        means_s = [(b - a) / length for a, b in pairwise(ends_s)]
        mean_s = fmean(means_s)
        off_s = [each - mean_s for each in means_s]
        variance = sum(each * each for each in off_s) / (number - 1)
        if variance > 0:
            alike = sum(a * b for a, b in pairwise(off_s)) / ((number - 1) * variance)
            alike = min(MOST_CORRELATION, max(0.0, alike + 1 / number))
            variance *= (1 + alike) / (1 - alike)
        return StepTime(mean_s, math.sqrt(variance), length, number)

    def _reached_s(self, step: float) -> float:
        """Return when the run reached this step, interpolated between two reports."""
        at = bisect_left(self._points, (step, -math.inf))
        after_step, after_s = self._points[at]
        if at == 0:
            return after_s
        before_step, before_s = self._points[at - 1]
        return before_s + (after_s - before_s) * (step - before_step) / (after_step - before_step)


def _between(one: tuple[int, float], other: tuple[int, float]) -> StepTime | None:
    steps, seconds = other[0] - one[0], other[1] - one[1]
    return StepTime(seconds / steps) if steps > 0 and seconds > 0 else None
