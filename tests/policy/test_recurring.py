"""Running times of ended jobs, and the rank of the next one like them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.estimates import ByHistory
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.features.recurring import ENOUGH, KEPT, RunHistory
from slurm_tiresias.core.job import Snapshot
from slurm_tiresias.model import Amount, JobState, Plan, Request
from tests.pictures import PARTITION, after, cluster, configured, drawn, gpus, job

CONFIG = configured(policy={"estimates": ["history"]})  # tiers from 100, 200, 400 and 800 on
Ended = tuple[str, str, float | None, float]


def ended(user: str, name: str, run_s: float, limit_s: float | None = None) -> list[Ended]:
    """Enough jobs of one program that ran for as long."""
    return [(user, name, limit_s, run_s)] * ENOUGH


ANN_TRAINS_LONG = ended("ann", "train", 160.0)
BEN_TRAINS_SHORT = ended("ben", "train", 45.0)


def decided(snapshot: Snapshot, *known: Ended) -> Plan:
    return decide(snapshot, make_policy(CONFIG.policy, runs=RunHistory(known)), CONFIG)


def test_a_job_with_much_left_by_its_history_ranks_below_one_with_little() -> None:
    """Both have attained as much; by LAS they would be equal."""
    before = cluster(
        """
        n1  1 1 1 1
        """,
        [
            job("1", gpus(4), tier=1, user="ann", name="train", executed_since_promotion_s=25.0),
            job("2", gpus(4), tier=1, user="ben", name="train", executed_since_promotion_s=25.0),
        ],
    )
    for known, tiers in (((), [1, 1]), ((*ANN_TRAINS_LONG, *BEN_TRAINS_SHORT), [3, 1])):
        plan = decided(before, *known)
        assert [plan.decisions[key].tier for key in "12"] == tiers


def test_a_job_gets_its_try_in_the_first_tier_however_long_jobs_like_it_ran() -> None:
    policy = make_policy(CONFIG.policy, runs=RunHistory(ANN_TRAINS_LONG))
    new = job("1", gpus(4), user="ann", name="train")
    assert policy.rank(new).tier == 0
    tried = replace(new, attained_gpu_s=100.0, attained_since_promotion_gpu_s=100.0)
    assert policy.rank(tried).tier == 3


def test_a_guess_moves_a_job_down_by_two_tiers_at_most() -> None:
    settings = configured(policy={"thresholds_gpu_s": [100, 200, 300, 400, 500]}).policy
    policy = make_policy(settings, runs=RunHistory(ended("ann", "train", 1000.0)))
    one = job("1", gpus(4), user="ann", name="train", attained_gpu_s=100.0)
    assert policy.rank(replace(one, attained_since_promotion_gpu_s=100.0)).tier == 3


def test_in_a_tier_the_job_with_the_shortest_expected_run_starts_first() -> None:
    jobs = [job("1", gpus(4), user="ann", name="x"), job("2", gpus(4), user="ben", name="x")]
    before = cluster("n1  . . . .", jobs)
    plan = decided(before, *ended("ann", "x", 9.0), *ended("ben", "x", 4.0))
    assert after(before, plan) == drawn("n1  2 2 2 2")


def test_a_new_name_is_judged_by_its_user_and_a_new_user_by_the_site() -> None:
    runs = RunHistory(ended("ann", "train", 50.0) + ended("ben", "x", 90.0))
    assert runs.remaining_s("ann", "train", None, 0.0) == 50.0
    assert runs.remaining_s("ann", "other", None, 10.0) == 40.0
    assert runs.remaining_s("eve", "train", None, 60.0) == 30.0
    assert runs.remaining_s("", "", None, 60.0) == 30.0


def test_there_is_no_estimate_before_enough_jobs_have_ended() -> None:
    known = ended("ann", "train", 50.0)
    assert RunHistory(known[1:]).remaining_s("ann", "train", None, 0.0) is None
    assert RunHistory(known).remaining_s("ann", "train", None, 0.0) == 50.0


def test_jobs_of_another_time_limit_do_not_count() -> None:
    hour_s, day_s = 3600.0, 86_400.0
    known = ended("ann", "train", 50.0, hour_s) + ended("ann", "train", 5000.0, day_s)
    runs = RunHistory(known)
    assert runs.remaining_s("ann", "train", 1.2 * hour_s, 0.0) == 50.0
    assert runs.remaining_s("ann", "train", day_s, 0.0) == 5000.0


def test_a_group_of_few_runs_is_completed_by_typical_ones_of_the_next_larger() -> None:
    runs = RunHistory([*ended("ben", "x", 90.0), *[("ann", "train", None, 10.0)] * 2])
    assert runs.remaining_s("ann", "train", None, 20.0) == 70.0, "ben's"
    most_are_short = [("ann", "train", None, 10.0)] * (ENOUGH // 2)
    runs = RunHistory([*ended("ben", "x", 90.0) * 4, *most_are_short])
    assert runs.remaining_s("ann", "train", None, 0.0) == 20.0, "half of all have ended by 10 s"


def test_estimates_change_at_few_ends_not_at_each() -> None:
    runs, changes = RunHistory(), 0
    for run_s in range(1, 501):
        runs.remaining_s("ann", "train", None, 0.0)
        changes += bool(runs.add("ann", "train", None, float(run_s)))
    assert 20 < changes < 50
    assert not runs.add("ann", "train", None, 0.0), "it never ran"


ends = st.tuples(
    st.sampled_from(["", "ann", "ben"]),
    st.sampled_from(["", "train"]),
    st.sampled_from([None, 60.0]),
    st.sampled_from([5.0, 50.0, 500.0]),
)
KINDS = list(itertools.product(["", "ann", "ben"], ["", "train"], [None, 60.0]))


@given(st.lists(ends, min_size=10, max_size=60))
def test_an_end_changes_the_estimates_of_the_users_that_it_names_alone(
    ended: list[tuple[str, str, float | None, float]],
) -> None:
    runs = RunHistory()
    for before, end in enumerate(ended):
        known = {kind: runs.remaining_s(*kind, 20.0) for kind in KINDS}
        users = runs.add(*end)
        now = {kind: runs.remaining_s(*kind, 20.0) for kind in KINDS}
        fresh = RunHistory(ended[: before + 1])
        assert now == {kind: fresh.remaining_s(*kind, 20.0) for kind in KINDS}
        assert {kind[0] for kind in KINDS if now[kind] != known[kind]} <= set(users)


def test_old_runs_are_forgotten() -> None:
    runs = RunHistory([("ann", "train", None, 5000.0)] + [("ann", "train", None, 10.0)] * 2 * KEPT)
    assert runs.remaining_s("ann", "train", None, 10.0) == 10.0


def test_a_promoted_job_returns_to_the_top_whatever_its_history() -> None:
    policy = make_policy(CONFIG.policy, runs=RunHistory(ANN_TRAINS_LONG))
    starved = job("1", gpus(4), tier=2, user="ann", name="train")
    promoted = replace(starved, attained_since_promotion_gpu_s=0.0)
    assert policy.rank(starved).tier == 3
    assert policy.rank(promoted).tier == 0


@pytest.mark.parametrize(
    ("executed_s", "remaining_s"), [(0.0, 100.0), (30.0, 70.0), (99.0, 1.0), (101.0, 101.0)]
)
def test_a_job_that_has_outlived_all_others_is_expected_to_run_as_long_again(
    executed_s: float, remaining_s: float
) -> None:
    runs = RunHistory(ended("ann", "train", 100.0))
    assert runs.remaining_s("ann", "train", None, executed_s) == remaining_s


def test_a_job_whose_request_cannot_be_read_has_no_estimate() -> None:
    policy = make_policy(CONFIG.policy, runs=RunHistory(ANN_TRAINS_LONG))
    request = Request(Amount({}), chunks=1, partitions=(PARTITION,))
    waiting = job("1", request, user="ann", name="train", time_limit_s=100.0)
    unreadable = replace(waiting, allocation={"n1": Amount({"": 2})}, state=JobState.RUNNING)
    assert policy.rank(unreadable).tier == 0
    assert policy.steady_for_s(unreadable) > 0.0


seconds = st.integers(1, 10**6).map(float)


@given(st.lists(seconds, min_size=ENOUGH, max_size=80), seconds)
def test_estimates_by_history_are_no_less_than_attained(run_s: list[float], ran_s: float) -> None:
    runs = RunHistory(("ann", "train", None, each) for each in run_s)
    one = job("1", gpus(4), user="ann", name="train", attained_gpu_s=4 * ran_s)
    one = replace(one, attained_since_promotion_gpu_s=4 * ran_s, executed_since_promotion_s=ran_s)
    remaining_gpu_s = ByHistory(runs).remaining_gpu_s(one)
    assert remaining_gpu_s is not None and remaining_gpu_s >= 4 * ran_s


@given(st.lists(seconds, min_size=ENOUGH, max_size=KEPT), seconds, seconds)
def test_an_estimate_stays_in_its_range_for_as_long_as_guaranteed(
    run_s: list[float], ran_s: float, cut_s: float
) -> None:
    runs = RunHistory(("ann", "train", None, each) for each in run_s)
    now_s = runs.remaining_s("ann", "train", None, ran_s)
    assert now_s is not None
    least_s, most_s = (0.0, cut_s) if now_s < cut_s else (cut_s, 1e9)
    steady_s = runs.steady_for_s("ann", "train", None, ran_s, least_s, most_s)
    assert steady_s >= 0.0
    for share in (0.01, 0.5, 0.99):
        later_s = runs.remaining_s("ann", "train", None, ran_s + share * steady_s)
        assert later_s is not None and least_s - 1e-6 <= later_s <= most_s + 1e-6
