"""How long the rest of a job takes, from when it reached each step."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.model import Estimate
from slurm_tiresias.progress.pace import LATEST_POINTS, MOST_POINTS, Pace
from tests.known import known

LOOK_EVERY_S = 10.0

Steps = Sequence[float]
"""The time of each step of a training, in seconds."""


def steady(chance: random.Random) -> Steps:
    mean_s = chance.uniform(0.3, 10.0)
    return [chance.gauss(mean_s, 0.05 * mean_s) for _ in range(chance.choice((500, 2000, 5000)))]


def with_saves(chance: random.Random) -> Steps:
    """A pause of five steps after every hundredth of the work."""
    steps = list(steady(chance))
    for at in range(0, len(steps), len(steps) // 100):
        steps[at] *= 6
    return steps


def with_a_slow_first_step(chance: random.Random) -> Steps:
    return [60.0, *steady(chance)]


def estimated_at(steps: Steps, share: float) -> tuple[Estimate, float]:
    """The estimate of the rest when this share is done, read every ten seconds, and the true
    value."""
    ends_s = list(accumulate(steps))
    done = round(share * len(steps))
    now_s = ends_s[done - 1]
    pace = Pace(0, 0.0)
    look_s = LOOK_EVERY_S
    while look_s < now_s + LOOK_EVERY_S:
        if at := bisect_right(ends_s, min(look_s, now_s)):
            pace.add(at, ends_s[at - 1])
        look_s += LOOK_EVERY_S
    left = len(steps) - done
    each = known(pace.of_next(left))
    return each.times(left), ends_s[-1] - now_s


@pytest.mark.parametrize("training", [steady, with_saves, with_a_slow_first_step])
def test_after_a_tenth_of_the_work_the_rest_is_known_to_5_percent(
    training: Callable[[random.Random], Steps],
) -> None:
    close = held = 0
    for seed in range(100):
        estimate, truth_s = estimated_at(training(random.Random(seed)), 0.1)
        close += estimate.likely_s == pytest.approx(truth_s, rel=0.05)
        held += estimate.least_s <= truth_s <= estimate.most_s
    assert close >= (98 if training is with_saves else 100)
    assert held >= 90


def test_the_range_is_wide_for_varying_steps_and_contains_the_true_value() -> None:
    held = 0
    for seed in range(100):
        chance = random.Random(seed)
        steps = [chance.lognormvariate(0.0, 0.5) for _ in range(1000)]
        estimate, truth_s = estimated_at(steps, 0.1)
        held += estimate.least_s <= truth_s <= estimate.most_s
    assert held >= 90


def test_a_single_report_gives_a_rough_range_only() -> None:
    pace = Pace(0, 100.0)
    assert pace.of_next(50) is None
    pace.add(10, 120.0)
    each = known(pace.of_next(1))
    assert each.likely_s == 2.0
    assert each.least_s == pytest.approx(2.0 / 1.5, rel=0.01)
    assert each.most_s == pytest.approx(3.0, rel=0.01)


def test_a_restarted_program_is_measured_anew() -> None:
    pace = Pace(0, 0.0)
    for step in range(1, 50):
        pace.add(step, 10.0 * step)
    pace.add(10, 500.0)
    for step in range(11, 60):
        pace.add(step, 500.0 + step - 10)
    each = known(pace.of_next(10))
    assert each.likely_s == pytest.approx(1.0)


def test_a_clock_set_back_restarts_the_measurement() -> None:
    pace = Pace(0, 1000.0)
    pace.add(5, 1010.0)
    pace.add(6, 400.0)
    assert pace.of_next(10) is None
    pace.add(8, 404.0)
    each = known(pace.of_next(10))
    assert each.likely_s == pytest.approx(2.0)


def test_a_long_run_keeps_a_bounded_number_of_reports() -> None:
    pace = Pace(0, 0.0)
    for step in range(1, 10_000):
        pace.add(step, float(step))
    assert len(pace._points) <= MOST_POINTS
    assert len(pace._latest) <= LATEST_POINTS
    each = known(pace.of_next(10))
    assert each.likely_s == pytest.approx(1.0)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**15), st.floats(0, 1e11, allow_subnormal=True)), max_size=200
    )
)
def test_any_reports_give_a_positive_finite_range_or_none(reports: list[tuple[int, float]]) -> None:
    pace = Pace(0, 0.0)
    for step, at_s in reports:
        pace.add(step, at_s)
        if each := pace.of_next(1000):
            assert 0 <= each.least_s <= each.likely_s <= each.most_s < float("inf")
