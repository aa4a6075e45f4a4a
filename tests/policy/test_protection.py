"""A job that is preempted again and again gets ever longer runs."""

from __future__ import annotations

import pytest

from slurm_tiresias.config import PreemptionConfig
from slurm_tiresias.policy.protection import protected_for_s

SITE = PreemptionConfig(min_run_s=120.0, min_run_growth=2.0, max_min_run_s=3600.0)


@pytest.mark.parametrize(
    ("preemptions", "protected_s"), [(0, 120), (1, 240), (4, 1920), (5, 3600), (10**9, 3600)]
)
def test_each_preemption_doubles_the_minimum_run_time_up_to_an_hour(
    preemptions: int, protected_s: float
) -> None:
    assert protected_for_s(preemptions, SITE) == protected_s


def test_without_growth_the_minimum_run_time_stays_as_it_is() -> None:
    assert protected_for_s(9, PreemptionConfig(min_run_s=120.0, min_run_growth=1.0)) == 120


def test_a_minimum_run_time_beyond_the_longest_stays_as_it_is() -> None:
    assert protected_for_s(9, PreemptionConfig(min_run_s=7200.0)) == 7200
    assert protected_for_s(9, PreemptionConfig(min_run_s=0.0)) == 0
