"""From futures to a range: the spread of a wait, corrected by how earlier ones turned out.

By how many standard deviations a wait was longer than the middle is a score. Quantiles of the
latest scores, of waits that go on too (Kaplan and Meier), replace those of the normal distribution:
the first waits that turn out are short ones. Which quantiles, is adapted to how often each limit
has held (Gibbs and Candes, Adaptive Conformal Inference Under Distribution Shift, 2021), so that
ranges hold in the long run also where waits change.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import accumulate
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

from slurm_tiresias.forecast.past import Survival

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles of a range: the outer ones hold nine cases of ten, the inner ones half of them."""

INNER = (2, 3)
"""So many of them are exceeded by a wait that the inner ones hold."""

OFFSET_S = 120.0
"""Added to waits before logarithms are taken: below this, differences matter little."""

LEAST_SIGMA = 0.5
"""With less, the scores of narrow spreads that failed would make others too wide."""

LEAST_STARTED = 0.3
"""If a job starts in a smaller share of the futures, only that is known."""

ROUNDS, CLOSE = 60, 1e-3

KEPT = 3000
"""How many of the latest scores count."""

ENOUGH = 30
"""Without this many waits that have ended, a range cannot be corrected."""

RATE = 0.02
"""How far the quantile of a limit is shifted by one wait that was longer, or not."""

LATEST, LEAST_COVERAGE = 50, 0.8
"""If fewer of so many latest ranges have held, no range is given."""


class Range(NamedTuple):
    """After how many seconds a job starts: by quantiles of ``SHARES``, infinite if later than is
    known."""

    least_s: float
    quarter_s: float
    likely_s: float
    most_of_half_s: float
    most_s: float


BEYOND_LOG = 30.0
"""No wait is as long, and ``exp`` fails far beyond it."""


class Spread(NamedTuple):
    """How futures say that a wait is distributed: the mean and the standard deviation of its
    logarithm."""

    middle: float
    sigma: float


def spread_of(after_s: Sequence[float], beyond_s: Sequence[float]) -> Spread | None:
    """Return the most likely normal distribution of the logarithms of these waits, and of those of
    which only a lower bound is known: the futures that ended before. None if these are too many.

    It is found by expectation maximization, as in a regression of censored values.
    """
    known, bounds = list(map(_log, after_s)), list(map(_log, beyond_s))
    count = len(known) + len(bounds)
    if len(known) < LEAST_STARTED * count or not known:
        return None
    spread = _moments([*known, *bounds], 0.0)
    for _ in range(ROUNDS if bounds else 0):
        before, normal, expected, unsure = spread, NormalDist(), [], 0.0
        for bound in bounds:
            off = (bound - before.middle) / before.sigma
            hazard = normal.pdf(off) / max(1e-12, normal.cdf(-off))
            expected.append(before.middle + before.sigma * hazard)
            unsure += before.sigma**2 * max(0.0, 1.0 + off * hazard - hazard**2)
        spread = _moments([*known, *expected], unsure / count)
        if abs(spread.middle - before.middle) + abs(spread.sigma - before.sigma) < CLOSE:
            break
    return spread


def _moments(logarithms: Sequence[float], unsure: float) -> Spread:
    middle = fmean(logarithms)
    variance = fmean((each - middle) ** 2 for each in logarithms) + unsure
    return Spread(middle, max(LEAST_SIGMA, math.sqrt(variance)))


@dataclass(slots=True)
class Awaited:
    """What was forecast of a job that still waits."""

    made_s: float
    waited_s: float
    """How long it had waited by then."""
    raw: Spread
    corrected: Range | None
    exceeded: int = 0
    """How many of the limits of its range it has waited longer than."""


@dataclass(slots=True)
class Calibration:
    """How the ranges of a site turned out."""

    scores: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """Of waits that have ended: when each was forecast, and its score."""
    levels: list[float] = field(default_factory=lambda: list(SHARES))
    """The share of the scores that is below each limit of a range."""
    held: deque[tuple[float, bool, bool]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """When it was known of a range, and whether its outer and inner limits held."""
    _limits: Sequence[float] | None = None
    """The scores at these levels."""

    def follow(self, one: Awaited, now_s: float, started_s: float | None = None) -> None:
        """Learn from how long a job has waited so far, or when it has started."""
        waits_s = (now_s if started_s is None else started_s) - one.made_s
        limits = one.corrected or ()
        is_open = one.exceeded < len(limits)
        while one.exceeded < len(limits) and waits_s > limits[one.exceeded]:
            self._shift(one.exceeded, 0.0)
            one.exceeded += 1
        if is_open and (started_s is not None or one.exceeded == len(limits)):
            self.held.append((now_s, 0 < one.exceeded < len(limits), one.exceeded in INNER))
        if started_s is not None:
            for place in range(one.exceeded, len(limits)):
                self._shift(place, 1.0)
            self.scores.append((one.made_s, _score(one.raw, waits_s)))

    def _shift(self, place: int, was_below: float) -> None:
        self.levels[place] += RATE * (SHARES[place] - was_below)

    def weigh(self, waiting: Iterable[Awaited], now_s: float) -> None:
        """Correct from now on by the latest scores, with those of these waits, which go on."""
        every = [(made_s, score, True) for made_s, score in self.scores]
        every += [(one.made_s, _score(one.raw, now_s - one.made_s), False) for one in waiting]
        latest = nlargest(KEPT, every)
        is_enough = sum(ended for _, _, ended in latest) >= ENOUGH
        known = Survival(each[1:] for each in latest) if is_enough else None
        self._limits = list(map(known.quantile, self.levels)) if known else None

    def coverage(self) -> tuple[int, float, float]:
        """Return the number of the latest ranges, and the shares of the outer and inner ones that
        held."""
        held = len(self.held)
        outer, inner = (sum(each[part] for each in self.held) for part in (1, 2))
        return held, outer / max(1, held), inner / max(1, held)

    @property
    def is_bad(self) -> bool:
        latest = list(self.held)[-LATEST:]
        return len(latest) >= ENOUGH and fmean(outer for _, outer, _ in latest) < LEAST_COVERAGE

    def corrected(self, raw: Spread | None) -> Range | None:
        """Return the range that is meant to hold; None if too little is known for one."""
        if self._limits is None:
            return None
        return Range(*accumulate((_at(raw, s) if raw else math.inf for s in self._limits), max))

    def as_json(self) -> dict[str, Any]:
        return {"scores": list(self.scores), "levels": self.levels, "held": list(self.held)}

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Calibration:
        made = Calibration(levels=[float(raw["levels"][place]) for place in range(len(SHARES))])
        made.scores.extend((float(made_s), float(score)) for made_s, score in raw["scores"])
        made.held.extend((float(s), bool(outer), bool(inner)) for s, outer, inner in raw["held"])
        return made


def _log(after_s: float) -> float:
    return math.log(max(0.0, after_s) + OFFSET_S)


def _score(raw: Spread, after_s: float) -> float:
    return (_log(after_s) - raw.middle) / raw.sigma


def _at(raw: Spread, score: float) -> float:
    logarithm = raw.middle + score * raw.sigma
    return max(0.0, math.exp(logarithm) - OFFSET_S) if logarithm < BEYOND_LOG else math.inf
