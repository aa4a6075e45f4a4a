"""Which jobs are admitted to the interactive lane, over several cycles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.controller import bands
from slurm_tiresias.controller.cycle import SHADOW
from slurm_tiresias.controller.difference import from_decision
from slurm_tiresias.controller.feed import Feed
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.interactive import WINDOW_S, InteractiveLane
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import Action, Amount, JobState, JobStatus, Lane, Protection
from slurm_tiresias.slurm.protocol import Observation, Update
from slurm_tiresias.store.ledger import Ledger
from tests.controller.fed import fed
from tests.controller.in_memory import Managed
from tests.controller.test_job_store import ended, pending, running
from tests.pictures import gpus

CONFIG = parse(
    {
        "policy": {"thresholds_gpu_s": [100]},
        "interactive": {"gpus_per_user": 2},
    }
)
HOUR_S = 3600.0
SALLOC: Mapping[str, Any] = {"batch": False, "request": gpus(1), "time_limit_s": 8 * HOUR_S}
ON_ONE: Mapping[str, Any] = {**SALLOC, "allocation": {"n1": Amount({"": 1}, 1)}}


class Controller:
    """The lane with its own job store."""

    def __init__(self, ledger: Ledger) -> None:
        self.job_store = JobStore(ledger, CONFIG, accounting=False)
        self._ledger = ledger
        self._feed = Feed(self.job_store, CONFIG)
        self._lane: InteractiveLane | None = None

    def sees(self, at_s: float, *jobs: JobStatus) -> Mapping[str, Job]:
        seen = Observation(at_s, jobs, (), ())
        self.job_store.observe(seen)
        for run in self.job_store.runs.changed if self._lane else ():
            account = self.job_store.accounts.of(run.key)
            if self._lane and account and run.end_s:
                self._lane.run_ended(account, run)
        self.job_store.commit()
        if self._lane is None:
            runs = self._ledger.runs.in_lane(Lane.INTERACTIVE, at_s - WINDOW_S)
            self._lane = InteractiveLane(CONFIG, runs)
        before = set(self._feed.jobs.values())
        snapshot = fed(self._feed, seen)
        for gone in before.difference(snapshot.jobs):
            self._lane.forget(gone)
        for job in snapshot.jobs:
            self._lane.follow(job, at_s)
        list(self._lane.tick(at_s))
        self.job_store.record(self._lane.take_news(), at_s)
        self.job_store.commit()
        for job in snapshot.jobs:
            job.account_in_ledger = self.job_store.accounts.of(job.job_id)
        return {job.job_id: job for job in snapshot.jobs}


@pytest.fixture
def controller(ledger: Ledger) -> Controller:
    return Controller(ledger)


def lanes(jobs: Mapping[str, Job]) -> Mapping[str, Lane]:
    return {key: job.lane for key, job in jobs.items()}


def test_jobs_are_admitted_by_submission_up_to_the_bound(controller: Controller) -> None:
    asked = [pending(str(9 - n), submit_s=1000.0 + n, **SALLOC) for n in range(4)]
    seen = controller.sees(1010, *asked, pending("20", user="ben", **SALLOC))
    assert [key for key, lane in lanes(seen).items() if lane is Lane.INTERACTIVE] == [
        "9",
        "8",
        "20",
    ]
    assert "ann" not in seen["7"].lane_because
    assert "have 2 of the 2" in seen["7"].lane_because
    assert seen["7"].only_idle and not seen["8"].only_idle


def test_a_released_job_does_not_displace_a_later_admitted_one(controller: Controller) -> None:
    held = pending("7", priority=0, reason="JobHeldUser", **SALLOC)
    others = [pending("8", **SALLOC), pending("9", **SALLOC)]
    assert lanes(controller.sees(1010, held, *others)) == {
        "7": Lane.IDLE_ONLY,
        "8": Lane.INTERACTIVE,
        "9": Lane.INTERACTIVE,
    }
    assert lanes(controller.sees(1020, pending("7", **SALLOC), *others))["7"] is Lane.IDLE_ONLY


def test_use_counts_for_a_day_even_after_a_restart(controller: Controller, ledger: Ledger) -> None:
    controller.sees(1000, pending("7", **SALLOC))
    seen = controller.sees(1010, running(1005, 5, **ON_ONE))
    assert seen["7"].protected_by is Protection.INTERACTIVE
    over = ended(1005, 1800, **SALLOC)
    controller.sees(2805, over)
    longest = pending("9", **{**SALLOC, "time_limit_s": 16 * HOUR_S})
    controller.sees(2900)
    controller.sees(3000)
    assert controller.job_store.accounts.of("7") is None, "settled, and in the ledger only"
    for one in (controller, Controller(ledger)):
        seen = one.sees(3010, longest)
        assert seen["9"].lane is Lane.IDLE_ONLY
        assert "ask for --time=930" in seen["9"].lane_because
        assert one.sees(3020, longest, pending("8", **SALLOC))["8"].lane is Lane.INTERACTIVE
    assert controller.sees(2805 + 86_400, longest)["9"].lane is Lane.INTERACTIVE


def test_use_under_a_clock_ahead_does_not_count(controller: Controller, ledger: Ledger) -> None:
    days_ahead = 86_400.0 * 30
    controller.sees(days_ahead + 1000, pending("7", **SALLOC))
    controller.sees(days_ahead + 1010, running(days_ahead + 1005, 5, **ON_ONE))
    controller.sees(days_ahead + 2805, ended(days_ahead + 1005, 1800, **SALLOC))
    longest = pending("9", **{**SALLOC, "time_limit_s": 16 * HOUR_S})
    assert controller.sees(days_ahead + 3000, longest)["9"].lane is Lane.IDLE_ONLY
    for one in (controller, Controller(ledger)):
        assert one.sees(3010, longest)["9"].lane is Lane.INTERACTIVE


def test_policies_do_not_learn_from_jobs_in_a_lane(controller: Controller, ledger: Ledger) -> None:
    controller.sees(1000, pending("7", **SALLOC), pending("8"))
    controller.sees(1010, running(1005, 5, **ON_ONE), running(1005, 5, key="8"))
    controller.sees(3000, ended(1005, 1800, **SALLOC), ended(1005, 60, key="8"))
    assert [sample.run_s for sample in ledger.samples.since()] == [60]


def test_a_running_job_counts_with_its_raised_time_limit(controller: Controller) -> None:
    controller.sees(1000, pending("7", **SALLOC))
    other = pending("8", **SALLOC)
    assert controller.sees(1010, running(1005, 5, **ON_ONE), other)["8"].lane is Lane.INTERACTIVE
    raised = running(1005, 15, **{**ON_ONE, "time_limit_s": 12 * HOUR_S})
    assert controller.sees(1020, raised, other)["8"].lane is Lane.IDLE_ONLY


def test_a_job_that_started_unadmitted_does_not_count_for_the_bound(controller: Controller) -> None:
    seen = controller.sees(1010, running(1005, 5, **ON_ONE), pending("8", **SALLOC))
    assert lanes(seen) == {"7": Lane.IDLE_ONLY, "8": Lane.INTERACTIVE}
    assert seen["7"].protected_by is Protection.NO_REQUEUE


@pytest.mark.parametrize("changes", [{"time_limit_s": None}, {"request": gpus(3)}])
def test_jobs_past_the_bound_use_idle_gpus(controller: Controller, changes: dict[str, Any]) -> None:
    assert controller.sees(1010, pending("7", **{**SALLOC, **changes}))["7"].only_idle


def test_a_job_whose_owner_allows_its_requeue_is_preemptible(controller: Controller) -> None:
    controller.sees(1000, pending(requeue=False))
    seen = controller.sees(1010, running(1005, 5, requeue=False))
    assert seen["7"].protected_by is Protection.NO_REQUEUE
    assert controller.sees(1020, running(1005, 15))["7"].protected_by is None


def test_priorities_put_the_lane_first_and_others_after_their_tier(controller: Controller) -> None:
    waiting = [
        pending("7", **SALLOC),
        pending("8", requeue=False, request=gpus(1), time_limit_s=60.0),
        pending("9", requeue=False, request=gpus(1), time_limit_s=90.0),
        pending("10", requeue=False, request=gpus(1)),
        pending("11"),
    ]
    jobs = controller.sees(1010, *waiting)
    snapshot = fed(controller._feed, Observation(1010, tuple(waiting), (), ()))
    plan = decide(snapshot, make_policy(CONFIG.policy), CONFIG)
    written: dict[str, int] = {}
    for key, job in jobs.items():
        decision = plan.decisions[key]
        assert decision.action is Action.WAIT
        difference = from_decision(job.status, job.account, None, decision, 1010, CONFIG)
        (update,) = difference.writes
        assert isinstance(update, Update) and update.priority is not None
        written[key] = update.priority
    assert sorted(written, key=written.__getitem__, reverse=True) == ["7", "11", "8", "9", "10"]
    assert written["11"] == bands.TOP_TIER
    assert not any(bands.starts_managed(written[key], "pinned") for key in ("7", "8", "9", "10"))
    runs = running(1005, 5, **ON_ONE)
    seen = controller.sees(1020, runs)["7"]
    assert seen.state is JobState.RUNNING
    decision = plan.decisions["7"]
    assert from_decision(runs, seen.account, None, decision, 1020, CONFIG).writes == ()


def test_shadow_mode_admits_a_job_at_a_prompt_and_preempts_nothing_for_it(ledger: Ledger) -> None:
    policy = {"thresholds_gpu_s": [20.0]}
    managed = Managed(ledger, {"policy": policy, "preemption": {"min_run_s": 0.0}})
    wall = managed.fill()
    prompt = managed.submit_at_a_prompt(1, minutes=60)
    managed.cycle(SHADOW, times=12)
    shown = {job.job_id: job for job in managed.last.snapshot.jobs}
    assert shown[prompt].lane is Lane.INTERACTIVE
    would = {(victim, preemptor) for victim, preemptor in managed.events("would")}
    assert {preemptor for victim, preemptor in would if victim in wall} == {prompt}
    assert managed.seen(prompt).state is JobState.PENDING
    assert all(managed.seen(key).state is JobState.RUNNING for key in wall)
