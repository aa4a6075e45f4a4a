"""The Gittins index of a job, from how much service the jobs before it needed in all."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt


class ServiceHistory:
    """Total GPU-seconds of jobs that have ended: the distribution that Gittins conditions on.

    Immutable. The index follows the printed formula of Pseudocode 1 (page 490); the values
    plotted in the paper's Fig. 20 come from another one (see docs/algorithm.md).
    """

    __slots__ = ("_samples", "_served", "_sorted")

    def __init__(self, gpu_seconds: Iterable[float]) -> None:
        ordered: Final[npt.NDArray[np.float64]] = np.sort(
            np.fromiter(gpu_seconds, dtype=np.float64)
        )
        self._sorted = ordered
        # One number at a time, Python finds faster in lists.
        self._samples: Final[list[float]] = ordered.tolist()
        self._served: Final[list[float]] = [0.0, *np.cumsum(ordered).tolist()]

    def __len__(self) -> int:
        return len(self._samples)

    def index(self, attained_gpu_s: float, quantum_gpu_s: float) -> float:
        """P(S - a <= quantum | S > a) / E[min(S - a, quantum) | S > a]; 0 beyond all history."""
        above = bisect_right(self._samples, attained_gpu_s)
        if above == len(self):
            return 0.0
        done = bisect_right(self._samples, attained_gpu_s + quantum_gpu_s)
        served = self._served[done] - self._served[above] - attained_gpu_s * (done - above)
        # Differences of large sums lose digits: a job about to end must not need less than nothing.
        expected_gpu_s = max(0.0, served) + quantum_gpu_s * (len(self) - done)
        return (done - above) / expected_gpu_s if expected_gpu_s > 0 else math.inf

    def best_index(self, attained_gpu_s: float) -> float:
        """The same without a quantum: the supremum over all of them, reached at some sample."""
        above = int(np.searchsorted(self._sorted, attained_gpu_s, side="right"))
        left_gpu_s = self._sorted[above:] - attained_gpu_s
        if left_gpu_s.size == 0:
            return 0.0
        done = np.arange(1, left_gpu_s.size + 1)
        expected_gpu_s = np.cumsum(left_gpu_s) + left_gpu_s * (left_gpu_s.size - done)
        return float(np.max(done / expected_gpu_s))

    def steady_for(self, attained: float, least: float) -> float:
        """How much more a job may attain before the distance ``1 / best_index`` jumps, because a
        job of this history ended there, or falls below ``least``; infinite beyond all history."""
        above = bisect_right(self._samples, attained)
        if above == len(self):
            return math.inf
        to_sample = self._samples[above] - attained
        if math.isinf(least):
            return to_sample
        # While no sample is passed, the distance by each sample falls in a straight line.
        ends = self._sorted[above:]
        done = np.arange(1, ends.size + 1)
        all_at = np.cumsum(ends) + ends * (ends.size - done)
        to_least = float(np.min(all_at - done * least)) / ends.size - attained
        if to_least <= 0.0:
            index = self.best_index(attained)
            to_least = 0.0 if index * least <= 1.0 else math.inf
        return min(to_sample, to_least)
