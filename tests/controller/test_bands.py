"""Priorities of tiers, and whether Slurm shows the site factor that was written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_tiresias.controller.bands import (
    BAND,
    SITE_FACTOR_BAND,
    SITE_FACTOR_NOMINATED,
    SITE_FACTOR_TOP_TIER,
    TOP_TIER,
    ShownFactors,
    is_in_a_band,
    starts_managed,
    tier_priority,
)
from slurm_tiresias.model import JobAccount
from tests.controller.test_job_store import pending

TOP = SITE_FACTOR_TOP_TIER


def test_a_priority_in_the_band_contains_its_factor() -> None:
    assert ShownFactors().shows("7", TOP + 5, TOP)
    assert ShownFactors().shows("7", 5, None)


@pytest.mark.parametrize("own", [-1000, -TOP + 1, SITE_FACTOR_BAND, 3 * SITE_FACTOR_BAND])
def test_a_priority_outside_the_band_is_rewritten_once_and_then_accepted(own: int) -> None:
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


NEW = JobAccount.opened(pending("7"), 1)


@pytest.mark.parametrize("tier", [0, 5])
def test_in_a_tier_jobs_go_by_their_estimates_and_without_one_last(tier: int) -> None:
    sizes_gpu_s = (0.0, 1.0, 1000.0, 2000.0, 1e6, 1e15, None)
    priorities = [
        tier_priority(NEW, tier, "first-start", goes_by_gpu_s=gpu_s) for gpu_s in sizes_gpu_s
    ]
    assert priorities == sorted(set(priorities), reverse=True)
    foot = TOP_TIER - tier * BAND
    assert priorities[-1] == foot and priorities[0] < foot + BAND
    assert all(is_in_a_band(priority, "pinned") for priority in priorities)
    assert [starts_managed(priority, "pinned") for priority in priorities] == [tier == 0] * 7


def test_jobs_with_equal_estimates_go_by_first_start_and_new_ones_last() -> None:
    ran = [replace(NEW, start_number=number) for number in (3, 4)]
    order = [tier_priority(one, 1, "first-start", goes_by_gpu_s=500.0) for one in (*ran, NEW)]
    assert order == sorted(set(order), reverse=True)
    assert order[-1] > tier_priority(ran[0], 1, "first-start", goes_by_gpu_s=1000.0)
