"""The bound on the slowdown: fair shares of jobs of unknown length, and how long a job may wait."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.config import parse
from slurm_tiresias.core.features.fair_finish import FairShares
from slurm_tiresias.core.features.slowdown_bound import (
    LEAST_RUN_S,
    NEAR_S,
    RUNS_ON_BY,
    SlowdownBound,
)
from slurm_tiresias.errors import ConfigError
from slurm_tiresias.model import NOT_BOUND, FairStanding, JobState, WorkAtStake


@dataclass(frozen=True)
class Job:
    job_id: str
    state: JobState = JobState.PENDING
    preemptions: int = 0
    gpus_asked: int = 4
    at_stake: WorkAtStake | None = None


WAITS, RUNS = Job("1"), Job("1", JobState.RUNNING)
CONFIG = parse(
    {
        "policy": {"max_slowdown": 2},
        "preemption": {"min_run_s": 0},
        "controller": {"interval_s": 10},
    }
)
MARGIN_S = 10.0 + 60.0
"""An interval, and the usual restart."""


def test_a_job_of_unknown_length_shares_until_its_end_is_known() -> None:
    shares = FairShares(4)
    shares.enter("1", 4, 0.0)
    shares.enter("2", 4, 0.0)
    shares.advance(100.0)
    assert shares.had_s("1") == shares.had_s("2") == 50.0
    shares.expect("1", 60.0)
    shares.advance(200.0)
    # Job 1 has its 60 s at 120 s; from then on job 2 has all GPUs.
    assert shares.ended("1")
    assert shares.reached_s("1", 60.0) == pytest.approx(120.0)
    assert shares.had_s("2") == pytest.approx(60.0 + 80.0)
    assert shares.reached_s("2", 140.1) is None


def test_a_job_that_needs_more_than_was_expected_shares_again() -> None:
    shares = FairShares(4)
    shares.enter("1", 4, 0.0)
    shares.expect("1", 10.0)
    shares.advance(100.0)
    assert shares.ended("1")
    shares.expect("1", 30.0)
    shares.advance(150.0)
    assert shares.reached_s("1", 5.0) == pytest.approx(5.0), "as it was the first time"
    assert shares.reached_s("1", 20.0) == pytest.approx(110.0)
    assert shares.reached_s("1", 30.0) == pytest.approx(120.0)


def test_what_a_job_has_had_is_not_taken_back() -> None:
    shares = FairShares(4)
    shares.enter("1", 4, 0.0)
    shares.advance(100.0)
    shares.expect("1", 10.0)
    assert shares.ended("1")
    assert shares.had_s("1") == 100.0
    assert shares.reached_s("1", 10.0) == pytest.approx(10.0)


def test_a_cluster_that_shrinks_slows_all_jobs_down() -> None:
    shares = FairShares(4)
    shares.enter("1", 4, 0.0)
    shares.set_gpus(2, 10.0)
    shares.advance(30.0)
    assert shares.had_s("1") == pytest.approx(10.0 + 10.0)


steps = st.lists(
    st.tuples(
        st.sampled_from(["enter", "expect", "unknown", "wait"]),
        st.integers(0, 5),
        st.integers(1, 120),
    ),
    max_size=40,
)


@given(steps, st.sampled_from([1, 4, 12]))
def test_shares_never_exceed_the_cluster_and_times_agree_with_them(
    done: list[tuple[str, int, int]], gpus: int
) -> None:
    shares, now_s, widths = FairShares(gpus), 0.0, (1, 1, 2, 4, 8, 12)
    for what, number, amount in done:
        job = str(number)
        before = {str(n): shares.had_s(str(n)) for n in range(6) if str(n) in shares}
        if what == "wait":
            now_s += amount
            shares.advance(now_s)
            given_gpu_s = sum(
                (shares.had_s(job) - had_s) * widths[int(job)] for job, had_s in before.items()
            )
            assert given_gpu_s <= gpus * amount * (1 + 1e-9)
        elif what == "enter" and job not in shares:
            shares.enter(job, widths[number], now_s)
        elif job in shares:
            shares.expect(job, float(amount) if what == "expect" else math.inf)
        for known in (str(n) for n in range(6) if str(n) in shares):
            had_s = shares.had_s(known)
            assert had_s >= before.get(known, 0.0) - 1e-6
            at_s = shares.reached_s(known, had_s / 2)
            assert at_s is not None
            assert -1e-6 <= at_s <= now_s + 1e-6


def bound_with_rival() -> SlowdownBound:
    """Jobs 1 and 2 want all four GPUs from second 0 on, so that each has half of them."""
    bound = SlowdownBound(CONFIG, 4)
    bound.enter("1", 4, 0.0, 0.0)
    bound.enter("2", 4, 0.0, 0.0)
    return bound


def test_a_job_of_known_length_may_wait_until_only_its_own_run_fits_before_its_bound() -> None:
    bound = bound_with_rival()
    bound.expect(WAITS, 0.0, 100.0)
    bound.shares.advance(300.0)
    # With half of the GPUs it ends at 200 s, so that it has to end by 400 s and to run from 300 s.
    slack = bound.slack(WAITS, 0.0, 100.0, 250.0)
    assert slack == (50.0, True)
    assert bound.standing(WAITS, slack, 250.0) == FairStanding(at_bound=True, length_known=True)
    early = bound.slack(WAITS, 0.0, 100.0, 300.0 - MARGIN_S - 1.0)
    assert bound.standing(WAITS, early, 0.0) == NOT_BOUND


def test_a_run_of_a_job_of_known_length_is_kept_to_its_end_once_it_is_near_the_bound() -> None:
    bound = bound_with_rival()
    kept = bound.standing(RUNS, bound.slack(RUNS, 0.0, 100.0, 0.0), 0.0)
    assert kept.kept_until_s == math.inf
    length_s = NEAR_S + MARGIN_S
    far = bound.slack(RUNS, 0.0, length_s, 0.0)
    assert far.slack_s == length_s, "at the earliest its fair end is as if it were alone"
    assert bound.standing(RUNS, far, 0.0) == NOT_BOUND


def test_a_job_of_unknown_length_is_expected_to_run_on_for_a_quarter() -> None:
    bound = bound_with_rival()
    bound.expect(WAITS, 400.0, None)
    bound.shares.advance(1500.0)
    # At half of the GPUs it has its 500 s at 1000 s: its bound is at 2000 s, 100 s of it its own.
    assert bound.slack(WAITS, 400.0, None, 1500.0) == (400.0, False)
    assert bound.slack(WAITS, 0.0, None, 1500.0).slack_s == pytest.approx(
        2 * 2 * LEAST_RUN_S * (1 + RUNS_ON_BY) - 1500.0 - LEAST_RUN_S * (1 + RUNS_ON_BY)
    )


def test_a_run_of_unknown_length_is_kept_for_a_while_only() -> None:
    bound = bound_with_rival()
    bound.shares.advance(1500.0)
    slack = bound.slack(RUNS, 0.0, None, 1500.0)
    kept = bound.standing(RUNS, slack, 1500.0)
    assert 1500.0 < kept.kept_until_s < math.inf


def test_restarts_do_not_count_as_running_time() -> None:
    bound = bound_with_rival()
    bound.shares.advance(1500.0)
    often = Job("1", preemptions=3, at_stake=WorkAtStake(0.0, restart_s=20.0))
    assert bound.slack(often, 460.0, None, 1500.0) == bound.slack(WAITS, 400.0, None, 1500.0)


@given(st.floats(0, 2000), st.one_of(st.none(), st.floats(1, 5000)), st.lists(st.floats(0.1, 500)))
def test_the_slack_of_a_waiting_job_falls_by_at_most_a_second_each_second(
    run_s: float, remaining_s: float | None, waits_s: list[float]
) -> None:
    bound, now_s = bound_with_rival(), 0.0
    bound.expect(WAITS, run_s, remaining_s)
    slack_s = bound.slack(WAITS, run_s, remaining_s, now_s).slack_s
    for more_s in waits_s:
        now_s += more_s
        bound.shares.advance(now_s)
        later_s = bound.slack(WAITS, run_s, remaining_s, now_s).slack_s
        assert later_s >= slack_s - more_s - 1e-6 * now_s
        slack_s = later_s


@pytest.mark.parametrize("times", [0.5, 1, 1.4])
def test_a_bound_that_leaves_no_room_is_refused(times: float) -> None:
    with pytest.raises(ConfigError, match=r"policy\.max_slowdown = .* leaves no room"):
        parse({"policy": {"max_slowdown": times}})
