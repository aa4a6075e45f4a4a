"""Jobs that report remaining service: their ranks, and the limits of abuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.claims import (
    MOST_TIMES_ATTAINED,
    OVERRUN,
    REPORT_EVERY_S,
    REPORT_EVERY_SHARE,
    SPARE,
    AcceptedReports,
    claimed_gpu_s,
    is_broken,
    next_report_in_s,
    with_report,
)
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.model import Claim
from slurm_tiresias.settings import Config
from tests.pictures import cluster, configured, expect, gpus, job
from tests.properties.test_decide_invariants import HISTORY, configs, snapshots

CONFIG = configured()  # tiers from 100, 200, 400 and 800 GPU-seconds on
FAR = 1e9


def claiming(job_id: str, remaining_gpu_s: float, tier: int = 1, **facts: Any) -> Job:
    """A job on four GPUs that reports this much remaining service, and has made no earlier
    promise."""
    one = job(job_id, gpus(4), tier=tier, **facts)
    return replace(one, claim=Claim(one.attained_gpu_s + remaining_gpu_s, FAR))


def test_a_job_about_to_end_is_not_preempted_and_preempts_one_of_a_lower_tier() -> None:
    jobs = [claiming("1", 50.0, tier=2), job("2", gpus(4), tier=1)]
    expect("n1  1 1 1 1", jobs)
    jobs = [job("1", gpus(4), tier=1), claiming("2", 50.0, tier=2)]
    expect("n1  1 1 1 1 -> 2 2 2 2", jobs)


def test_a_job_with_much_left_is_preempted_despite_little_attained_service() -> None:
    little = {"attained_gpu_s": 50.0, "attained_since_promotion_gpu_s": 50.0}
    jobs = [claiming("1", 300.0, tier=0, **little), job("2", gpus(4))]
    expect("n1  1 1 1 1 -> 2 2 2 2", jobs)


def test_in_a_tier_a_job_without_an_estimate_counts_as_one_that_needs_half_its_limit() -> None:
    broken = claiming("4", 0.0, tier=1)
    broken = replace(broken, claim=Claim(broken.attained_gpu_s, 0.0))
    waiting = [broken, claiming("1", 110.0), job("2", gpus(4), tier=1), claiming("3", 90.0 + 60.0)]
    policy = make_policy(configured(policy={"thresholds_gpu_s": [100, 240]}).policy)
    assert {policy.rank(each).tier for each in waiting} == {1}
    in_order = sorted(waiting, key=policy.rank)
    assert [each.job_id for each in in_order] == ["1", "2", "3", "4"], "broken promises come last"


def test_a_promoted_job_is_ranked_as_without_reports() -> None:
    policy = make_policy(CONFIG.policy)
    assert policy.rank(claiming("1", 1.0, tier=2)).tier == 0
    promoted = replace(claiming("1", 300.0, tier=2), attained_since_promotion_gpu_s=0.0)
    assert policy.rank(promoted).tier == 0


@given(snapshots(), configs)
def test_without_any_report_or_history_the_plans_are_those_without_estimates(
    snapshot: Snapshot, config: Config
) -> None:
    def silent(one: Job) -> Job:
        return replace(one, claim=None)

    snapshot = replace(snapshot, jobs=tuple(map(silent, snapshot.jobs)))
    all_of_them = replace(config.policy, estimates=("reports", "history"))
    without = replace(config.policy, estimates=())
    estimating = decide(snapshot, make_policy(all_of_them, HISTORY), config)
    plain = decide(snapshot, make_policy(without, HISTORY), config)
    assert estimating == plain
    assert list(estimating.decisions) == list(plain.decisions)


def reported(claim: Claim | None, remaining_gpu_s: float, attained_gpu_s: float) -> Claim:
    return with_report(claim, remaining_gpu_s, attained_gpu_s, 4)


def test_reports_are_accepted_by_the_running_time_since_the_last_one_of_the_run() -> None:
    accepted = AcceptedReports()
    assert accepted.due_in_s("7", executed_s=0.0, ran_s=0.0) == REPORT_EVERY_S
    claim = accepted.accept("7", None, 400.0, 4 * REPORT_EVERY_S, REPORT_EVERY_S, 4)
    assert claim == with_report(None, 400.0, 4 * REPORT_EVERY_S, 4)
    assert accepted.due_in_s("7", 1.5 * REPORT_EVERY_S, 1.5 * REPORT_EVERY_S) == REPORT_EVERY_S / 2
    accepted.accept("7", claim, 400.0, 40_000.0, 10_000.0, 4)
    assert accepted.due_in_s("7", 10_050.0, 10_050.0) == 10_000 * REPORT_EVERY_SHARE - 50
    assert accepted.due_in_s("7", 10_050.0, 0.0) == REPORT_EVERY_S, "of another run"
    accepted.forget_all_but(())
    assert accepted.due_in_s("7", 10_050.0, 10_050.0) < 0.0


def ranked_by(claim: Claim | None, attained_gpu_s: float) -> float | None:
    one = job("1", gpus(4), tier=0, attained_gpu_s=attained_gpu_s, claim=claim)
    return claimed_gpu_s(one)


def test_a_promise_is_never_renewed() -> None:
    claim = reported(None, 100.0, attained_gpu_s=400.0)
    promised_gpu_s = 400.0 + OVERRUN * 100.0 + SPARE * REPORT_EVERY_S * 4
    assert claim == (500.0, promised_gpu_s)
    for attained_gpu_s in range(500, 2000, 100):
        claim = reported(claim, 100.0, float(attained_gpu_s))
    assert claim.promised_gpu_s <= promised_gpu_s
    assert ranked_by(claim, claim.promised_gpu_s) is not None
    assert ranked_by(claim, claim.promised_gpu_s + 1.0) is None


def test_a_claim_expires_when_its_job_should_have_ended() -> None:
    claim = reported(None, 40_000.0, attained_gpu_s=8000.0)
    assert claim.promised_gpu_s == 88_000.0 + SPARE * REPORT_EVERY_S * 4
    assert ranked_by(claim, 48_000.0) == ranked_by(claim, 48_000.0 + 4 * REPORT_EVERY_S) == 0.0
    assert ranked_by(claim, 50_000.0) is None
    again = reported(claim, 1000.0, attained_gpu_s=50_000.0)
    assert ranked_by(again, 50_000.0) is not None, "it has spoken, and its promise still holds"


def test_a_report_is_averaged_with_earlier_ones() -> None:
    claim = reported(reported(None, 1000.0, 400.0), 4000.0, 400.0)
    remaining_gpu_s = claim.total_gpu_s - 400.0
    assert remaining_gpu_s == pytest.approx(1000.0 * 4.0**0.3)


EPSILON = 1e-6


@settings(max_examples=40)
@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=60),
    st.sampled_from([10.0, 100.0, 3600.0, 90_000.0]),
    st.sampled_from([60.0, 1000.0]),
)
def test_false_reports_gain_a_bounded_amount_of_service(
    said_gpu_s: list[float], limit_gpu_s: float, first_s: float
) -> None:
    """The bound of docs/explanation/algorithm.md, for an uninterrupted job of four GPUs."""
    width, claim = 4, None
    executed_s, gained_gpu_s, last_gpu_s = first_s, 0.0, 0.0
    # At the end it keeps running for long without another report.
    for remaining_gpu_s in [*said_gpu_s, *[None] * 40]:
        if remaining_gpu_s is not None:
            claim = with_report(claim, remaining_gpu_s, width * executed_s, width)
        until_s = executed_s + next_report_in_s(executed_s)
        step_gpu_s = width * (until_s - executed_s) / 16
        for number in range(16):
            attained_gpu_s = width * executed_s + number * step_gpu_s
            ranked_gpu_s = ranked_by(claim, attained_gpu_s)
            if ranked_gpu_s is not None and ranked_gpu_s < limit_gpu_s:
                gained_gpu_s += step_gpu_s
                last_gpu_s = attained_gpu_s
        executed_s = until_s
    bound_gpu_s = OVERRUN * limit_gpu_s + SPARE * REPORT_EVERY_S * width
    # The service until the next report is accepted, and until the next check in this test.
    between_gpu_s = max(60.0 * width, REPORT_EVERY_SHARE * last_gpu_s)
    assert gained_gpu_s <= bound_gpu_s + between_gpu_s + EPSILON + between_gpu_s / 16


@given(st.floats(0.0, 1e12), st.floats(240.0, 1e6))
def test_a_claim_counts_for_at_most_a_multiple_of_the_attained_service(
    remaining_gpu_s: float, attained_gpu_s: float
) -> None:
    ranked_gpu_s = ranked_by(reported(None, remaining_gpu_s, attained_gpu_s), attained_gpu_s)
    assert ranked_gpu_s is not None
    assert ranked_gpu_s <= MOST_TIMES_ATTAINED * attained_gpu_s


def test_an_honest_job_never_breaks_its_promise() -> None:
    claim, total_gpu_s = None, 50_000.0
    for attained_gpu_s in range(240, 50_000, 300):
        claim = reported(claim, total_gpu_s - attained_gpu_s, float(attained_gpu_s))
        one = replace(job("1", gpus(4), tier=0), attained_gpu_s=float(attained_gpu_s))
        one = replace(one, claim=claim)
        assert not is_broken(one)
        assert claim.total_gpu_s == pytest.approx(total_gpu_s)


def running(one: Job) -> Job:
    return cluster("n1  " + " ".join(one.job_id * 4), [one]).jobs[0]


def test_a_job_at_the_edge_of_a_tier_changes_it_despite_rounding() -> None:
    policy = make_policy(configured(policy={"thresholds_gpu_s": [96, 384]}).policy)
    # 493 minus this number is 384 as a float, but less than 384 exactly.
    at_gpu_s = 109.00000000000003
    runs = claiming("1", 0.0, attained_gpu_s=at_gpu_s, attained_since_promotion_gpu_s=at_gpu_s)
    runs = running(runs)
    runs = replace(runs, claim=Claim(493.0, FAR))
    assert policy.rank(runs).tier == 2
    assert policy.steady_for_s(runs) < 1e-9


def test_reports_do_not_change_the_order_of_jobs_that_run() -> None:
    policy = make_policy(CONFIG.policy)
    more, less = (running(claiming("1", gpu_s, tier=1)) for gpu_s in (190.0, 120.0))
    assert policy.rank(more) == policy.rank(less)
