"""The controller on the in-memory Slurm and the simulator start and preempt the same jobs at the
same times on the same nodes."""

from __future__ import annotations

import pytest

from scripts.testbed.start_for_start import (
    ALL,
    FEATURES,
    RANDOM,
    configured,
    differences,
    paper_differences,
    random_case,
)

SEEDS = {name: 3 + number % 2 for number, name in enumerate(FEATURES)}


@pytest.mark.parametrize("name", FEATURES)
def test_starts_and_preemptions_are_the_same(name: str) -> None:
    assert differences(*random_case(SEEDS[name]), configured(name)) == ""


@pytest.mark.parametrize("seed", range(1, 7))
def test_they_are_the_same_with_several_features_at_once(seed: int) -> None:
    assert differences(*random_case(seed), configured(RANDOM, seed)) == ""


def test_they_are_the_same_with_all_features_at_once() -> None:
    assert differences(*random_case(8), configured(ALL)) == ""


def test_they_are_the_same_on_jobs_of_the_paper_with_all_features_at_once() -> None:
    assert paper_differences(2, configured(ALL), jobs=150) == ""
