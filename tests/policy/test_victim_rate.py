"""How many jobs are preempted in a given time."""

from __future__ import annotations

import math
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.core.features.victim_rate import VictimRate
from slurm_tiresias.model import RecentVictims

RATE = VictimRate(most=100, interval_s=10.0)


def test_an_interval_begins_with_its_first_victim() -> None:
    recent = RATE.after(RecentVictims(), 60, 3.0)
    assert recent == (60, 13.0)
    assert RATE.after(recent, 40, 12.9) == (100, 13.0)
    assert RATE.at(recent, 13.0).jobs == 0
    assert RATE.after(recent, 1, 14.0) == (1, 24.0)


def test_victims_beyond_the_limit_count_in_the_intervals_to_come() -> None:
    recent = RATE.after(RecentVictims(), 250, 0.0)
    counts = [RATE.at(recent, at_s).jobs for at_s in (0.0, 9.9, 10.0, 20.0, 29.9, 30.0)]
    assert counts == [250, 250, 150, 50, 50, 0]


def test_no_interval_is_longer_after_the_clock_was_set_back() -> None:
    assert RATE.at(RecentVictims(100, 7200.0), 0.0).until_s == 10.0


def test_without_a_limit_nothing_counts_for_longer_than_an_interval() -> None:
    rate = VictimRate(math.inf, 10.0)
    assert rate.at(rate.after(RecentVictims(), 1000, 0.0), 10.0).jobs == 0


@given(st.integers(1, 8), st.lists(st.tuples(st.floats(0, 30), st.integers(1, 20)), max_size=40))
def test_no_run_of_intervals_has_more_victims_than_the_limit_and_what_one_job_needed(
    most: int, wishes: list[tuple[float, int]]
) -> None:
    rate = VictimRate(most, 10.0)
    recent, taken = RecentVictims(), []
    for at_s, (_, wanted) in zip(accumulate(gap_s for gap_s, _ in wishes), wishes, strict=True):
        if rate.at(recent, at_s).jobs < most:
            recent = rate.after(recent, wanted, at_s)
            taken.append((at_s, wanted))
    for i, (first_s, _) in enumerate(taken):
        for j in range(i, len(taken)):
            intervals = 1 + int((taken[j][0] - first_s) // 10.0)
            victims = [count for _, count in taken[i : j + 1]]
            assert sum(victims) < most * (intervals + 1) + max(victims)


@given(st.integers(1, 8), st.integers(1, 20))
def test_the_next_job_preempts_once_the_excess_is_made_up_for(most: int, wanted: int) -> None:
    rate = VictimRate(most, 10.0)
    recent = rate.after(RecentVictims(), wanted, 0.0)
    due_s = wanted // most * 10.0
    assert rate.at(recent, due_s).jobs < most
    assert due_s == 0.0 or rate.at(recent, due_s - 0.1).jobs >= most
