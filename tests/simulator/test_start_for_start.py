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
from slurm_tiresias.simulator.sim_cluster import SimCluster
from slurm_tiresias.simulator.workload import TraceJob, Workload

SEEDS = {name: 3 + number % 2 for number, name in enumerate(FEATURES)}


@pytest.mark.parametrize("name", FEATURES)
def test_starts_and_preemptions_are_the_same(name: str) -> None:
    assert differences(*random_case(SEEDS[name]), configured(name)) == ""


@pytest.mark.parametrize("seed", [1, 2, 3, 50, 91, 93, 130])
def test_they_are_the_same_with_several_features_at_once(seed: int) -> None:
    assert differences(*random_case(seed), configured(RANDOM, seed)) == ""


@pytest.mark.parametrize("seed", [8, 9, 10, 71])
def test_they_are_the_same_with_all_features_at_once(seed: int) -> None:
    assert differences(*random_case(seed), configured(ALL)) == ""


def test_they_are_the_same_on_jobs_of_the_paper_with_all_features_at_once() -> None:
    assert paper_differences(2, configured(ALL), jobs=60) == ""


def test_of_two_jobs_that_start_together_each_gets_what_its_own_victim_leaves() -> None:
    """Slurm tries the first one first, and the plan has the newest first."""
    long = (TraceJob(str(number), 0.0, 1, 400.0, user="ann") for number in range(2))
    short = (TraceJob(str(number), 190.0 + number, 1, 30.0, user="ben") for number in (2, 3))
    jobs = Workload("two at once", (*long, *short))
    assert differences(SimCluster(1, 2), jobs, configured("newest")) == ""
