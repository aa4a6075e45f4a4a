"""How often the range of the time that is left holds the true end, on made-up trainings.

``scripts/dev bench ranges`` writes the same figures for more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from scripts.tools.bench.ranges import Figures, Look, looks_of
from scripts.tools.bench.trainings import CHANGING, STEADY

RUNS = 20


@cache
def looks_at(kind: str) -> Sequence[Look]:
    return looks_of((STEADY | CHANGING)[kind], RUNS)


@pytest.mark.parametrize("kind", STEADY)
def test_nine_of_ten_ranges_hold_the_end_of_a_training_that_keeps_its_pace(kind: str) -> None:
    figures = Figures.of(looks_at(kind))
    assert figures.held >= 0.85
    assert figures.width <= 0.8


@pytest.mark.parametrize("kind", CHANGING)
def test_three_of_four_ranges_hold_an_end_after_one_change_of_pace(kind: str) -> None:
    assert Figures.of(looks_at(kind)).held >= 0.75


@pytest.mark.parametrize("kind", STEADY)
def test_ranges_narrow_while_a_training_keeps_its_pace(kind: str) -> None:
    looks = looks_at(kind)
    first, third = ([one for one in looks if k <= 4 * one.at < k + 1] for k in (0, 2))
    assert Figures.of(third).width < 0.5 * Figures.of(first).width


@pytest.mark.parametrize("kind", CHANGING)
def test_the_likely_value_follows_a_change_of_the_pace(kind: str) -> None:
    looks = looks_at(kind)
    assert Figures.of([one for one in looks if one.at >= 0.75]).error <= 0.05
