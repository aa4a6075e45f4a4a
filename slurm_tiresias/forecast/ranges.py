"""From futures to a range: quantiles, corrected by how earlier ranges turned out.

The correction is conformal: where a wait lay in its uncorrected range is a score, and the quantiles
of the latest scores replace those that the futures should have had. It assumes only that the next
waits resemble the latest ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles of a range: the outer ones hold nine cases of ten, the inner ones half of them."""

OFFSET_S = 120.0
"""Added to waits before logarithms are taken: below this, differences matter little."""

LEAST_SPREAD = 1.0
"""The least logarithmic distance of an outer quantile from the middle. With less, scores of narrow
ranges that failed would make others too wide."""

KEPT = 400
"""How many of the latest scores count."""

ENOUGH = 30
"""Without this many scores, a range cannot be corrected."""

LIMITS_S = (600.0, 3600.0, 4 * 3600.0)
"""Waits expected to be between two of these are corrected alike, once enough have been seen."""

LEAST_COVERAGE = 0.8
"""If fewer of the latest ranges have held, no range is given."""


class Range(NamedTuple):
    """After how many seconds a job starts: by quantiles of ``SHARES``, infinite if later than is
    known."""

    least_s: float
    quarter_s: float
    likely_s: float
    most_of_half_s: float
    most_s: float


def quantiles(after_s: Sequence[float]) -> Range:
    """Return the quantiles of what futures gave; those that did not get so far gave infinity."""
    ordered = sorted(after_s)
    last = len(ordered) - 1
    return Range(*(_at(ordered, share * last) for share in SHARES))


def _at(ordered: Sequence[float], place: float) -> float:
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return below if below == above else below + (above - below) * (place % 1.0)


@dataclass(slots=True)
class Calibration:
    """How the ranges of a site turned out."""

    scores: dict[int, deque[float]] = field(default_factory=dict)
    """By the place of the expected wait among ``LIMITS_S``, -1 for all."""
    held: deque[tuple[float, bool, bool]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """When a wait ended, and whether its corrected outer and inner ranges had held it."""

    def learn(self, raw: Range, after_s: float) -> None:
        """Learn after how long a job has started; ``raw`` is its range before correction."""
        if raw.most_s < math.inf:
            for group in (-1, _group(raw)):
                self.scores.setdefault(group, deque(maxlen=KEPT)).append(_score(raw, after_s))

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
        held, outer, _ = self.coverage()
        return held >= ENOUGH and outer < LEAST_COVERAGE

    def corrected(self, raw: Range) -> Range | None:
        """Return the range that is meant to hold; None if too little is known for one."""
        scores = self.scores.get(_group(raw), ())
        if len(scores) < ENOUGH:
            scores = self.scores.get(-1, ())
        if len(scores) < ENOUGH:
            return None
        ordered = sorted(scores)
        return Range(*(_moved(raw, _conformal(ordered, share)) for share in SHARES))

    def as_json(self) -> dict[str, Any]:
        scores = {str(group): list(latest) for group, latest in self.scores.items()}
        return {"scores": scores, "held": list(self.held)}

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Calibration:
        made = Calibration()
        for group, latest in raw["scores"].items():
            made.scores[int(group)] = deque(map(float, latest), maxlen=KEPT)
        made.held.extend((float(s), bool(outer), bool(inner)) for s, outer, inner in raw["held"])
        return made


def _group(raw: Range) -> int:
    return sum(raw.likely_s >= limit_s for limit_s in LIMITS_S)


def _log(after_s: float) -> float:
    return math.log(max(0.0, after_s) + OFFSET_S)


def _spread(raw: Range, *, above: bool) -> float:
    outer_s = raw.most_s if above else raw.least_s
    return max(LEAST_SPREAD, abs(_log(outer_s) - _log(raw.likely_s)))


def _score(raw: Range, after_s: float) -> float:
    """Where a wait lies: 0 in the middle, 1 and -1 at the outer quantiles."""
    off = _log(after_s) - _log(raw.likely_s)
    return off / _spread(raw, above=off > 0.0)


def _moved(raw: Range, score: float) -> float:
    """Return the wait that has this score; infinite if the futures did not get so far."""
    if raw.likely_s == math.inf or (score > 0.0 and raw.most_s == math.inf):
        return math.inf
    moved = _log(raw.likely_s) + score * _spread(raw, above=score > 0.0)
    return max(0.0, math.exp(moved) - OFFSET_S)


def _conformal(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of scores that holds its share of new ones too."""
    count = len(ordered)
    if share < 0.5:
        return -_conformal([-score for score in reversed(ordered)], 1.0 - share)
    return ordered[min(count - 1, math.ceil((count + 1) * share) - 1)]
