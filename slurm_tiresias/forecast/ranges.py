"""From futures to a range: the spread of a wait, corrected by how earlier ones turned out.

By how many standard deviations a wait was longer than the middle is its score. The limits of a
range are quantiles of the scores of a site's latest waits, with those that still go on (Kaplan and
Meier), and of scores as other workloads had them: the waits of one day are long or short together,
so that a site's own say little at first.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist, fmean
from typing import NamedTuple

from slurm_tiresias.forecast.past import Survival

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles of a range: the outer ones hold nine cases of ten, the inner ones half of them."""

INNER = (2, 3)
"""So many of them are exceeded by a wait that the inner ones hold."""

OFFSET_S = 120.0
"""Added to waits before logarithms are taken: below this, differences matter little."""

USUAL_SIGMA, LEAST_SIGMA = 1.0, 0.5
"""Futures count as if one more of them, off by the first, were among them; with less than the
second, the scores of narrow spreads that failed would make others too wide."""

ROUNDS, CLOSE = 60, 0.01

EXPECTED, EXPECTED_SIGMA = 50, 1.1
"""So many scores of Student's t distribution with 4 degrees of freedom, so many times as wide, are
added: those of 12 workloads, each counted alike, were distributed about so."""

KEPT = 3000
"""How many of the latest waits count."""

LATEST, ENOUGH, LEAST_COVERAGE = 100, 30, 0.8
"""If fewer of so many latest ranges have held, no range is given. They have to be at least the
second."""


class Range(NamedTuple):
    """After how many seconds a job starts: by quantiles of ``SHARES``."""

    least_s: float
    quarter_s: float
    likely_s: float
    most_of_half_s: float
    most_s: float


MOST_LOG = 30.0
"""No wait is as long, and ``exp`` fails far beyond it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How futures say that a wait is distributed: the mean and the standard deviation of its
    logarithm."""

    middle: float
    sigma: float


@lru_cache(1000)
def spread_of(after_s: tuple[float, ...], beyond_s: tuple[float, ...]) -> Spread:
    """Return the most likely normal distribution of the logarithms of these waits, and of those of
    which only a lower bound is known: the futures that ended before.

    It is found by expectation maximization, as in a regression of censored values. If no wait is
    known, the first of the futures that ended is taken for a start; results are kept, since at a
    large site that is so for thousands of jobs.
    """
    known, bounds = list(map(_log, after_s or (min(beyond_s),))), list(map(_log, beyond_s))
    spread = _moments([*known, *bounds], 0.0)
    for _ in range(ROUNDS if bounds else 0):
        before, normal, expected, unsure = spread, NormalDist(), [], 0.0
        for bound in bounds:
            off = (bound - before.middle) / before.sigma
            hazard = normal.pdf(off) / max(1e-12, normal.cdf(-off))
            expected.append(before.middle + before.sigma * hazard)
            unsure += before.sigma**2 * max(0.0, 1.0 + off * hazard - hazard**2)
        spread = _moments([*known, *expected], unsure)
        if abs(spread.middle - before.middle) + abs(spread.sigma - before.sigma) < CLOSE:
            break
    return spread


def _moments(logarithms: Sequence[float], unsure: float) -> Spread:
    middle = fmean(logarithms)
    squares = sum((each - middle) ** 2 for each in logarithms) + unsure + USUAL_SIGMA**2
    return Spread(middle, max(LEAST_SIGMA, math.sqrt(squares / (len(logarithms) + 1))))


@dataclass(slots=True)
class Awaited:
    """What was forecast of a job, and how long it has waited since."""

    job_id: str
    made_s: float
    raw: Spread
    limits: tuple[float, ...]
    """Its range."""
    waited_s: float = 0.0
    """How long the job has waited since, or did until it started or was withdrawn."""
    waits: bool = True
    started: bool = False

    @property
    def exceeded(self) -> int:
        """How many of the limits it has waited longer than."""
        return bisect_left(self.limits, self.waited_s)

    @property
    def score(self) -> float:
        return (_log(self.waited_s) - self.raw.middle) / self.raw.sigma

    @property
    def holds(self) -> bool:
        """Whether the outer limits hold."""
        return 0 < self.exceeded < len(self.limits)

    @property
    def has_turned_out(self) -> bool:
        return self.started or self.exceeded == len(self.limits)


def _expected(share: float) -> float:
    """Return a quantile of the scores that are to be expected at any site."""
    root = math.sqrt(4.0 * share * (1.0 - share))
    students_t = 2.0 * math.sqrt(math.cos(math.acos(root) / 3.0) / root - 1.0)
    return math.copysign(EXPECTED_SIGMA * students_t, share - 0.5)


_EXPECTED = [(_expected((number + 0.5) / EXPECTED), True) for number in range(EXPECTED)]


@dataclass(slots=True)
class Calibration:
    """How the ranges of a site turned out."""

    awaited: tuple[Awaited, ...] = ()
    _scores: Sequence[float] = field(init=False)
    """Those of the limits of a range."""

    def __post_init__(self) -> None:
        self.learn()

    def learn(self) -> None:
        """Correct ranges from now on by how long the latest waits were, or are by now."""
        scores = ((one.score, one.started) for one in self.awaited)
        self._scores = list(map(Survival([*_EXPECTED, *scores]).quantile, SHARES))

    def await_starts(self, new: Iterable[Awaited]) -> None:
        self.awaited = (*self.awaited, *new)[-KEPT:]

    def coverage(self) -> tuple[int, float, float]:
        """Return the number of ranges that have turned out, and the shares of the outer and inner
        ones that held."""
        known = [one for one in self.awaited if one.has_turned_out]
        outer = sum(one.holds for one in known) / max(1, len(known))
        inner = sum(one.exceeded in INNER for one in known) / max(1, len(known))
        return len(known), outer, inner

    @property
    def is_bad(self) -> bool:
        """Whether too few of the latest ranges have held to give any."""
        latest = [one.holds for one in self.awaited if one.has_turned_out][-LATEST:]
        return len(latest) >= ENOUGH and fmean(latest) < LEAST_COVERAGE

    def corrected(self, raw: Spread) -> Range:
        """Return the range that is meant to hold."""
        return Range(*(_at(raw, score) for score in self._scores))


def _log(after_s: float) -> float:
    return math.log(max(0.0, after_s) + OFFSET_S)


def _at(raw: Spread, score: float) -> float:
    return max(0.0, math.exp(min(MOST_LOG, raw.middle + score * raw.sigma)) - OFFSET_S)
