"""How much service a preemption moved."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.report.moved import VacatedGpus, moved_gpu_s


def left(gpus: int, again_s: float, *, for_gpus: int = 8, until_s: float = 100.0) -> VacatedGpus:
    """GPUs that were freed for a job that ran from 10 s on."""
    return VacatedGpus(gpus, again_s, "9", for_gpus, 10.0, until_s)


def test_moved_service_is_the_preemptors_run_until_the_victim_restarts() -> None:
    assert moved_gpu_s([left(4, 60.0, for_gpus=2)], 1000) == [50 * 2]
    assert moved_gpu_s([left(4, math.inf, for_gpus=8)], 1000) == [90 * 4]
    assert moved_gpu_s([left(4, math.inf)], 30) == [20 * 4], "and no longer than one looks"


def test_several_victims_of_one_preemptor_share_the_service_moved_to_it() -> None:
    # Together they left 12 of which it used 8; from 50 s on only the second one's 4 are left.
    assert moved_gpu_s([left(8, 50.0), left(4, math.inf)], 1000) == pytest.approx(
        [40 * 8 * 2 / 3, 40 * 8 / 3 + 50 * 4]
    )


def test_a_victim_that_restarts_before_the_preemptor_starts_gives_nothing() -> None:
    assert moved_gpu_s([left(4, 5.0)], 1000) == [0.0]
    assert moved_gpu_s([left(4, math.inf)], 5) == [0.0]
    assert moved_gpu_s([left(0, math.inf)], 100) == [0.0]
    assert moved_gpu_s([], 100) == []


SEATS = st.lists(
    st.builds(
        left,
        st.integers(0, 8),
        st.one_of(st.floats(0, 200), st.just(math.inf)),
        for_gpus=st.just(6),
        until_s=st.just(100.0),
    ),
    max_size=6,
)


@given(SEATS, st.floats(0, 200))
def test_no_victim_gives_more_than_it_vacated_and_their_sum_is_at_most_what_was_used(
    vacated: list[VacatedGpus], until_s: float
) -> None:
    found = moved_gpu_s(vacated, until_s)
    used_s = max(0.0, min(100.0, until_s) - 10)
    assert sum(found) <= 6 * used_s + 1e-6
    for one, gpu_s in zip(vacated, found, strict=True):
        assert -1e-9 <= gpu_s <= one.gpus * used_s + 1e-6
