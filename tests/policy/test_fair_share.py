"""The fair-share reference, compared with hand-made cases and a naive implementation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.core.fair_share import SharedJob, fair_ends_s


@pytest.mark.parametrize(
    ("jobs", "ends_s"),
    [
        ([SharedJob(0, 4, 100)], [100]),
        ([SharedJob(0, 4, 100), SharedJob(0, 4, 100)], [200, 200]),
        ([SharedJob(0, 4, 100), SharedJob(50, 4, 100)], [150, 200]),
        # For 30 s the wide ones have 1.5 GPUs each, then two: 15 s and 45 s of their work.
        ([SharedJob(0, 1, 30), SharedJob(0, 3, 60), SharedJob(0, 3, 60)], [30, 97.5, 97.5]),
        ([SharedJob(0, 8, 100)], [200]),
        ([SharedJob(7, 1, 5), SharedJob(0, 1, 2)], [12, 2]),
    ],
    ids=[
        "alone",
        "two share evenly",
        "the second comes later",
        "a narrow one leaves what it cannot use",
        "wider than the cluster",
        "in any order",
    ],
)
def test_jobs_end_as_with_equal_shares(jobs: Sequence[SharedJob], ends_s: Sequence[float]) -> None:
    assert fair_ends_s(jobs, 4) == pytest.approx(ends_s)


def plainly(jobs: Sequence[SharedJob], gpus: int) -> list[float]:
    """Compute the same by giving GPUs to one job after another, from event to event."""
    left_s = {number: job.duration_s for number, job in enumerate(jobs)}
    ends_s = [math.inf] * len(jobs)
    now_s = 0.0
    while left_s:
        active = [n for n in left_s if jobs[n].submitted_s <= now_s]
        share: dict[int, float] = {}
        free = float(gpus)
        for place, number in enumerate(sorted(active, key=lambda n: jobs[n].gpus)):
            share[number] = min(jobs[number].gpus, free / (len(active) - place))
            free -= share[number]
        speed = {number: share[number] / jobs[number].gpus for number in active}
        ends = [(now_s + left_s[n] / speed[n], n) for n in active]
        comes_s = min((j.submitted_s for j in jobs if j.submitted_s > now_s), default=math.inf)
        end_s, first = min(ends, default=(math.inf, -1))
        until_s = min(end_s, comes_s)
        for number in active:
            left_s[number] -= (until_s - now_s) * speed[number]
        now_s = until_s
        if end_s <= comes_s:
            ends_s[first] = end_s
            del left_s[first]
    return ends_s


@given(
    st.lists(
        st.builds(
            SharedJob,
            st.integers(0, 200).map(float),
            st.sampled_from([1, 1, 2, 3, 4, 8, 20]),
            st.integers(1, 300).map(float),
        ),
        max_size=25,
    ),
    st.sampled_from([1, 4, 12]),
)
def test_grouping_by_width_equals_the_naive_computation(jobs: list[SharedJob], gpus: int) -> None:
    assert fair_ends_s(jobs, gpus) == pytest.approx(plainly(jobs, gpus), rel=1e-6, abs=1e-6)
