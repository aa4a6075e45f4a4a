"""Ranges are corrected by how earlier ones turned out."""

from __future__ import annotations

import math
from random import Random

import pytest

from slurm_tiresias import json_codec
from slurm_tiresias.forecast.past import Survival
from slurm_tiresias.forecast.ranges import (
    EXPECTED,
    KEPT,
    LATEST,
    LEAST_COVERAGE,
    LEAST_SIGMA,
    OFFSET_S,
    USUAL_SIGMA,
    Awaited,
    Calibration,
    Range,
    Spread,
    spread_of,
)

LIKELY_S = 1000.0
RAW = Spread(math.log(LIKELY_S + OFFSET_S), 0.7)
RANGE = Range(500.0, 800.0, 1000.0, 1250.0, 2000.0)


def forecast(limits: Range = RANGE) -> Awaited:
    return Awaited("1", 0.0, RAW, tuple(limits))


def told(made: Calibration, wait_s: float, limits: Range = RANGE) -> None:
    """Give a range for a wait of this many seconds, and let it turn out."""
    one = forecast(limits)
    one.waited_s, one.started = wait_s, True
    made.await_starts([one])


def learned(factor: float, sigma: float, seed: int = 1) -> Calibration:
    """A site whose waits are this many times the middle of their ranges, more or less."""
    chance = Random(seed)
    made = Calibration()
    for _ in range(KEPT):
        told(made, LIKELY_S * factor * math.exp(chance.gauss(0.0, sigma)))
    made.learn()
    return made


def test_a_corrected_range_holds_its_share_of_new_waits() -> None:
    for factor, sigma in ((1.0, 0.1), (1.0, 1.0), (3.0, 0.5), (0.3, 0.5)):
        found = learned(factor, sigma).corrected(RAW)
        chance = Random(2)
        waits_s = [LIKELY_S * factor * math.exp(chance.gauss(0.0, sigma)) for _ in range(4000)]
        outer = sum(found.least_s <= wait_s <= found.most_s for wait_s in waits_s)
        inner = sum(found.quarter_s <= wait_s <= found.most_of_half_s for wait_s in waits_s)
        assert 0.87 < outer / len(waits_s) < 0.94, (factor, sigma)
        assert 0.43 < inner / len(waits_s) < 0.57, (factor, sigma)


def test_before_any_wait_is_known_ranges_are_those_of_other_sites() -> None:
    """Student's t with 4 degrees of freedom has quantiles of 0.741 and 2.132."""
    found = Calibration().corrected(RAW)
    assert found.likely_s == pytest.approx(LIKELY_S, rel=0.05)
    scores = [(math.log(s + OFFSET_S) - RAW.middle) / RAW.sigma for s in found]
    assert scores == pytest.approx([1.1 * t for t in (-2.132, -0.741, 0.0, 0.741, 2.132)], abs=0.05)


def test_one_bad_morning_changes_little() -> None:
    made = Calibration()
    for _ in range(10):
        told(made, 4.0 * LIKELY_S)
    made.learn()
    assert made.corrected(RAW).likely_s < 1.5 * LIKELY_S


def test_waits_that_go_on_count_as_longer_than_they_are() -> None:
    """A site that has been watched for 1,000 s, on which half of the waits take longer."""
    chance = Random(4)
    waits_s = [LIKELY_S * math.exp(chance.gauss(0.0, 1.0)) for _ in range(1000)]
    made = Calibration()
    for wait_s in waits_s:
        one = forecast()
        one.waited_s, one.started = min(wait_s, LIKELY_S), wait_s <= LIKELY_S
        made.await_starts([one])
    made.learn()
    found = made.corrected(RAW)
    assert found.likely_s > 0.8 * LIKELY_S
    assert found.most_s > 2.0 * LIKELY_S, "of so long waits, only what is usual is known"


def test_ranges_hold_again_once_waits_have_become_longer() -> None:
    chance, made, held = Random(5), learned(1.0, 0.5), list[bool]()
    for _ in range(KEPT):
        made.learn()
        limits = made.corrected(RAW)
        wait_s = 2.0 * LIKELY_S * math.exp(chance.gauss(0.0, 0.5))
        told(made, wait_s, limits)
        held.append(limits.least_s <= wait_s <= limits.most_s)
    assert sum(held[-500:]) / 500 > 0.87


def test_a_range_has_failed_as_soon_as_the_wait_exceeds_it() -> None:
    made, one = Calibration(), forecast()
    made.await_starts([one])
    one.waited_s = 1900.0
    assert made.coverage()[0] == 0
    one.waited_s = 2100.0
    assert made.coverage() == (1, 0.0, 0.0)


def test_no_wait_is_too_long_for_a_range() -> None:
    wide = Calibration().corrected(Spread(700.0, 50.0))
    assert wide.likely_s == wide.most_s < math.inf


def test_futures_that_ended_before_a_start_count_as_later_starts() -> None:
    chance = Random(3)
    waits_s = [math.exp(chance.gauss(8.0, 0.8)) - OFFSET_S for _ in range(2000)]
    known_s = [s for s in waits_s if s < 4000.0]
    bounds_s = [4000.0] * (len(waits_s) - len(known_s))
    whole, found = spread_of(tuple(waits_s), ()), spread_of(tuple(known_s), tuple(bounds_s))
    assert abs(found.middle - whole.middle) < 0.06
    assert abs(found.sigma - whole.sigma) < 0.06
    without = spread_of(tuple(known_s), ())
    assert without.middle < whole.middle - 0.2


def test_futures_that_agree_are_not_believed_to_the_second() -> None:
    assert spread_of((300.0,) * 100, ()).sigma == LEAST_SIGMA


def test_a_job_that_starts_in_no_future_starts_later_than_they_reach() -> None:
    found = spread_of((), (500.0,) * 12)
    assert math.exp(found.middle) > 1.5 * (500.0 + OFFSET_S)
    assert LEAST_SIGMA <= found.sigma <= USUAL_SIGMA


def test_ranges_that_do_not_hold_are_called_bad() -> None:
    made = Calibration()
    for number in range(LATEST):
        told(made, 1000.0 if number % 2 else 9999.0)
    assert made.coverage()[:2] == (LATEST, 0.5) and made.coverage()[1] < LEAST_COVERAGE
    assert made.is_bad
    for _ in range(LATEST):
        told(made, 1000.0)
    assert not made.is_bad, "they are given again once they hold"


def test_experience_survives_a_restart() -> None:
    made = Calibration()
    told(made, 700.0)
    for _ in range(EXPECTED):
        one = forecast()
        one.waited_s = 1e9
        made.await_starts([one])
    made.learn()
    written = json_codec.dumps({"awaited": made.awaited})
    again = json_codec.build(Calibration, json_codec.loads(written))
    assert again == made
    assert again.corrected(RAW).most_s > 1e9, "so long waits end in none that is known"


def test_jobs_that_still_run_count_as_longer_than_they_have_run() -> None:
    ended = Survival([(10.0, True), (20.0, True), (30.0, True), (40.0, True)])
    censored = Survival([(10.0, True), (20.0, True), (25.0, False), (40.0, True)])
    assert ended.total_s(0.0, 0.5) == 20.0
    assert ended.total_s(25.0, 0.5) == 30.0
    assert censored.total_s(0.0, 0.3) == 40.0
    assert ended.total_s(50.0, 0.5) == 100.0, "it has outlived all others"
