"""Running times of jobs of the same user and name, and the rank of the next one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.estimates import ByHistory
from slurm_tiresias.core.features.limits import LimitHistory
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.features.recurring import KEPT, RunHistory
from slurm_tiresias.core.job import Snapshot
from slurm_tiresias.model import Amount, JobState, Plan, Request
from tests.pictures import PARTITION, after, cluster, configured, drawn, gpus, job

CONFIG = configured(policy={"estimates": ["history"]})
ANN_TRAINS_LONG = [("ann", "train", 60.0)] * 3
BEN_IS_QUICK = [("ben", "debug", 2.0)] * 3


def decided(snapshot: Snapshot, *ended: tuple[str, str, float]) -> Plan:
    runs = RunHistory(ended)
    return decide(snapshot, make_policy(CONFIG.policy, runs=runs), CONFIG)


def test_a_job_with_long_running_history_is_preempted_for_one_with_short_history() -> None:
    """Neither job has attained service; by LAS both would be equal."""
    before = cluster(
        """
        n1  1 1 1 1
        """,
        [job("1", gpus(4), user="ann", name="train"), job("2", gpus(4), user="ben", name="debug")],
    )
    assert after(before, decided(before)) == drawn("n1  1 1 1 1")
    plan = decided(before, *ANN_TRAINS_LONG, *BEN_IS_QUICK)
    assert after(before, plan) == drawn("n1  2 2 2 2")


def test_in_a_tier_the_job_with_the_shortest_expected_run_starts_first() -> None:
    jobs = [
        job("1", gpus(4), user="ann", name="x"),
        job("2", gpus(4), user="ben", name="x"),
    ]
    before = cluster("n1  . . . .", jobs)
    plan = decided(before, ("ann", "x", 9.0), ("ben", "x", 4.0))
    assert after(before, plan) == drawn("n1  2 2 2 2")


def test_a_new_job_name_is_ranked_by_its_users_history_and_a_new_user_by_service() -> None:
    runs = RunHistory([("ann", "train", 50.0)])
    assert runs.remaining_s("ann", "train", 0.0) == 50.0
    assert runs.remaining_s("ann", "other", 10.0) == 40.0
    assert runs.remaining_s("eve", "train", 10.0) is None
    assert runs.remaining_s("", "", 10.0) is None


def test_old_runs_are_forgotten() -> None:
    runs = RunHistory([("ann", "train", 5000.0)] + [("ann", "train", 10.0)] * KEPT)
    assert runs.remaining_s("ann", "train", 10.0) == 10.0


def test_a_promoted_job_returns_to_the_top_whatever_its_history() -> None:
    policy = make_policy(CONFIG.policy, runs=RunHistory(ANN_TRAINS_LONG))
    starved = job("1", gpus(4), tier=2, user="ann", name="train")
    promoted = replace(starved, attained_since_promotion_gpu_s=0.0)
    assert policy.rank(starved).tier == 2
    assert policy.rank(promoted).tier == 0


@pytest.mark.parametrize(
    ("executed_s", "remaining_s"), [(0.0, 100.0), (30.0, 70.0), (99.0, 1.0), (101.0, 101.0)]
)
def test_a_job_that_has_outlived_all_others_is_expected_to_run_as_long_again(
    executed_s: float, remaining_s: float
) -> None:
    runs = RunHistory([("ann", "train", 100.0)])
    assert runs.remaining_s("ann", "train", executed_s) == remaining_s


@pytest.mark.parametrize("estimates", [("history",), ("limits",)])
def test_a_job_whose_request_cannot_be_read_has_no_estimate(estimates: tuple[str, ...]) -> None:
    limits = LimitHistory(("ann", limit_s, limit_s / 2) for limit_s in range(10, 1000))
    settings = replace(CONFIG.policy, estimates=estimates)
    policy = make_policy(settings, runs=RunHistory(ANN_TRAINS_LONG), limits=limits)
    request = Request(Amount({}), chunks=1, partitions=(PARTITION,))
    waiting = job("1", request, user="ann", name="train", time_limit_s=100.0)
    unreadable = replace(waiting, allocation={"n1": Amount({"": 2})}, state=JobState.RUNNING)
    assert policy.rank(unreadable).tier == 0
    assert policy.steady_for_s(unreadable) > 0.0


seconds = st.integers(0, 10**6).map(float)


@given(st.lists(seconds, min_size=1, max_size=80), seconds)
def test_no_estimate_by_history_is_less_than_the_service_attained(
    run_s: list[float], ran_s: float
) -> None:
    runs = RunHistory([("ann", "train", each) for each in run_s])
    one = job("1", gpus(4), user="ann", name="train", attained_gpu_s=4 * ran_s)
    one = replace(one, attained_since_promotion_gpu_s=4 * ran_s, executed_since_promotion_s=ran_s)
    remaining_gpu_s = ByHistory(runs).remaining_gpu_s(one)
    assert remaining_gpu_s is not None and remaining_gpu_s >= 4 * ran_s
