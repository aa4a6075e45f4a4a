"""Ranges are corrected by how earlier ones turned out."""

from __future__ import annotations

import json
import math
from random import Random

from slurm_tiresias.forecast.past import Survival
from slurm_tiresias.forecast.ranges import (
    ENOUGH,
    KEPT,
    LATEST,
    LEAST_COVERAGE,
    LEAST_SIGMA,
    OFFSET_S,
    SHARES,
    Awaited,
    Calibration,
    Range,
    Spread,
    spread_of,
)

LIKELY_S = 1000.0
RAW = Spread(math.log(LIKELY_S + OFFSET_S), 0.7)
RANGE = Range(500.0, 800.0, 1000.0, 1250.0, 2000.0)


def forecast(made_s: float = 0.0, corrected: Range | None = None) -> Awaited:
    return Awaited(made_s, 0.0, RAW, corrected)


def learned(factor: float, sigma: float, seed: int = 1) -> Calibration:
    """A site whose waits are this many times the middle of their ranges, more or less."""
    chance = Random(seed)
    made = Calibration()
    for _ in range(KEPT):
        wait_s = LIKELY_S * factor * math.exp(chance.gauss(0.0, sigma))
        made.follow(forecast(), wait_s, wait_s)
    made.weigh([], 1e6)
    return made


def told(made: Calibration, wait_s: float) -> None:
    """Give ``RANGE`` for a wait of this many seconds, and let it turn out."""
    made.follow(forecast(corrected=RANGE), wait_s, wait_s)


def test_a_corrected_range_holds_its_share_of_new_waits() -> None:
    for factor, sigma in ((1.0, 0.1), (1.0, 1.0), (3.0, 0.5), (0.3, 0.5)):
        found = learned(factor, sigma).corrected(RAW)
        assert found is not None
        chance = Random(2)
        waits_s = [LIKELY_S * factor * math.exp(chance.gauss(0.0, sigma)) for _ in range(4000)]
        outer = sum(found.least_s <= wait_s <= found.most_s for wait_s in waits_s)
        inner = sum(found.quarter_s <= wait_s <= found.most_of_half_s for wait_s in waits_s)
        assert 0.87 < outer / len(waits_s) < 0.94
        assert 0.43 < inner / len(waits_s) < 0.57


def test_without_enough_experience_there_is_no_range() -> None:
    made = Calibration()
    for number in range(ENOUGH):
        made.weigh([], 0.0)
        assert made.corrected(RAW) is None, number
        made.follow(forecast(), 1000.0, 1000.0)
    made.weigh([], 0.0)
    assert made.corrected(RAW) is not None


def test_waits_that_go_on_count_as_longer_than_they_are() -> None:
    """A site that has been watched for 1,000 s, on which half of the waits take longer."""
    chance = Random(4)
    waits_s = [LIKELY_S * math.exp(chance.gauss(0.0, 1.0)) for _ in range(600)]
    made = Calibration()
    for wait_s in waits_s:
        if wait_s <= LIKELY_S:
            made.follow(forecast(), LIKELY_S, wait_s)
    made.weigh([forecast() for wait_s in waits_s if wait_s > LIKELY_S], LIKELY_S)
    found = made.corrected(RAW)
    assert found and found.likely_s > 0.8 * LIKELY_S
    assert found.most_of_half_s == found.most_s == math.inf, "so long waits are not known"


def test_ranges_hold_again_once_waits_have_become_longer() -> None:
    chance, made, held = Random(5), learned(1.0, 0.5), list[bool]()
    for number in range(2000):
        corrected = made.corrected(RAW)
        assert corrected
        wait_s = 2.0 * LIKELY_S * math.exp(chance.gauss(0.0, 0.5))
        made.follow(forecast(2e6 + number, corrected), 2e6 + number + wait_s, 2e6 + number + wait_s)
        made.weigh([], 3e6)
        held.append(corrected.least_s <= wait_s <= corrected.most_s)
    assert 0.87 < sum(held) / len(held) < 0.93
    assert sum(held[200:400]) / 200 > 0.87


def test_a_range_has_failed_as_soon_as_the_wait_exceeds_it() -> None:
    made, one = Calibration(), forecast(corrected=RANGE)
    made.follow(one, 1900.0)
    assert made.coverage()[0] == 0
    made.follow(one, 2100.0)
    assert made.coverage() == (1, 0.0, 0.0)
    made.follow(one, 9000.0, 8000.0)
    assert made.coverage() == (1, 0.0, 0.0), "it is counted once"
    assert all(level > share for level, share in zip(made.levels, SHARES, strict=True))


def test_no_wait_is_too_long_for_a_range() -> None:
    wide = learned(1.0, 1.0).corrected(Spread(700.0, 50.0))
    assert wide and wide.most_s == math.inf


def test_futures_that_ended_before_a_start_count_as_later_starts() -> None:
    chance = Random(3)
    waits_s = [math.exp(chance.gauss(8.0, 0.8)) - OFFSET_S for _ in range(2000)]
    known_s = [s for s in waits_s if s < 4000.0]
    bounds_s = [4000.0] * (len(waits_s) - len(known_s))
    whole, found = spread_of(waits_s, []), spread_of(known_s, bounds_s)
    assert whole and found
    assert abs(found.middle - whole.middle) < 0.06
    assert abs(found.sigma - whole.sigma) < 0.06
    without = spread_of(known_s, [])
    assert without and without.middle < whole.middle - 0.2


def test_futures_that_agree_are_not_believed_to_the_second() -> None:
    found = spread_of([300.0] * 12, [])
    assert found and found.sigma == LEAST_SIGMA


def test_where_too_few_futures_start_a_job_no_end_is_given() -> None:
    assert spread_of([], [500.0] * 12) is None
    assert spread_of([100.0, 200.0], [500.0] * 10) is None
    found = learned(1.0, 0.5).corrected(None)
    assert found and found.least_s == found.most_s == math.inf
    assert Calibration().corrected(None) is None


def test_ranges_that_do_not_hold_are_called_bad() -> None:
    made = Calibration()
    for number in range(100):
        told(made, 1000.0 if number % 2 else 9999.0)
    assert made.coverage()[:2] == (100, 0.5) and made.coverage()[1] < LEAST_COVERAGE
    assert made.is_bad


def test_ranges_that_hold_again_are_given_again() -> None:
    made = Calibration()
    for _ in range(100):
        told(made, 9999.0)
    for _ in range(LATEST):
        told(made, 1000.0)
    assert not made.is_bad


def test_experience_survives_a_restart() -> None:
    made = learned(1.5, 0.5)
    told(made, 700.0)
    again = Calibration.of(json.loads(json.dumps(made.as_json())))
    for one in (made, again):
        one.weigh([], 1e6)
    assert again.corrected(RAW) == made.corrected(RAW)
    assert again.coverage() == made.coverage()


def test_jobs_that_still_run_count_as_longer_than_they_have_run() -> None:
    ended = Survival([(10.0, True), (20.0, True), (30.0, True), (40.0, True)])
    censored = Survival([(10.0, True), (20.0, True), (25.0, False), (40.0, True)])
    assert ended.total_s(0.0, 0.5) == 20.0
    assert ended.total_s(25.0, 0.5) == 30.0
    assert censored.total_s(0.0, 0.3) == 40.0
    assert ended.total_s(50.0, 0.5) == 100.0, "it has outlived all others"
