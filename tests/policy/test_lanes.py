"""The interactive lane, and the rank of other jobs that cannot be preempted."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.config import parse
from slurm_tiresias.core.features.interactive import (
    Applicant,
    InteractiveLane,
    LaneUse,
    used_gpu_s,
    why_refused,
)
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import (
    Action,
    JobState,
    Lane,
    ProgramCosts,
    Protection,
    Reason,
)
from slurm_tiresias.settings.interactive import InteractiveConfig
from tests.pictures import after, cluster, configured, gpus, job, plan_for
from tests.policy.test_at_stake import told

HOUR_S = 3600.0
BOUND = InteractiveConfig(gpus_per_user=2)


def at_a_prompt(job_id: str, count: int = 1, **more: Any) -> Job:
    return job(job_id, gpus(count), lane=Lane.INTERACTIVE, **more)


def no_requeue(job_id: str, count: int = 1, **more: Any) -> Job:
    return job(job_id, gpus(count), lane=Lane.IDLE_ONLY, **more)


def applicant(key: str, gpus: int = 1, limit_s: float | None = HOUR_S, **more: Any) -> Applicant:
    facts: dict[str, Any] = {"user": "ann", "whole_nodes": False, "in_lane": False}
    return Applicant(
        key=key, gpus=gpus, time_limit_s=limit_s, order=(float(key),), **(facts | more)
    )


def test_a_job_at_a_prompt_preempts_lower_tiers_and_is_not_preempted() -> None:
    wall = [job("1", gpus(1), tier=1), job("2", gpus(1), tier=2)]
    snapshot = cluster("n1 1 2", [*wall, job("3", gpus(1)), at_a_prompt("4")])
    plan = plan_for(snapshot)
    # It goes before the job of the first tier that came before it.
    assert next(iter(plan.decisions)) == "4"
    assert plan.decisions["4"].victims == ("2",)
    assert plan.decisions["3"].victims == ("1",)
    ran = cluster("n1 4 4", [at_a_prompt("4", 2), job("5", gpus(1))])
    assert plan_for(ran).decisions["5"].blockers == (("4", Protection.INTERACTIVE),)
    assert plan_for(ran).decisions["4"].action is Action.RUN_ON


def test_a_job_that_cannot_be_requeued_preempts_no_job_and_is_not_preempted() -> None:
    snapshot = cluster("n1 1 1", [job("1", gpus(2), tier=2), no_requeue("2", time_limit_s=10.0)])
    decision = plan_for(snapshot).decisions["2"]
    assert (decision.action, decision.reason) == (Action.WAIT, Reason.IDLE_ONLY)
    ran = cluster("n1 2 2", [no_requeue("2", 2), job("3", gpus(1))])
    decision = plan_for(ran).decisions["3"]
    assert decision.reason is Reason.PROTECTED
    assert decision.blockers == (("2", Protection.NO_REQUEUE),)


SAVED = told(saved_s=1500.0)
LOSES_ALL = ProgramCosts(60.0, 7200.0, measured=2, lost_all_in_a_row=2)


@pytest.mark.parametrize(
    ("costs", "facts", "lane"),
    [
        (LOSES_ALL, {}, Lane.IDLE_ONLY),
        (None, {}, Lane.PREEMPTIBLE),
        (replace(LOSES_ALL, lost_all_in_a_row=1), {}, Lane.PREEMPTIBLE),
        (replace(LOSES_ALL, unsaved_s=60.0), {}, Lane.PREEMPTIBLE),
        (LOSES_ALL, {"drilled": True}, Lane.PREEMPTIBLE),
    ],
)
def test_a_job_whose_program_loses_all_its_work_is_as_one_that_cannot_be_requeued(
    costs: ProgramCosts | None, facts: Mapping[str, Any], lane: Lane
) -> None:
    one = job("1", gpus(1), program_costs=costs, **facts)
    InteractiveLane(parse({})).follow(one, 2000.0)
    assert one.lane is lane
    assert ("save" in one.lane_because) is (lane is Lane.IDLE_ONLY)


@pytest.mark.parametrize(("since_s", "lane"), [(1000, Lane.PREEMPTIBLE), (1600, Lane.IDLE_ONLY)])
def test_once_a_run_has_saved_it_can_be_preempted_again(since_s: float, lane: Lane) -> None:
    facts: dict[str, Any] = {"running_since_s": since_s, "progress": SAVED, "lane": Lane.IDLE_ONLY}
    one = replace(job("1", gpus(1), program_costs=LOSES_ALL, **facts), state=JobState.RUNNING)
    InteractiveLane(parse({})).follow(one, 2000.0)
    assert one.lane is lane


def test_idle_gpus_go_to_the_shortest_unpreemptible_jobs_first() -> None:
    waiting = [
        no_requeue("1"),
        no_requeue("2", time_limit_s=150.0),
        no_requeue("3", time_limit_s=50.0),
        no_requeue("4", time_limit_s=20.0),
    ]
    snapshot = cluster("n1 . .", [*waiting, job("5", gpus(1)), job("6", gpus(9), tier=1)])
    plan = plan_for(snapshot)
    # Behind the jobs of their tier that can be preempted.
    assert list(plan.decisions) == ["5", "4", "3", "6", "2", "1"]
    assert [plan.decisions[key].tier for key in "1234"] == [4, 1, 0, 0]
    assert after(snapshot, plan)["n1"] == {"5": 1, "4": 1}


def test_a_job_that_never_fits_is_reported_so_in_each_lane() -> None:
    snapshot = cluster("n1 . .", [no_requeue("1", 9), at_a_prompt("2", 9)])
    decisions = plan_for(snapshot).decisions
    assert {decisions[key].reason for key in "12"} == {Reason.NEVER_FITS}


def test_waiting_long_promotes_no_job_that_cannot_be_preempted() -> None:
    config = configured(policy={"promote_knob": 1})
    waited = no_requeue("1", time_limit_s=1000.0, queued_s=0.0)
    decision = plan_for(cluster("n1 #", [waited]), config).decisions["1"]
    assert decision.tier == 4 and not decision.promoted


def test_jobs_are_admitted_in_order_and_stay_admitted() -> None:
    three = [applicant("3"), applicant("1"), applicant("2")]
    refused = why_refused(three, {}, BOUND)
    assert [key for key, why in refused.items() if not why] == ["1", "2"]
    assert "its user's other jobs at a prompt have 2 of the 2" in refused["3"]
    refused = why_refused([replace(three[0], in_lane=True), *three[1:]], {}, BOUND)
    assert [key for key, why in refused.items() if not why] == ["3", "1"]


def test_each_user_has_a_separate_bound() -> None:
    refused = why_refused(
        [applicant("1", 2), applicant("2", 2, user="ben")], {"ann": LaneUse(2)}, BOUND
    )
    assert refused["1"] and not refused["2"]


@pytest.mark.parametrize(
    ("one", "use", "why"),
    [
        (applicant("1", 3), LaneUse(), "ask for fewer GPUs"),
        (applicant("1", limit_s=None), LaneUse(), "has no time limit, .* ask for --time=960 or"),
        (applicant("1", 2, 9 * HOUR_S), LaneUse(), "run for too long, .* ask for --time=480 or"),
        (applicant("1"), LaneUse(0, 16 * HOUR_S), "have used up 16 GPU hours in 24 hours"),
        (applicant("1", whole_nodes=True), LaneUse(), "whole nodes"),
    ],
)
def test_a_job_that_is_not_admitted_gets_a_remedy(one: Applicant, use: LaneUse, why: str) -> None:

    said = why_refused([one], {"ann": use}, BOUND)["1"]
    assert re.search(why, said), said


def test_without_a_lane_no_job_is_admitted() -> None:
    config = parse({"interactive": {"gpus_per_user": 0}}).interactive
    assert "gpus_per_user is 0" in why_refused([applicant("1")], {}, config)["1"]


events = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "start", "start", "end", "cancel", "wait"]),
        st.integers(1, 3),
        st.sampled_from([None, HOUR_S, 4 * HOUR_S, 12 * HOUR_S]),
        st.sampled_from([60.0, HOUR_S, 7 * HOUR_S]),
    ),
    max_size=40,
)


@given(events)
def test_no_user_ever_has_more_of_the_lane_than_the_bound(
    happens: list[tuple[str, int, float | None, float]],
) -> None:
    """Whatever is submitted, started late, ended early or cancelled, the bounds hold: on GPUs at a
    time, and on GPU time in any 24 hours."""
    now_s = 0.0
    waiting: list[Applicant] = []
    running: list[tuple[Applicant, float]] = []
    runs: list[tuple[float, float, float]] = []

    def admit() -> None:
        held = sum(one.gpus for one, _ in running)
        service_gpu_s = sum(used_gpu_s(g, since_s, to_s, now_s) for g, since_s, to_s in runs)
        service_gpu_s += sum(
            used_gpu_s(one.gpus, since_s, since_s + (one.time_limit_s or math.inf), now_s)
            for one, since_s in running
        )
        refused = why_refused(waiting, {"ann": LaneUse(held, service_gpu_s)}, BOUND)
        waiting[:] = [replace(one, in_lane=not refused[one.key]) for one in waiting]

    def end_those_at_their_limits() -> None:
        for one, since_s in list(running):
            assert one.time_limit_s is not None
            if now_s - since_s >= one.time_limit_s:
                running.remove((one, since_s))
                runs.append((one.gpus, since_s, since_s + one.time_limit_s))

    for number, (what, count, limit_s, passes_s) in enumerate(happens):
        if what == "submit":
            waiting.append(applicant(str(number), count, limit_s))
        elif what == "start":
            if admitted := [one for one in waiting if one.in_lane]:
                waiting.remove(admitted[-1])
                running.append((admitted[-1], now_s))
        elif what == "end" and running:
            one, since_s = running.pop(0)
            runs.append((one.gpus, since_s, now_s))
        elif what == "cancel" and waiting:
            waiting.pop(0)
        elif what == "wait":
            now_s += passes_s
        end_those_at_their_limits()
        admit()
        assert sum(one.gpus for one, _ in running) <= BOUND.gpus_per_user
        had = [*runs, *((one.gpus, since_s, now_s) for one, since_s in running)]
        for end_s in {to_s for _, _, to_s in had}:
            in_a_day_gpu_s = sum(
                used_gpu_s(g, since_s, min(to_s, end_s), end_s)
                for g, since_s, to_s in had
                if since_s < end_s
            )
            assert in_a_day_gpu_s <= BOUND.gpu_hours_per_user * HOUR_S + 1e-6


def test_a_job_over_its_users_budget_preempts_no_other_even_if_boosted_or_at_a_prompt() -> None:
    waiting = [
        job("2", gpus(4), boosted=True, over_budget=True),
        at_a_prompt("3", 4, over_budget=True),
    ]
    plan = plan_for(cluster("n1  1 1 1 1", [job("1", gpus(4), tier=2), *waiting]))
    assert not plan.preemptions
