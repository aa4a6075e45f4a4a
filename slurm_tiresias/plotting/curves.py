"""Curves of distributions and time series, with a limited number of points.

A distribution is thinned by leaving out points, so all drawn points lie on it. A time series is cut
into equal spans and drawn as the mean of each; its true peak is kept beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

POINTS = 400
"""Maximum number of points of a curve."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of a curve by x; ``peak`` is the highest value before thinning."""

    x: Numbers
    y: Numbers
    peak: float


def distribution(values: Sequence[float]) -> Curve:
    """Return the cumulative distribution, at each value or at some of them."""
    ordered = np.sort(np.array(values, dtype=np.float64))
    if not ordered.size:
        return Curve(np.empty(0), np.empty(0), 0.0)
    drawn = np.unique(np.linspace(0, ordered.size - 1, POINTS).round().astype(np.int64))
    return Curve(ordered[drawn], (drawn + 1) / ordered.size, 1.0)


def course(
    changes: Sequence[tuple[Sequence[float] | Numbers, Numbers | float]], until_s: float
) -> Curve:
    """Return the running sum over time of changes, given as (times, amounts)."""
    at_s = np.concatenate([np.array(times, dtype=np.float64) for times, _ in changes])
    by = np.concatenate([np.broadcast_to(step, len(times)) for times, step in changes])
    if not at_s.size or until_s <= 0.0:
        return Curve(np.array([0.0, until_s]), np.zeros(2), 0.0)
    moments_s, where = np.unique(at_s, return_inverse=True)
    level = np.cumsum(np.bincount(where, weights=by), dtype=np.float64)
    # Each span's mean is placed at its beginning; the last point closes the last span.
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(moments_s))])
    edges_s = np.linspace(0.0, until_s, POINTS + 1)
    means = np.diff(np.interp(edges_s, moments_s, area)) / np.diff(edges_s)
    # Rounding errors in long sums would leave tiny values instead of zero.
    means[np.abs(means) < 1e-9] = 0.0
    return Curve(edges_s, np.append(means, means[-1]), float(level.max()))
