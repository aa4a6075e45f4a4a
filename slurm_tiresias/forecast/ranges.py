"""From futures to a range: the spread of a wait, corrected by how earlier ones turned out.

The correction is conformal: by how many standard deviations a wait was longer than the middle is a
score, and the quantiles of the latest scores replace those of the normal distribution. It assumes
only that the next waits resemble the latest ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles of a range: the outer ones hold nine cases of ten, the inner ones half of them."""

OFFSET_S = 120.0
"""Added to waits before logarithms are taken: below this, differences matter little."""

LEAST_SIGMA = 0.5
"""With less, the scores of narrow spreads that failed would make others too wide."""

LEAST_STARTED = 0.3
"""If a job starts in a smaller share of the futures, only that is known."""

ROUNDS, CLOSE = 60, 1e-3

KEPT = 400
"""How many of the latest scores count."""

ENOUGH = 30
"""Without this many scores, a range cannot be corrected."""

WATCHED = 3.0
"""So many times as long as it is expected to take must waits have been watched for a range: the
first that turn out are short ones."""

LIMITS_S = (600.0, 3600.0, 4 * 3600.0)
"""Waits expected to be between two of these are corrected alike, once enough have been seen."""

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


BEYOND = Range(*(math.inf for _ in SHARES))


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
class Calibration:
    """How the ranges of a site turned out."""

    scores: dict[int, deque[float]] = field(default_factory=dict)
    """By the place of the expected wait among ``LIMITS_S``, -1 for all."""
    since_s: float = math.inf
    """When the first of the waits that turned out was forecast."""
    held: deque[tuple[float, bool, bool]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """When a wait ended, and whether its corrected outer and inner ranges had held it."""

    def learn(self, raw: Spread, made_s: float, after_s: float) -> None:
        """Learn how long after ``made_s`` a job has started; ``raw`` is its spread before
        correction."""
        self.since_s = min(self.since_s, made_s)
        score = (_log(after_s) - raw.middle) / raw.sigma
        for group in (-1, _group(raw)):
            self.scores.setdefault(group, deque(maxlen=KEPT)).append(score)

    def count(self, corrected: Range, ended_s: float, after_s: float) -> None:
        """Count whether a range held."""
        outer = corrected.least_s <= after_s <= corrected.most_s
        inner = corrected.quarter_s <= after_s <= corrected.most_of_half_s
        self.held.append((ended_s, outer, inner))

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

    def corrected(self, raw: Spread | None, now_s: float) -> Range | None:
        """Return the range that is meant to hold; None if too little is known for one."""
        scores = self.scores.get(_group(raw), ()) if raw else ()
        if len(scores) < ENOUGH:
            scores = self.scores.get(-1, ())
        if len(scores) < ENOUGH:
            return None
        if raw is None:
            return BEYOND
        if WATCHED * _at(raw, 0.0) > now_s - self.since_s:
            return None
        ordered = sorted(scores)
        return Range(*(_at(raw, _conformal(ordered, share)) for share in SHARES))

    def as_json(self) -> dict[str, Any]:
        scores = {str(group): list(latest) for group, latest in self.scores.items()}
        return {"deviations": scores, "since_s": self.since_s, "held": list(self.held)}

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Calibration:
        made = Calibration(since_s=float(raw["since_s"]))
        for group, latest in raw["deviations"].items():
            made.scores[int(group)] = deque(map(float, latest), maxlen=KEPT)
        made.held.extend((float(s), bool(outer), bool(inner)) for s, outer, inner in raw["held"])
        return made


def _group(raw: Spread) -> int:
    return sum(raw.middle >= _log(limit_s) for limit_s in LIMITS_S)


def _log(after_s: float) -> float:
    return math.log(max(0.0, after_s) + OFFSET_S)


def _at(raw: Spread, score: float) -> float:
    return max(0.0, math.exp(raw.middle + score * raw.sigma) - OFFSET_S)


def _conformal(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of scores that holds its share of new ones too."""
    count = len(ordered)
    if share < 0.5:
        return -_conformal([-score for score in reversed(ordered)], 1.0 - share)
    return ordered[min(count - 1, math.ceil((count + 1) * share) - 1)]
