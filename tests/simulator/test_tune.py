"""Advice on thresholds: improvements must be significant, and the simple setting wins otherwise."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from dataclasses import replace

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.errors import TiresiasError, UsageError
from slurm_tiresias.simulator import tune
from slurm_tiresias.simulator.sweep import Cell, Failed, Measured, Result
from slurm_tiresias.simulator.tune import advise, candidates, fragment
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480, philly_like

JOBS = 1000
DEFAULT = Cell(tune.DEFAULT_GPU_S)
FOUR_HOURS = Cell((14400.0,))
THREE_QUEUES = Cell((3600.0, 28800.0))


def history(jobs: int = JOBS, days: float = 30.0) -> Workload:
    gap_s = days * 86400.0 / (jobs - 1)
    return Workload("h", tuple(TraceJob(str(n), n * gap_s, 1, 600.0) for n in range(jobs)))


def measured(cell: Cell, jct_s: Sequence[float], waited: float = 0.5) -> Measured:
    return Measured(cell, tuple(jct_s), int(waited * len(jct_s)), 0, 0, 0.0)


def as_the_default(jobs: int = JOBS) -> list[float]:
    chance = random.Random(1)
    return [chance.lognormvariate(7.0, 1.0) for _ in range(jobs)]


def times(factors: Sequence[float]) -> list[float]:
    """The default's completion times, with a separate factor for each part of the history."""
    jct_s = as_the_default()
    size = len(jct_s) // len(factors)
    return [value * factors[n // size] for n, value in enumerate(jct_s)]


def advice(*others: Result, jobs: Workload | None = None) -> tune.Advice:
    return advise(jobs or history(), [measured(DEFAULT, as_the_default()), *others], "average")


def test_a_setting_that_is_better_throughout_is_recommended() -> None:
    found = advice(measured(FOUR_HOURS, times([0.9] * 20)))
    assert found.recommended.cell == FOUR_HOURS
    assert found.recommended.second.value == pytest.approx(0.9)
    assert found.recommended.second.parts == pytest.approx((0.9,) * 10)
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("what", "factors"),
    [
        ("better in the first half only", [0.8] * 10 + [1.0] * 10),
        ("better in the first half, worse in the second", [0.8] * 10 + [1.2] * 10),
        ("better in one part of each half", ([0.5] + [1.0] * 9) * 2),
        ("better by less than it is worth", [0.995] * 20),
        ("now better, now worse", [0.7, 1.2] * 10),
        ("worse", [1.1] * 20),
        ("no different", [1.0] * 20),
    ],
)
def test_the_default_stays_without_a_significant_gain(what: str, factors: Sequence[float]) -> None:
    assert advice(measured(FOUR_HOURS, times(factors))).recommended.cell == DEFAULT, what


def test_among_equally_good_settings_the_one_with_fewer_queues_is_recommended() -> None:
    found = advice(
        measured(THREE_QUEUES, times([0.895] * 20)), measured(FOUR_HOURS, times([0.9] * 20))
    )
    assert found.best.cell == THREE_QUEUES
    assert found.recommended.cell == FOUR_HOURS


def test_a_setting_confirmed_by_the_second_half_replaces_an_unconfirmed_one() -> None:
    found = advice(
        measured(THREE_QUEUES, times([0.8] * 20)),
        measured(FOUR_HOURS, times([0.8] * 10 + [1.0] * 10)),
    )
    assert [each.as_good_as_best for each in found.evidence] == [False, True, True]
    assert found.recommended.cell == THREE_QUEUES


def test_more_queues_are_recommended_if_clearly_better() -> None:
    found = advice(
        measured(THREE_QUEUES, times([0.8] * 20)), measured(FOUR_HOURS, times([0.9] * 20))
    )
    assert found.recommended.cell == THREE_QUEUES


def test_a_better_median_is_recommended_only_to_those_who_ask_for_the_median() -> None:
    jct_s = as_the_default()
    middle = sorted(jct_s)[int(0.6 * JOBS)]
    other = measured(FOUR_HOURS, [0.8 * x if x < middle else 1.1 * x for x in jct_s])
    results = [measured(DEFAULT, jct_s), other]
    recommended = {
        objective: advise(history(), results, objective).recommended.cell
        for objective in tune.OBJECTIVES
    }
    assert recommended == {"average": DEFAULT, "median": FOUR_HOURS, "p95": DEFAULT}


@pytest.mark.parametrize(
    ("jobs", "waited", "says"),
    [
        (history(days=20.0), 0.5, "20.0 days"),
        (history(), 0.04, "queues hardly ever form"),
        (history(jobs=500), 0.5, "500 jobs are too few"),
    ],
)
def test_a_history_with_too_little_evidence_is_reported_and_the_default_stays(
    jobs: Workload, waited: float, says: str
) -> None:
    jct_s = as_the_default(len(jobs.jobs))
    better = measured(FOUR_HOURS, [0.5 * value for value in jct_s])
    found = advise(jobs, [measured(DEFAULT, jct_s, waited), better], "average")
    assert len(found.warnings) == 1 and says in found.warnings[0]
    assert found.chosen.cell == FOUR_HOURS
    assert found.recommended.cell == DEFAULT


@pytest.mark.parametrize("count", [2, 3, 19, 21])
def test_tune_answers_even_for_a_handful_of_jobs(count: int) -> None:
    jobs = replace(history(), jobs=history().jobs[:count])
    jct_s = as_the_default(count)
    found = advise(jobs, [measured(DEFAULT, jct_s), measured(FOUR_HOURS, jct_s)], "p95")
    assert found.recommended.cell == DEFAULT and found.warnings


@pytest.mark.parametrize("jobs", [1, 19])
def test_a_history_that_cannot_be_split_into_parts_is_refused(jobs: int) -> None:
    with pytest.raises(UsageError, match=f"{jobs} jobs? (is|are) too few"):
        candidates(replace(history(), jobs=history().jobs[:jobs]))


def test_among_settings_with_equal_queues_the_best_of_the_first_half_is_chosen() -> None:
    two_hours = Cell((7200.0,))
    found = advice(
        measured(two_hours, times([0.9, 1.0] * 5 + [0.9] * 10)),
        measured(FOUR_HOURS, times([1.0, 0.85] * 5 + [0.9] * 10)),
    )
    assert all(each.as_good_as_best for each in found.evidence[1:])
    assert found.recommended.cell == FOUR_HOURS


def test_a_failed_candidate_is_named_and_the_others_are_compared() -> None:
    failed = Failed(THREE_QUEUES, "no memory")
    found = advice(failed, measured(FOUR_HOURS, times([0.9] * 20)))
    assert found.failed == (failed,)
    assert found.recommended.cell == FOUR_HOURS


def test_without_a_result_for_the_default_there_is_no_advice() -> None:
    with pytest.raises(TiresiasError, match="no memory"):
        advise(history(), [Failed(DEFAULT, "no memory")], "average")


def test_the_same_results_give_the_same_advice() -> None:
    other = measured(FOUR_HOURS, times([0.9, 1.0] * 10))
    assert advice(other) == advice(other)


@pytest.mark.parametrize("jobs", [paper480(), philly_like(500, 1, 32, 0.9), history()])
def test_candidates_are_settings_of_the_controller_default_first(jobs: Workload) -> None:
    found = candidates(jobs)
    assert found[0] == tune.DEFAULT_GPU_S
    assert len(found) == len(set(found))
    assert {len(cuts) + 1 for cuts in found} == {2, 3, 4, 5, 6}
    assert (21_600.0, 172_800.0, 1_382_400.0) in found
    for cuts in found:
        assert parse({"policy": {"thresholds_gpu_s": list(cuts)}}).policy.thresholds_gpu_s == cuts


def test_a_configured_setting_replaces_the_default_as_the_one_to_beat() -> None:
    tried = candidates(history(), THREE_QUEUES.thresholds_gpu_s)
    assert tried[0] == THREE_QUEUES.thresholds_gpu_s
    assert tune.DEFAULT_GPU_S in tried
    present = measured(THREE_QUEUES, as_the_default())
    equal = advise(history(), [present, measured(DEFAULT, times([0.995] * 20))], "average")
    assert equal.recommended.cell == equal.default.cell == THREE_QUEUES
    better = advise(history(), [present, measured(DEFAULT, times([0.9] * 20))], "average")
    assert better.recommended.cell == DEFAULT


def test_the_toml_fragment_sets_the_recommended_thresholds() -> None:
    found = advice(measured(THREE_QUEUES, times([0.8] * 20)))
    config = parse(tomllib.loads(fragment(found)))
    assert config.policy.thresholds_gpu_s == THREE_QUEUES.thresholds_gpu_s
