"""The bound on the slowdown: fair shares of jobs of unknown length, and how long a job may wait."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.config import parse
from slurm_tiresias.core.features.fair_finish import FairShares
from slurm_tiresias.core.features.max_slowdown import (
    COUNTS_ANEW_AFTER_S,
    LEAST_RUN_S,
    NEAR_S,
    RUNS_ON_BY,
    BoundNow,
    EarlierJob,
    MaxSlowdown,
)
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.rank import FIRST_LEVEL, JobRank
from slurm_tiresias.errors import ConfigError
from slurm_tiresias.model import (
    NOT_BOUND,
    Amount,
    JobState,
    Lane,
    Node,
    SlowdownStanding,
    WorkAtStake,
)
from tests.pictures import gpus, job

CONFIG = parse(
    {
        "policy": {"max_slowdown": 2},
        "preemption": {"min_run_s": 0},
        "controller": {"interval_s": 10},
    }
)
NODES = (Node("n1", Amount({"": 4})),)
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
    shares.advance(10.0)
    shares.gpus = 2
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


class ToldLengths(Policy):
    """A policy that knows how long some jobs still run."""

    def __init__(self) -> None:
        self.remaining_s: dict[str, float] = {}

    def rank(self, job: Job) -> JobRank:
        return JobRank(FIRST_LEVEL, (), 0)

    def reported_gpu_s(self, job: Job) -> float | None:
        remaining_s = self.remaining_s.get(job.job_id)
        return None if remaining_s is None else remaining_s * job.gpus_asked


class Site:
    """Job 1 and its rivals of unknown length want the whole cluster from second 0 on, so that each
    has its share of it."""

    def __init__(self, rivals: int = 1, remaining_s: float | None = None) -> None:
        self.bound = MaxSlowdown(CONFIG, NODES)
        self.policy = ToldLengths()
        self.bound.follow_policy(self.policy)
        self.jobs = [job(str(number), gpus(4)) for number in range(1, 2 + rivals)]
        self.job = self.jobs[0]
        for rival in self.jobs[1:]:
            rival.set(state=JobState.RUNNING, settled_s=0.0)
        if remaining_s is not None:
            self.policy.remaining_s["1"] = remaining_s
        for one in self.jobs:
            self.bound.follow(one, 0.0)

    def at(self, now_s: float, state: JobState = JobState.PENDING, run_s: float = 0.0) -> BoundNow:
        """Return how job 1 stands if it is looked at then."""
        self.job.state, self.job.run_s, self.job.settled_s = state, run_s, now_s
        self.bound.follow(self.job, now_s)
        now = self.bound.of("1")
        assert now is not None and now.standing == self.job.slowdown
        return now


def test_a_job_of_known_length_may_wait_until_only_its_own_run_fits_before_its_bound() -> None:
    site = Site(remaining_s=100.0)
    assert site.at(300.0 - MARGIN_S - 1.0).standing == NOT_BOUND
    # With half of the GPUs it ends at 200 s, so that it has to end by 400 s and to run from 300 s.
    now = site.at(250.0)
    assert now.must_run_by_s == pytest.approx(300.0)
    assert now.standing == SlowdownStanding(at_bound=True, length_known=True)


def test_a_run_of_a_job_of_known_length_is_kept_to_its_end_once_it_is_near_the_bound() -> None:
    kept = Site(remaining_s=100.0).at(0.0, JobState.RUNNING).standing
    assert kept == SlowdownStanding(kept=True)
    length_s = NEAR_S + MARGIN_S
    far = Site(remaining_s=length_s).at(0.0, JobState.RUNNING)
    assert far.must_run_by_s == length_s, "at the earliest its fair end is as if it were alone"
    assert far.standing == NOT_BOUND


def test_a_job_of_unknown_length_is_expected_to_run_on_for_a_quarter() -> None:
    site = Site()
    site.at(0.0, run_s=400.0)
    # At half of the GPUs it has its 500 s at 1000 s: its bound is at 2000 s, 100 s of it its own.
    now = site.at(1500.0, run_s=400.0)
    assert now.must_run_by_s == pytest.approx(1900.0)
    assert not now.length_known
    least_s = LEAST_RUN_S * (1 + RUNS_ON_BY)
    assert Site().at(1500.0).must_run_by_s == pytest.approx(2 * 2 * least_s - least_s)


def test_a_run_of_unknown_length_is_kept_for_a_while_only() -> None:
    site = Site(rivals=0)
    kept = site.at(1500.0, JobState.RUNNING)
    assert kept.standing == SlowdownStanding(kept=True)
    assert 1500.0 < kept.kept_until_s < math.inf
    again = site.at(1501.0, JobState.RUNNING, run_s=1.0)
    assert again.kept_until_s == kept.kept_until_s, "another look does not prolong it"
    assert site.bound.next_change_s == kept.kept_until_s


def test_restarts_do_not_count_as_running_time() -> None:
    often, once = Site(), Site()
    often.job.preemptions = 3
    often.job.at_stake = WorkAtStake(0.0, restart_s=20.0)
    once.job.at_stake = WorkAtStake(0.0, restart_s=20.0)
    assert often.at(1500.0, run_s=460.0) == once.at(1500.0, run_s=400.0)


@given(st.floats(0, 2000), st.one_of(st.none(), st.floats(1, 5000)), st.lists(st.floats(0.1, 500)))
def test_the_slack_of_a_waiting_job_falls_by_at_most_a_second_each_second(
    run_s: float, remaining_s: float | None, waits_s: list[float]
) -> None:
    site, now_s = Site(remaining_s=remaining_s), 0.0
    must_run_by_s = site.at(0.0, run_s=run_s).must_run_by_s
    for more_s in waits_s:
        now_s += more_s
        later_s = site.at(now_s, run_s=run_s).must_run_by_s
        assert later_s >= must_run_by_s - 1e-6 * now_s
        must_run_by_s = later_s


@given(
    st.lists(st.one_of(st.none(), st.integers(1, 3000)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2000)), max_size=12),
)
def test_jobs_that_are_not_due_stand_as_another_look_would_find(
    remaining_s: list[int | None], steps: list[tuple[int, int]]
) -> None:
    site, now_s = Site(rivals=len(remaining_s) - 1), 0.0
    jobs = site.jobs
    for one, told_s in zip(jobs, remaining_s, strict=True):
        if told_s is not None:
            site.policy.remaining_s[one.job_id] = float(told_s)
        site.bound.follow(one, now_s)
    for number, more_s in steps:
        turns = jobs[number % len(jobs)]
        waited = turns.state is JobState.PENDING
        turns.set(state=JobState.RUNNING if waited else JobState.PENDING, settled_s=now_s)
        site.bound.follow(turns, now_s)
        for one in jobs:
            if one.state is JobState.RUNNING and one.job_id in site.policy.remaining_s:
                less_s = site.policy.remaining_s[one.job_id] - more_s
                site.policy.remaining_s[one.job_id] = max(1.0, less_s)
        now_s += more_s
        tick(site, now_s)
        for one in jobs:
            found = one.slowdown
            if one.state is JobState.RUNNING:
                one.settle(now_s)
            site.bound.follow(one, now_s)
            if abs(bound_of(site, one).must_run_by_s - now_s - MARGIN_S) > 1e-6:
                assert one.slowdown == found


def tick(site: Site, now_s: float) -> list[Job]:
    """Follow the jobs that are due, as the engine does; return them."""
    due = list(site.bound.tick(now_s))
    for one in due:
        if one.state is JobState.RUNNING:
            one.settle(now_s)
        site.bound.follow(one, now_s)
    return due


def bound_of(site: Site, one: Job) -> BoundNow:
    now = site.bound.of(one.job_id)
    assert now is not None
    return now


def test_a_waiting_job_leaves_its_bound_once_others_slow_its_fair_share_down() -> None:
    # Alone it would have to run at once; with seven rivals its fair end is far away.
    site = Site(rivals=0, remaining_s=MARGIN_S)
    assert site.at(1.0).standing.at_bound
    for number in range(7):
        site.bound.follow(job(str(100 + number), gpus(4)), 1.0)
    assert site.job.slowdown.at_bound
    due_s = 1.0
    while site.job.slowdown.at_bound:
        due_s = site.bound.next_change_s
        tick(site, due_s)
    assert due_s < 20.0
    assert site.job.slowdown == NOT_BOUND


def test_a_job_that_is_blocked_for_long_has_no_share_and_counts_anew() -> None:
    site = Site(remaining_s=100.0)
    site.job.held = True
    site.bound.follow(site.job, 100.0)
    assert site.bound.of("1") is not None, "a requeue keeps a job waiting for seconds"
    tick(site, 100.0 + COUNTS_ANEW_AFTER_S)
    assert site.bound.of("1") is None
    site.job.held = False
    site.bound.follow(site.job, 5000.0)
    now = site.bound.of("1")
    assert now is not None and now.must_run_by_s > 5000.0


@pytest.mark.parametrize(
    "facts",
    [{"managed": False}, {"lane": Lane.IDLE_ONLY}, {"lane": Lane.INTERACTIVE}, {"gpus_asked": 0}],
)
def test_jobs_for_which_no_other_makes_room_do_not_count(facts: dict[str, object]) -> None:
    site = Site(remaining_s=100.0)
    assert site.at(250.0).standing.at_bound
    site.job.set(**facts)
    site.bound.follow(site.job, 251.0)
    assert site.bound.of("1") is None
    assert site.job.slowdown == NOT_BOUND


def test_a_job_submitted_since_the_last_look_counts_from_its_submission() -> None:
    site = Site()
    tick(site, 1000.0)
    new, old = job("8", gpus(4), submitted_s=1004.0), job("9", gpus(4), submitted_s=500.0)
    for one in (new, old):
        site.policy.remaining_s[one.job_id] = 100.0
        site.bound.follow(one, 1010.0)
    # Two times 106 or 110 s after that.
    assert bound_of(site, new).must_run_by_s == pytest.approx(1004.0 + 212.0 - 100.0)
    assert bound_of(site, old).must_run_by_s == pytest.approx(1000.0 + 220.0 - 100.0)


@pytest.mark.parametrize("step_s", [86_400.0, -86_400.0])
def test_a_step_of_the_clock_moves_all_times(step_s: float) -> None:
    found = []
    for by_s in (0.0, step_s):
        site = Site()
        site.at(1500.0, JobState.RUNNING)
        waits = job("9", gpus(4), submitted_s=1500.0)
        site.bound.follow(waits, 1500.0)
        site.bound.follow_clock(by_s)
        for one in site.jobs:
            one.settled_s += by_s
        tick(site, 1501.0 + by_s)
        site.bound.follow(waits, 1501.0 + by_s)
        assert waits.slowdown == NOT_BOUND
        kept_until_s = bound_of(site, site.job).kept_until_s
        found.append((kept_until_s - by_s, bound_of(site, waits).must_run_by_s - by_s))
    assert found[0] == pytest.approx(found[1])


def test_the_jobs_that_an_engine_was_not_told_of_have_ended() -> None:
    site = Site()
    site.bound.forget_all_but({"2"})
    assert site.bound.of("1") is None
    assert site.bound.of("2") is not None


def test_earlier_jobs_have_had_their_shares() -> None:
    one = job("1", gpus(4))
    earlier = [EarlierJob("1", 4, 0.0, 0.0, job=one), EarlierJob("2", 4, 0.0, 260.0, preemptions=1)]
    bound, policy = MaxSlowdown(CONFIG, NODES, earlier), ToldLengths()
    policy.remaining_s["1"] = 300.0
    bound.follow_policy(policy)
    bound.follow(one, 1000.0)
    # Job 2 has its 200 s at 400 s, so that job 1 has its 300 s at 500 s.
    now = bound.of("1")
    assert now is not None and now.must_run_by_s == pytest.approx(1000.0 - 300.0)


@pytest.mark.parametrize("times", [0.5, 1, 1.4])
def test_a_bound_that_leaves_no_room_is_refused(times: float) -> None:
    with pytest.raises(ConfigError, match=r"policy\.max_slowdown = .* leaves no room"):
        parse({"policy": {"max_slowdown": times}})
