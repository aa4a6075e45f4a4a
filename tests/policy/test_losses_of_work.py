"""Victims by lost work: which of several equals is preempted, and when a preemption waits for a
save."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from slurm_tiresias.config import parse
from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.features.save_due import LATE, WAIT_FOR_SAVE_S, protect
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.model import USUAL_STAKE, Protection, WorkAtStake
from slurm_tiresias.settings import Config
from tests.pictures import NOW_S, cluster, expect, gpus, job, plan_for
from tests.properties.test_decide_invariants import configs, snapshots

RESTART_S = 50.0


def saved(ago_s: float, due_in_s: float | None = None) -> WorkAtStake:
    """The stake of a job that saved this long ago."""
    due_s = None if due_in_s is None else NOW_S + due_in_s
    return WorkAtStake(NOW_S - ago_s, math.inf, RESTART_S, due_s)


def running(job_id: str, count: int, at_stake: WorkAtStake | None, **facts: Any) -> Job:
    facts.setdefault("tier", 1)
    return job(job_id, gpus(count, spanning=count > 1), at_stake=at_stake, **facts)


def test_among_equal_jobs_the_one_that_saved_last_is_preempted() -> None:
    jobs = [running("1", 2, saved(ago_s=10)), running("2", 2, saved(ago_s=900)), job("3", gpus(2))]
    expect("n1  1 1 2 2 -> 3 3 2 2", jobs)


def test_one_job_that_loses_little_is_preempted_rather_than_two_that_lose_much() -> None:
    jobs = [
        running("1", 1, saved(ago_s=3000)),
        running("2", 1, saved(ago_s=3000)),
        running("3", 4, saved(ago_s=5)),
        job("4", gpus(4)),
    ]
    expect("n1  1 2 . .\nn2  3 3 3 3 -> 4 4 4 4", jobs)


@pytest.mark.parametrize(("other_ago_s", "then"), [(9000, "3 3 2 2"), (5, "1 1 3 3")])
def test_of_lower_tiers_the_job_that_loses_least_leaves(other_ago_s: float, then: str) -> None:
    jobs = [
        running("1", 2, saved(ago_s=5), tier=1),
        running("2", 2, saved(ago_s=other_ago_s), tier=2),
        job("3", gpus(2)),
    ]
    expect(f"n1  1 1 2 2 -> {then}", jobs)


def test_a_silent_job_counts_as_losing_its_whole_run() -> None:
    ran_s = 600.0
    silent = running("2", 2, None, running_since_s=NOW_S - ran_s)
    lost_s = ran_s + USUAL_STAKE.restart_s - RESTART_S
    for ago_s, then in ((lost_s + 1, "1 1 3 3"), (lost_s - 1, "3 3 2 2")):
        jobs = [running("1", 2, saved(ago_s=ago_s)), silent, job("3", gpus(2))]
        expect(f"n1  1 1 2 2 -> {then}", jobs)


def test_a_job_below_the_first_tier_preempts_only_jobs_of_much_lower_tiers() -> None:
    jobs = [running("1", 4, None, tier=3), running("2", 4, None, tier=4)]
    row = "n1  1 1 1 1\nn2  2 2 2 2"
    expect(f"{row} -> 3 3 3 3", [*jobs, job("3", gpus(4), tier=1)])
    expect(row, [*jobs, job("3", gpus(4), tier=2)])


def after_a_while(stake: WorkAtStake, tier: int, config: Config | None = None) -> str:
    """Return what protects a running job with this stake from a waiting job of a tier; "" if it may
    be preempted."""
    jobs = [running("1", 4, stake, tier=4), job("2", gpus(4), tier=tier)]
    before = cluster("n1  1 1 1 1", jobs)
    plan = plan_for(before, config)
    if plan.preemptions:
        return ""
    ((blocker, protection),) = plan.decisions["2"].blockers
    assert blocker == "1"
    return protection.value


@pytest.mark.parametrize(
    ("stake", "first_tier", "second_tier"),
    [
        (saved(ago_s=30, due_in_s=3570), "", ""),
        (saved(ago_s=900, due_in_s=2700), "", "save-due"),
        (saved(ago_s=1950, due_in_s=1850), "", "save-due"),
        (saved(ago_s=3100, due_in_s=500), "save-due", "save-due"),
        (saved(ago_s=3700, due_in_s=-100), "save-due", "save-due"),
        (saved(ago_s=4000, due_in_s=-400), "", ""),
        (saved(ago_s=4000, due_in_s=8000), "", ""),
        (saved(ago_s=40, due_in_s=20), "", ""),
        (saved(ago_s=4000), "", ""),
    ],
    ids=[
        "has just saved",
        "lower tiers wait for long",
        "the first tier waits for half an hour",
        "is about to save",
        "is late",
        "is too late to be waited for",
        "saves too late to be waited for",
        "saves every minute",
        "is not known to save again",
    ],
)
def test_due_saves_delay_preemptions(stake: WorkAtStake, first_tier: str, second_tier: str) -> None:
    assert (after_a_while(stake, 0), after_a_while(stake, 1)) == (first_tier, second_tier)


def test_a_job_that_always_announces_a_save_can_still_be_preempted() -> None:
    config = parse({"controller": {"interval_s": 10}})
    for every_s in (1.0, 61.0, 600.0, 1e4, 1e6):
        at_stake = WorkAtStake(NOW_S, math.inf, 0.0, NOW_S + every_s)
        for each in protect(job("1", gpus(1), at_stake=at_stake), config):
            assert each.from_s >= NOW_S + max(60.0, every_s / 10)
            assert each.until_s <= NOW_S + every_s * (1 + LATE)
            assert each.until_s - each.from_s <= WAIT_FOR_SAVE_S + LATE * every_s


@given(snapshots(), configs)
def test_without_reports_plans_ignore_losses(snapshot: Snapshot, config: Config) -> None:
    jobs = tuple(replace(one, at_stake=None) for one in snapshot.jobs)
    silent = replace(snapshot, jobs=jobs)
    usual = replace(snapshot, jobs=tuple(replace(one, at_stake=USUAL_STAKE) for one in jobs))
    policy = make_policy(config.policy)
    assert _starts(decide(usual, policy, config)) == _starts(decide(silent, policy, config))


def _starts(plan: Any) -> Any:
    return [(d.job_id, d.start_on) for d in plan.starts]


def test_a_due_save_is_shown_as_the_protection() -> None:
    assert after_a_while(saved(ago_s=3100, due_in_s=500), 0) == Protection.SAVE_DUE.value
