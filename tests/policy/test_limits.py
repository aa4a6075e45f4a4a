"""Estimates of running times from time limits, and when there are none."""

from __future__ import annotations

import random

import pytest

from slurm_tiresias.core.features.limits import LEAST_ENDED, LimitHistory

RUNS_S = [float(seconds) for seconds in range(100, 1300, 100)]


def test_limits_proportional_to_running_times_predict_them_exactly() -> None:
    limits = LimitHistory(("ann", 4 * run_s, run_s) for run_s in RUNS_S)
    assert limits.remaining_s("ann", 2000.0, 0.0) == pytest.approx(500.0)
    assert limits.remaining_s("ann", 2000.0, 400.0) == pytest.approx(100.0)
    assert limits.remaining_s("ann", 2000.0, 600.0) == 600.0, "as long again, having outlived all"


def test_few_ended_jobs_or_no_limit_give_no_estimate() -> None:
    limits = LimitHistory(("ann", 4 * run_s, run_s) for run_s in RUNS_S[: LEAST_ENDED - 1])
    assert limits.explained("ann") is None and limits.remaining_s("ann", 2000.0, 0.0) is None
    limits.add("ann", None, 5.0)
    assert limits.explained("ann") is None
    limits.add("ann", 4000.0, 1000.0)
    assert limits.remaining_s("ann", 2000.0, 0.0) is not None
    assert limits.remaining_s("ann", None, 0.0) is None
    assert limits.remaining_s("ben", 2000.0, 0.0) is None


def test_equal_or_random_limits_give_no_estimate() -> None:
    alike = LimitHistory(("ann", 86_400.0, run_s) for run_s in RUNS_S)
    assert alike.explained("ann") == 0.0 and alike.remaining_s("ann", 86_400.0, 0.0) is None
    chance = random.Random(1)
    by_lot = LimitHistory(("ann", chance.choice(RUNS_S), chance.choice(RUNS_S)) for _ in range(60))
    assert by_lot.remaining_s("ann", 500.0, 0.0) is None
    backwards = LimitHistory(("ann", 1e5 / run_s, run_s) for run_s in RUNS_S)
    assert backwards.remaining_s("ann", 500.0, 0.0) is None


def test_old_jobs_of_a_user_are_forgotten() -> None:
    limits = LimitHistory(("ann", 86_400.0, run_s) for run_s in RUNS_S * 6)
    assert limits.remaining_s("ann", 2000.0, 0.0) is None
    for run_s in RUNS_S * 6:
        limits.add("ann", 2 * run_s, run_s)
    assert limits.remaining_s("ann", 2000.0, 0.0) == pytest.approx(1000.0)
