"""Ranges are corrected by how earlier ones turned out."""

from __future__ import annotations

import json
import math
from random import Random

from slurm_tiresias.forecast.past import Survival
from slurm_tiresias.forecast.ranges import (
    ENOUGH,
    KEPT,
    LEAST_COVERAGE,
    Calibration,
    Range,
    quantiles,
)

RAW = Range(500.0, 800.0, 1000.0, 1250.0, 2000.0)


def learned(factor: float, sigma: float, seed: int = 1) -> Calibration:
    """A site whose waits are this many times the middle of their ranges, more or less."""
    chance = Random(seed)
    made = Calibration()
    for _ in range(KEPT):
        made.learn(RAW, RAW.likely_s * factor * math.exp(chance.gauss(0.0, sigma)))
    return made


def test_a_corrected_range_holds_its_share_of_new_waits() -> None:
    for factor, sigma in ((1.0, 0.1), (1.0, 1.0), (3.0, 0.5), (0.3, 0.5)):
        found = learned(factor, sigma).corrected(RAW)
        assert found is not None
        chance = Random(2)
        waits_s = [RAW.likely_s * factor * math.exp(chance.gauss(0.0, sigma)) for _ in range(4000)]
        outer = sum(found.least_s <= wait_s <= found.most_s for wait_s in waits_s)
        inner = sum(found.quarter_s <= wait_s <= found.most_of_half_s for wait_s in waits_s)
        assert 0.87 < outer / len(waits_s) < 0.94
        assert 0.43 < inner / len(waits_s) < 0.57


def test_without_enough_experience_there_is_no_range() -> None:
    made = Calibration()
    for _ in range(ENOUGH - 1):
        made.learn(RAW, 1000.0)
    assert made.corrected(RAW) is None
    made.learn(RAW, 1000.0)
    assert made.corrected(RAW) is not None


def test_other_waits_correct_a_range_until_similar_ones_are_known() -> None:
    short = Range(*(s / 100 for s in RAW))
    assert learned(2.0, 0.1).corrected(short) is not None


def test_a_range_that_leaves_the_futures_has_no_end() -> None:
    assert quantiles([10.0, 20.0, 30.0, math.inf]).most_s == math.inf
    open_ended = RAW._replace(most_s=math.inf)
    found = learned(1.0, 0.5).corrected(open_ended)
    assert found and found.most_s == math.inf and found.least_s < math.inf


def test_ranges_that_do_not_hold_are_called_bad() -> None:
    made = Calibration()
    for number in range(100):
        made.count(RAW, 0.0, 1000.0 if number % 2 else 9999.0)
    assert made.coverage()[:2] == (100, 0.5) and made.coverage()[1] < LEAST_COVERAGE
    assert made.is_bad


def test_experience_survives_a_restart() -> None:
    made = learned(1.5, 0.5)
    made.count(RAW, 1.0, 700.0)
    again = Calibration.of(json.loads(json.dumps(made.as_json())))
    assert again.corrected(RAW) == made.corrected(RAW)
    assert again.coverage() == made.coverage()


def test_jobs_that_still_run_count_as_longer_than_they_have_run() -> None:
    ended = Survival([(10.0, True), (20.0, True), (30.0, True), (40.0, True)])
    censored = Survival([(10.0, True), (20.0, True), (25.0, False), (40.0, True)])
    assert ended.total_s(0.0, 0.5) == 20.0
    assert ended.total_s(25.0, 0.5) == 30.0
    assert censored.total_s(0.0, 0.3) == 40.0
    assert ended.total_s(50.0, 0.5) == 100.0, "it has outlived all others"
