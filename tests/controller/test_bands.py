"""Whether the priority that Slurm shows is its own plus the site factor that was written."""

from __future__ import annotations

import pytest

from slurm_tiresias.controller.bands import (
    SITE_FACTOR_BAND,
    SITE_FACTOR_NOMINATED,
    SITE_FACTOR_TOP_TIER,
    ShownFactors,
)

TOP = SITE_FACTOR_TOP_TIER


def test_a_priority_in_the_band_contains_its_factor() -> None:
    assert ShownFactors().shows("7", TOP + 5, TOP)
    assert ShownFactors().shows("7", 5, None)


@pytest.mark.parametrize("own", [-1000, -TOP + 1, SITE_FACTOR_BAND, 3 * SITE_FACTOR_BAND])
def test_a_priority_outside_the_band_is_rewritten_once_and_then_accepted(
    own: int,
) -> None:
    """As with --nice, or with weights that are larger than a band."""
    factors = ShownFactors()
    told = [factors.shows("7", TOP + own + age, TOP) for age in (0, 0, 3, 60, 700)]
    assert told == [False, True, True, True, True]


def test_a_factor_changed_by_another_writer_is_rewritten() -> None:
    factors = ShownFactors()
    shown = [TOP - 1000, TOP - 1000, -1000 + 1001, -1000 + 1001, TOP - 1000]
    assert [factors.shows("7", priority, TOP) for priority in shown] == [
        *(False, True),
        *(False, True),
        False,
    ]


def test_a_new_factor_is_checked_again() -> None:
    factors = ShownFactors()
    assert not factors.shows("7", TOP - 1000, TOP)
    assert not factors.shows("7", SITE_FACTOR_NOMINATED - 1000, SITE_FACTOR_NOMINATED)
    assert factors.shows("7", SITE_FACTOR_NOMINATED - 1000, SITE_FACTOR_NOMINATED)
    factors.keep({"8"})
    assert not factors.shows("7", SITE_FACTOR_NOMINATED - 1000, SITE_FACTOR_NOMINATED)
