"""The Gittins index of a job, from the total service of jobs that have ended."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

GITTINS_SAMPLES = 100
"""Jobs that must have ended before the index is used. With a hundred, a share of the distribution
is known to within ten percentage points (95 %)."""

ROUNDING = 1e-9
"""The share by which numbers that should be equal may differ."""


class ServiceHistory:
    """Total GPU-seconds of ended jobs: the distribution that the Gittins index is computed from.

    Immutable. The index follows the printed formula of Pseudocode 1 (page 490); the values
    plotted in the paper's Fig. 20 come from a different formula (docs/explanation/algorithm.md).
    """

    __slots__ = ("_counts", "_pieces", "_samples", "_served", "_totals")

    def __init__(self, gpu_seconds: Iterable[float]) -> None:
        ordered: Final[npt.NDArray[np.float64]] = np.sort(
            np.fromiter(gpu_seconds, dtype=np.float64)
        )
        served = np.cumsum(ordered)
        # Lists, because looking up single numbers in them is faster than in arrays.
        self._samples: Final[list[float]] = ordered.tolist()
        self._served: Final[list[float]] = [0.0, *served.tolist()]
        self._counts = np.arange(1.0, len(ordered) + 1.0)
        self._totals = served + ordered * (len(ordered) - self._counts)
        """For each sample: the total service if no job got more than the sample."""
        self._pieces: tuple[float, Sequence[tuple[float, float]]] | None = None
        """A least share and its ``_bounds``, once needed."""

    def __len__(self) -> int:
        return len(self._samples)

    def index(self, attained_gpu_s: float, quantum_gpu_s: float) -> float:
        """P(S - a <= quantum | S > a) / E[min(S - a, quantum) | S > a]; 0 if no sample is above."""
        above = bisect_right(self._samples, attained_gpu_s)
        if above == len(self):
            return 0.0
        done = bisect_right(self._samples, attained_gpu_s + quantum_gpu_s)
        served = self._served[done] - self._served[above] - attained_gpu_s * (done - above)
        # Differences of large sums lose digits and could otherwise turn negative.
        expected_gpu_s = max(0.0, served) + quantum_gpu_s * (len(self) - done)
        return (done - above) / expected_gpu_s if expected_gpu_s > 0 else math.inf

    def best_index(self, attained_gpu_s: float) -> float:
        """The supremum of ``index`` over all quanta; it is reached at a sample."""
        distance = self.distance(attained_gpu_s)
        return 1.0 / distance if distance > 0.0 else math.inf

    def distance(self, attained_gpu_s: float, least_share: float = 0.0) -> float:
        """Least expected service per completed job: ``1 / best_index``; infinite if no sample
        exceeds the attained service. Only quanta that complete ``least_share`` of the jobs that
        attained as much are considered."""
        above = bisect_right(self._samples, attained_gpu_s)
        if above == len(self._samples):
            return math.inf
        return self._distance(attained_gpu_s, above, least_share)

    def _distance(self, attained_gpu_s: float, above: int, least_share: float) -> float:
        """Return the distance of jobs that exceed all but the last samples, from ``above`` on."""
        left = len(self._samples) - above
        so_far = self._served[above] + attained_gpu_s * left
        first = _first_quantum(left, least_share)
        distances = (self._totals[above + first :] - so_far) / self._counts[first:left]
        # Differences of large sums lose digits.
        return max(0.0, float(distances.min()))

    def typical(self, number: int) -> Sequence[float]:
        """Return so many samples that stand for all, evenly from the least to the most."""
        every = len(self._samples) / number
        return [self._samples[int((rank + 0.5) * every)] for rank in range(number)]

    def steady_for(
        self, attained: float, least: float, most: float, least_share: float = 0.0
    ) -> float:
        """Service that a job may still attain before its ``distance`` falls below ``least`` or
        jumps to ``most`` or above, where it is now; infinite if no sample exceeds the attained
        service. At the last sample at the latest."""
        above, samples = bisect_right(self._samples, attained), self._samples
        if above == len(samples):
            return math.inf
        to_sample = samples[above] - attained
        if least > -math.inf:
            # Between two samples, the distance is linear in the attained service for each quantum.
            left = len(samples) - above
            first = _first_quantum(left, least_share)
            needed = self._totals[above + first :] - self._counts[first:left] * least
            to_least = (float(needed.min()) - self._served[above]) / left - attained
            if to_least <= 0.0:
                to_least = 0.0 if self.distance(attained, least_share) >= least else math.inf
            if to_least < to_sample:
                return to_least
        highest, lowest = most * (1.0 - ROUNDING), least * (1.0 + ROUNDING)
        if self._pieces is None or self._pieces[0] != least_share:
            self._pieces = least_share, self._bounds(least_share)
        bounds = self._pieces[1]
        while True:
            sample = samples[above]
            above = bisect_right(samples, sample)
            if above == len(samples):
                return sample - attained
            at_start, at_end = bounds[above]
            if at_start >= highest or at_end <= lowest:
                return sample - attained

    def _bounds(self, least_share: float) -> Sequence[tuple[float, float]]:
        """Return the distance just after the sample before each sample, and just before it."""
        samples = self._samples
        return [
            (
                self._distance(samples[above - 1] if above else 0.0, above, least_share),
                self._distance(samples[above], above, least_share),
            )
            for above in range(len(samples))
        ]


def _first_quantum(left: int, least_share: float) -> int:
    """Return the index of the first of ``left`` samples by which this share of them are done."""
    return max(1, math.ceil(least_share * left)) - 1
