"""Tiers, orders inside a tier, promotion and the Gittins index."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.testbed.job_views import changed
from slurm_tiresias.core.features.gittins import GITTINS_SAMPLES, ServiceHistory
from slurm_tiresias.core.features.make import FACTORIES, make_policy
from slurm_tiresias.core.features.promotion import Promotion
from slurm_tiresias.core.features.tiers import ORDERS, TieredGittins, left_in_tier, tier_of
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import JobState
from slurm_tiresias.settings.policy import POLICIES
from tests.pictures import NOW_S, configured, gpus, job


@pytest.mark.parametrize(
    ("attained_gpu_s", "tier"), [(0, 0), (99.9, 0), (100, 1), (199.9, 1), (200, 2), (1e12, 2)]
)
def test_a_job_leaves_its_tier_exactly_at_the_threshold(attained_gpu_s: float, tier: int) -> None:
    assert tier_of(attained_gpu_s, (100.0, 200.0)) == tier


def _ids_in(order: str, jobs: list[Job]) -> list[str]:
    return [one.job_id for one in sorted(jobs, key=ORDERS[order])]


def test_first_start_order_puts_new_jobs_last_by_submission() -> None:
    jobs = [
        job("1", gpus(1), submitted_s=1),
        job("2", gpus(1), submitted_s=2, first_started_s=50),
        job("3", gpus(1), submitted_s=3, first_started_s=40),
        job("4", gpus(1), submitted_s=0),
    ]
    assert _ids_in("first-start", jobs) == ["3", "2", "4", "1"]


def test_entry_order_follows_when_a_job_came_into_its_tier_and_newest_is_its_reverse() -> None:
    jobs = [
        job("1", gpus(1), submitted_s=1, tier_entered_s=30),
        job("2", gpus(1), submitted_s=20),
        job("3", gpus(1), submitted_s=3, tier_entered_s=25),
    ]
    assert _ids_in("entry", jobs) == ["2", "3", "1"]
    assert _ids_in("newest", jobs) == ["1", "3", "2"]


def test_running_first_puts_a_preempted_job_behind_those_that_waited_longer() -> None:
    running = job("3", gpus(1), submitted_s=9)
    running = changed(running, state=JobState.RUNNING)
    jobs = [
        job("1", gpus(1), submitted_s=1, queued_s=60),
        job("2", gpus(1), submitted_s=2),
        running,
    ]
    assert _ids_in("running-first", jobs) == ["3", "2", "1"]


def test_promotion_is_off_by_default() -> None:
    starved = job("1", gpus(1), tier=1, queued_s=-1e9, executed_since_promotion_s=1)
    assert not make_policy(configured().policy).promotion.is_due(starved, NOW_S)


@pytest.mark.parametrize(
    ("waited_s", "executed_s", "promoted"),
    [(99, 1, False), (100, 1, True), (399, 50, False), (400, 50, True)],
)
def test_a_job_is_promoted_when_it_waited_knob_times_its_run_but_never_before_the_floor(
    waited_s: float, executed_s: float, promoted: bool
) -> None:
    promotion = Promotion(
        knob=8, floor_s=100, thresholds_gpu_s=configured().policy.thresholds_gpu_s
    )
    queued_s = NOW_S - waited_s
    starved = job("1", gpus(1), tier=1, queued_s=queued_s, executed_since_promotion_s=executed_s)
    assert promotion.is_due(starved, NOW_S) is promoted


def test_gittins_waits_for_enough_history() -> None:
    config = configured(policy={"name": "2d-gittins", "estimates": []}).policy
    assert not isinstance(
        make_policy(config, ServiceHistory(range(GITTINS_SAMPLES - 1))), TieredGittins
    )
    assert isinstance(make_policy(config, ServiceHistory(range(GITTINS_SAMPLES))), TieredGittins)


def test_gittins_prefers_the_job_that_is_more_likely_to_end_soon() -> None:
    config = configured(policy={"name": "2d-gittins", "estimates": []}).policy
    policy = make_policy(config, ServiceHistory([50, 60, 5000, 6000] * GITTINS_SAMPLES))
    nearly = job("1", gpus(1), attained_gpu_s=45, attained_since_promotion_gpu_s=45)
    past_it = job("2", gpus(1), attained_gpu_s=70, attained_since_promotion_gpu_s=70)
    assert policy.rank(nearly).order_key < policy.rank(past_it).order_key


def test_gittins_orders_the_last_tier_as_las_does() -> None:
    config = configured(policy={"name": "2d-gittins", "estimates": []}).policy
    policy = make_policy(config, ServiceHistory([50, 60, 5000] * GITTINS_SAMPLES))
    late = job("1", gpus(1), tier=4, first_started_s=9.0)
    assert policy.rank(late).order_key == (0.0, 9.0)


def test_the_service_left_in_the_last_tier_is_infinite() -> None:
    assert left_in_tier(200.0, (100.0, 200.0)) == math.inf
    assert left_in_tier(100.0, (100.0, 250.0)) == 150.0


gpu_seconds = st.integers(1, 10**6).map(float)
services = st.lists(gpu_seconds, min_size=1, max_size=60)


@given(services, gpu_seconds, gpu_seconds)
def test_the_index_is_as_defined(history: list[float], attained: float, quantum: float) -> None:
    left = [total - attained for total in history if total > attained]
    index = ServiceHistory(history).index(attained, quantum)
    if not left:
        assert index == 0
        return
    done = sum(attained + one <= attained + quantum for one in left)
    assert index == pytest.approx(done / sum(min(one, quantum) for one in left))


@given(services, gpu_seconds, gpu_seconds)
def test_no_quantum_beats_the_best(history: list[float], attained: float, quantum: float) -> None:
    known = ServiceHistory(history)
    assert known.index(attained, quantum) <= known.best_index(attained) * (1 + 1e-6)


def test_a_job_within_rounding_error_of_the_longest_known_service_ranks_first() -> None:
    almost = ServiceHistory([1e6, 1.4, 48575.3])
    assert almost.index(999999.9999999999, 1.0) > 1e3


def test_every_policy_that_can_be_configured_can_be_made() -> None:
    assert FACTORIES.keys() == set(POLICIES)
