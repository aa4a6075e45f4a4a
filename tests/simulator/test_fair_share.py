"""Splitting a long job into pieces pays off, unless jobs are charged to their users."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scripts.testbed.constants import replaced
from slurm_tiresias.config import parse
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.workload import TraceJob, Workload

WORK_S = 8000
PIECES = 16
WHOLE = (TraceJob("eve", 0, 4, WORK_S, user="eve"),)
CHOPPED = tuple(
    TraceJob(f"eve{i:02}", i / 100, 4, WORK_S / PIECES, user="eve") for i in range(PIECES)
)
"""Jobs as wide as the cluster, so that each piece runs after the one before has ended."""
SHORT = tuple(TraceJob(f"s{i}", 1000 * i, 4, 400, user=f"user{i}") for i in range(1, 8))
"""Short jobs of seven other users, which wait only for jobs in the top tier."""


def submitted(*jobs: TraceJob) -> list[TraceJob]:
    return sorted(jobs, key=lambda job: job.submitted_s)


def simulated(*jobs: TraceJob, policy: str = "tiresias-l", **settings: Any) -> list[Outcome]:
    sim_cluster = parse_cluster("1x4", "pooled")
    config = parse(
        {"policy": {"thresholds_gpu_s": [3200], **settings}, "preemption": {"min_run_s": 0}}
    )
    setup = run.Setup(sim_cluster, config, Costs(sim_cluster, speeds=False, flat_s=0.0), Timing())
    return list(run.simulate(Workload("drawn", jobs), policy, setup))


def of(outcomes: list[Outcome], user: str) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.job.user.startswith(user)]


def end_s(outcomes: list[Outcome], user: str) -> float:
    return max(outcome.end_s for outcome in of(outcomes, user))


def waited_s(outcomes: list[Outcome], user: str) -> float:
    return sum(outcome.waited_s for outcome in of(outcomes, user))


def test_without_charging_splitting_a_long_job_lets_it_overtake() -> None:
    whole = simulated(*submitted(*WHOLE, *SHORT))
    pieces = simulated(*submitted(*CHOPPED, *SHORT))
    assert (end_s(whole, "eve"), waited_s(whole, "user")) == (WORK_S + 7 * 400, 0)
    assert end_s(pieces, "eve") == WORK_S
    assert waited_s(pieces, "user") > WORK_S


def test_with_charge_by_user_splitting_a_job_gains_nothing() -> None:
    whole = simulated(*submitted(*WHOLE, *SHORT), charge="user")
    pieces = simulated(*submitted(*CHOPPED, *SHORT), charge="user")
    for outcomes in (whole, pieces):
        assert end_s(outcomes, "eve") == pytest.approx(WORK_S + 7 * 400)
        assert waited_s(outcomes, "user") == 0


def test_with_charge_by_account_sharing_pieces_among_colleagues_gains_nothing() -> None:
    shared = [
        replace(job, user=f"eve{number % 2}", account="lab") for number, job in enumerate(CHOPPED)
    ]
    by_user = simulated(*submitted(*shared, *SHORT), charge="user")
    by_account = simulated(*submitted(*shared, *SHORT), charge="account")
    assert waited_s(by_user, "user") > 0
    assert waited_s(by_account, "user") == 0
    assert end_s(by_account, "eve") == pytest.approx(WORK_S + 7 * 400)


USED = tuple(TraceJob(f"u{i}", i / 10, 4, 500, user="eve") for i in range(2))
"""Eve's jobs of the first thousand seconds; then ben holds the cluster, from 1800 s on in tier
1."""
LONG = TraceJob("long", 1, 4, 20_000, user="ben")


def test_inherited_service_does_not_prevent_promotion() -> None:
    later = TraceJob("later", 1900, 4, 100, user="eve")
    with replaced({"PROMOTE_FLOOR_S": 500}):
        *_, outcome = simulated(*USED, LONG, later, charge="user", promote_knob=1)
    assert (outcome.first_start_s, outcome.promotions) == (2400, 1)
