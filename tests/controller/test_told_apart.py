"""The published state of a controller that does not act: Slurm's actions and its own intent are
separate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_tiresias.controller.feed import Feed
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.publish import in_mode, nothing_yet, report
from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.explanation.reasons import would_do
from slurm_tiresias.model import Amount, JobStatus, Node
from slurm_tiresias.slurm.protocol import Cluster, Observation, Partition
from slurm_tiresias.status.published import PublishedState
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import EventRecord
from slurm_tiresias.web.http import Request
from slurm_tiresias.web.page.page import Page
from tests.cli.states import busy_state, not_acting
from tests.controller.fed import fed
from tests.controller.test_job_store import CONFIG, pending, running

NODE = Node("n1", Amount({"": 4}, 8, 1000), partitions=frozenset({"gpu"}))
PARTITION = Partition("gpu", frozenset({"n1"}), up=True)
CLUSTER = Cluster("hopper", (22, 5, 8), "priority/multifactor", False, 30.0, 120.0, 0.0)
NOW_S = 2000.0


def published(ledger: Ledger, mode: str, *jobs: JobStatus, node: Node = NODE) -> PublishedState:
    """What a cycle in this mode publishes about these jobs."""
    seen = Observation(NOW_S, jobs, (node,), (PARTITION,))
    job_store = JobStore(ledger, CONFIG, accounting=False)
    job_store.observe(seen)
    snapshot = fed(Feed(job_store, CONFIG), seen)
    policy = make_policy(CONFIG.policy)
    plan = decide(snapshot, policy, CONFIG)
    state = replace(nothing_yet(CLUSTER, CONFIG, mode), at_s=NOW_S)
    return report(CONFIG, state, snapshot, plan, job_store, policy, ())


def by_id(state: PublishedState, field: str) -> dict[str, object]:
    return {job.job_id: getattr(job, field) for job in state.jobs}


def test_would_be_actions_are_published_only_if_the_controller_does_not_act(ledger: Ledger) -> None:
    jobs = (running(1100.0, 900.0, key="1", raw_id=1), pending("2"), pending("3"))
    assert by_id(published(ledger, "enforce", *jobs), "would") == {"1": "", "2": "", "3": ""}
    for mode in ("shadow", "paused"):
        assert by_id(published(ledger, mode, *jobs), "would") == {
            "1": "would be preempted for 2",
            "2": "would start now; would preempt 1",
            "3": "would wait: no room",
        }


def test_what_slurm_does_anyway_is_not_shown_as_a_would_be_action(ledger: Ledger) -> None:
    jobs = (
        running(1990.0, 10.0, key="1", raw_id=1),
        pending("2", priority=0, reason="JobHeldUser"),
        pending("3", reason="Dependency"),
        pending("4", het=True),
    )
    assert set(by_id(published(ledger, "shadow", *jobs), "would").values()) == {""}


def test_the_place_by_slurms_priority_is_among_those_of_the_partition(ledger: Ledger) -> None:
    jobs = (
        pending("1", priority=5),
        pending("2", priority=9, requeue=False),
        pending("3", priority=5, submit_s=900.0),
        pending("4", priority=0, reason="JobHeldUser"),
        pending("5", priority=7, partitions=("other",)),
        running(1990.0, 10.0, key="6", raw_id=6),
    )
    places = by_id(published(ledger, "enforce", *jobs), "slurm_place")
    assert places == {"1": 2, "2": 0, "3": 1, "4": None, "5": 0, "6": None}


def test_when_a_job_may_begin_is_published_until_then(ledger: Ledger) -> None:
    jobs = (
        pending("1", eligible_s=NOW_S + 60, reason="BeginTime"),
        pending("2", eligible_s=NOW_S - 60),
        running(1990.0, 10.0, key="3", raw_id=3, eligible_s=NOW_S + 60),
    )
    begins = by_id(published(ledger, "enforce", *jobs), "begins_s")
    assert begins == {"1": NOW_S + 60, "2": None, "3": None}


def test_gpus_of_nodes_that_are_down_are_counted_apart(ledger: Ledger) -> None:
    gpus = published(ledger, "enforce", node=replace(NODE, available=False)).gpus
    assert (gpus.total, gpus.idle, gpus.down) == (4, 0, 4)


def test_a_mode_change_without_a_cycle_separates_the_actions_too() -> None:
    acting = busy_state()
    paused = in_mode(acting, "paused")
    assert paused.jobs == not_acting(acting, "paused").jobs
    assert in_mode(paused, "enforce").jobs == acting.jobs


def test_an_unknown_reason_of_a_newer_controller_is_shown_as_is() -> None:
    assert would_do("sent-to-mars", (), "") == "would wait: sent-to-mars"


def asked(page: Page, path: str) -> Any:
    return json.loads(page.answer(Request(path, {"host": "localhost:9817"})).body)


def test_the_page_gets_slurms_action_and_the_would_be_one(tmp_path: Path, ledger: Ledger) -> None:
    ledger.events.put([EventRecord(NOW_S, "would", "40655", "40731", "be preempted")])
    page = Page(private=False)
    shown = not_acting(busy_state(events=ledger.events.last(1)))
    page.show(shown, ledger.path)
    state = asked(page, "/state")
    row = state["jobs"]["job_id"].index("40731")
    assert state["acts"] is False
    assert state["jobs"]["slurm_reason"][row] == "Priority"
    assert state["jobs"]["would"][row] == "would start now; would preempt 40655"
    assert [(e["kind"], e["text"]) for e in state["events"]] == [("would have", "been preempted")]
    job = asked(page, "/jobs/40729")
    said = {section["title"]: section["sentences"] for section in job["sections"]}
    assert said["What Slurm does"][0] == "It waits: Priority (Slurm tries others before it)."
    would = said["What the controller would do"]
    assert would[0].startswith("The controller runs in shadow mode")
    words = asked(page, "/words")
    assert words["reasons"]["starts"]["would"] == "It would start now."
    assert words["reasons"]["no-room"]["would_do"] == "would wait: no room"


@pytest.mark.parametrize(
    ("claimed_gpu_s", "promised_gpu_s", "why_not"),
    [
        (4500.0, 9000.0, ""),
        (1000.0, 2000.0, "it has attained far more than it said it would"),
        (1000.0, 9000.0, "by them it should have ended, and it has told nothing since"),
    ],
)
def test_the_reason_why_reports_do_not_count_is_published(
    ledger: Ledger, claimed_gpu_s: float, promised_gpu_s: float, why_not: str
) -> None:
    """The job has attained 3,600 GPU-seconds."""
    job_store = JobStore(ledger, CONFIG, accounting=False)
    seen = Observation(NOW_S, (running(1100.0, 900.0, key="1", raw_id=1),), (NODE,), (PARTITION,))
    job_store.observe(seen)
    account = job_store.accounts.all["1"]
    job_store.accounts.put(
        replace(account, claimed_gpu_s=claimed_gpu_s, promised_gpu_s=promised_gpu_s)
    )
    snapshot = fed(Feed(job_store, CONFIG), seen)
    policy = make_policy(CONFIG.policy)
    plan = decide(snapshot, policy, CONFIG)
    before = nothing_yet(CLUSTER, CONFIG, "enforce")
    state = report(CONFIG, before, snapshot, plan, job_store, policy, ())
    (estimate,) = (job.estimate for job in state.jobs)
    assert estimate is not None
    assert (estimate.remaining_gpu_s is not None) == (why_not == "")
    assert estimate.why_not == why_not
