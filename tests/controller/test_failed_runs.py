"""Jobs that fail are restarted, a bounded number of times, and take nothing from others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from scripts.testbed.in_memory import Submission
from slurm_tiresias.model import Amount, JobState, Reason, Request
from slurm_tiresias.slurm.protocol import Update
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import Managed

ONE_GPU = Request(Amount({"": 1}, 1), max_chunks_per_node=1, max_nodes=1)
WHOLE_NODES = Request(Amount({"": 4}, 4), chunks=2, max_chunks_per_node=1, min_nodes=2)
TWICE = "tiresias:restart=2"

Manage = Callable[..., Managed]


@pytest.fixture
def manage(tmp_path: Path) -> Manage:
    def made(**settings: Mapping[str, object]) -> Managed:
        manage = {"manage": {"partitions": ["gpu"]}}
        ledger = Ledger(tmp_path / "ledger.sqlite")
        return Managed(ledger, {**manage, **settings})

    return made


def submit(managed: Managed, comment: str = TWICE, **asked: object) -> str:
    """Submit a job that fails after ten seconds, unless ``asked`` says otherwise."""
    fails = {"request": ONE_GPU, "duration_s": 10.0, "exit_code": 1, "comment": comment}
    return managed.slurm.submit(Submission(**{**fails, **asked}))  # type: ignore[arg-type]


def runs(managed: Managed, key: str) -> int:
    """Let the job end for good; return how often it has run."""
    managed.wait_until(lambda: not is_alive(managed, key), f"{key} stays ended")
    return managed.seen(key).restarts + 1


def is_alive(managed: Managed, key: str) -> bool:
    """Whether a job lives, or is restarted within a few cycles."""
    for _ in range(4):
        if managed.seen(key).state is not None:
            return True
        managed.cycle()
    return False


def fail_and_restart(managed: Managed, key: str, times: int) -> None:
    for restarts in range(managed.seen(key).restarts, managed.seen(key).restarts + times):
        managed.wait_for_state(key, JobState.RUNNING)
        managed.slurm.finish(key, 1)
        managed.wait_until(partial(_restarts_exceed, managed, key, restarts), "a restart")


def _restarts_exceed(managed: Managed, key: str, restarts: int) -> bool:
    return managed.seen(key).restarts > restarts


def texts(managed: Managed, kind: str) -> list[str]:
    return [event.text for event in managed.ledger.events.last(100) if event.kind == kind]


@pytest.fixture
def managed(manage: Manage) -> Managed:
    return manage()


def test_a_job_that_asks_for_it_is_restarted_until_its_bound(managed: Managed) -> None:
    key = submit(managed)

    assert runs(managed, key) == 3
    assert len(texts(managed, "restarted")) == 2
    (left,) = texts(managed, "not-restarted")
    assert "failed 3 times in a row without progress, and 2 are allowed" in left


def test_the_site_bounds_what_jobs_ask_for(manage: Manage) -> None:
    managed = manage(failures={"restarts": 1})
    assert runs(managed, submit(managed, "tiresias:restart=50")) == 2


@pytest.mark.parametrize(
    "asked",
    [
        {"comment": ""},
        {"exit_code": 93},
        {"exit_code": 0},
        {"time_limit_s": 5.0},
        {"requeue": False},
        {"time_limit_s": 10.0},
    ],
    ids=["does not ask", "exit code 93", "completes", "times out", "no requeue", "limit used up"],
)
def test_a_job_is_not_restarted_if_it(managed: Managed, asked: dict[str, object]) -> None:
    assert runs(managed, submit(managed, **asked)) == 1  # type: ignore[arg-type]


def test_a_cancelled_job_is_not_restarted(managed: Managed) -> None:
    key = submit(managed)
    managed.wait_for_state(key, JobState.RUNNING)
    managed.cancel(key)
    assert runs(managed, key) == 1


def test_an_exit_code_of_the_site_restarts_jobs_that_do_not_ask(manage: Manage) -> None:
    managed = manage(failures={"restarts": 1, "restart_exit_codes": [75]})
    assert runs(managed, submit(managed, "", exit_code=75)) == 2
    assert runs(managed, submit(managed, "", exit_code=76)) == 1


def test_a_restart_avoids_the_node_of_the_failed_run_while_others_will_do(managed: Managed) -> None:
    key = submit(managed)
    managed.wait_for_state(key, JobState.RUNNING)
    (first,) = managed.seen(key).allocation
    managed.wait_until(lambda: managed.seen(key).restarts == 1, "a restart")
    managed.wait_for_state(key, JobState.RUNNING)
    assert first not in managed.seen(key).allocation


def test_each_restart_avoids_the_node_of_the_run_before(managed: Managed) -> None:
    for node in ("n3", "n4"):
        managed.slurm.drain(node)
    key = submit(managed, "tiresias:restart=3")
    runs(managed, key)
    nodes = [run.nodes for run in managed.ledger.runs.of(key)]
    assert len(nodes) == 4
    assert all(before != after for before, after in pairwise(nodes))


def test_a_users_change_of_the_excluded_nodes_stands(managed: Managed) -> None:
    key = submit(managed, "tiresias:restart=3")
    managed.wait_until(lambda: managed.seen(key).spec.request.excluded_nodes, "a node is avoided")
    managed.slurm.write([Update(key, excluded="n3")])
    managed.cycle(times=3)
    assert managed.seen(key).spec.request.excluded_nodes == {"n3"}


def test_a_restart_returns_to_its_node_if_no_other_will_do(managed: Managed) -> None:
    key = submit(managed)
    managed.wait_for_state(key, JobState.RUNNING)
    (first,) = managed.seen(key).allocation
    for node in {"n1", "n2", "n3", "n4"} - {first}:
        managed.slurm.drain(node)
    assert runs(managed, key) == 3
    assert managed.seen(key).spec.request.excluded_nodes == frozenset()


def test_a_restarted_job_keeps_its_service(managed: Managed) -> None:
    key = submit(managed)
    runs(managed, key)
    kept = sum(run.elapsed_s for run in managed.ledger.runs.of(key))
    assert kept == pytest.approx(30.0, abs=3.0)


def test_a_job_whose_node_has_failed_starts_again_without_slurms_delay(managed: Managed) -> None:
    key = submit(managed, "", duration_s=None, exit_code=0)
    managed.wait_for_state(key, JobState.RUNNING)
    (node,) = managed.seen(key).allocation
    managed.slurm.fail_node(node)
    managed.cycle(times=20)
    assert managed.seen(key).state is JobState.RUNNING
    assert len(texts(managed, "node-failed")) == 1
    managed.slurm.finish(key, 1)
    assert runs(managed, key) == 2  # it did not ask for a restart after other failures


def test_a_node_named_for_a_restarted_job_is_not_excluded(managed: Managed) -> None:
    """All nodes return at once after a failure, and the job is named nodes before it avoids any."""
    three = replace(WHOLE_NODES, chunks=3, min_nodes=3)
    key = submit(managed, "", request=three, duration_s=None, exit_code=0)
    managed.wait_for_state(key, JobState.RUNNING)
    failed = min(managed.seen(key).allocation)
    (other,) = {"n1", "n2", "n3", "n4"} - managed.seen(key).allocation.keys()
    managed.slurm.drain(other)
    managed.slurm.fail_node(failed)
    managed.wait_until(lambda: "NodeNotAvail" in managed.seen(key).reason, "it waits for nodes")
    for node in (failed, other):
        managed.slurm.resume_node(node)
    managed.wait_for_state(key, JobState.RUNNING)
    assert not texts(managed, "list-refused")


def test_a_job_held_after_a_failed_launch_is_released(managed: Managed) -> None:
    key = submit(managed, "", duration_s=None, exit_code=0)
    managed.wait_for_state(key, JobState.RUNNING)
    managed.slurm.fail_launch(key)
    managed.wait_until(lambda: managed.seen(key).restarts == 1, "a requeue")
    managed.wait_for_state(key, JobState.RUNNING)
    assert len(texts(managed, "restarted")) == 1


def test_a_job_held_by_its_user_after_a_failed_launch_stays_held(managed: Managed) -> None:
    key = submit(managed, "", duration_s=None, exit_code=0)
    managed.wait_for_state(key, JobState.RUNNING)
    managed.slurm.fail_launch(key)
    managed.hold(key)
    managed.cycle(times=20)
    assert managed.seen(key).held


def test_a_wide_job_that_fails_at_each_start_preempts_others_once(manage: Manage) -> None:
    managed = manage(
        policy={"thresholds_gpu_s": [20]},
        preemption={"min_run_s": 0, "budget_share": 0},
        failures={"restarts": 5},
    )
    small = [
        submit(managed, "", user="ben", request=ONE_GPU, duration_s=None, exit_code=0)
        for _ in range(16)
    ]
    for key in small:
        managed.wait_for_tier(key, 1)
    wide = submit(managed, "tiresias:restart=5", request=WHOLE_NODES, duration_s=2.0)
    managed.wait_until(lambda: managed.seen(wide).restarts == 1, "a restart")
    preempted = len(managed.events("preempted"))
    assert preempted == 8
    managed.wait_for_reason(wide, Reason.FAILED_BEFORE)
    managed.cycle(times=100)
    assert len(managed.events("preempted")) == preempted


@pytest.mark.parametrize(("ran_s", "more"), [(15.0, 0), (700.0, 2)], ids=["short", "long"])
def test_a_preempted_run_ends_a_row_of_failures_only_if_it_was_long(
    manage: Manage, ran_s: float, more: int
) -> None:
    managed = manage(
        policy={"thresholds_gpu_s": [10]},
        preemption={"min_run_s": 0, "budget_share": 0},
    )
    key = submit(managed, request=WHOLE_NODES, duration_s=None)
    fail_and_restart(managed, key, times=2)
    managed.wait_for_state(key, JobState.RUNNING)
    managed.cycle(times=int(2 * ran_s))
    short = [
        submit(managed, "", user="ben", request=WHOLE_NODES, duration_s=5.0, exit_code=0)
        for _ in range(2)
    ]
    managed.wait_until(lambda: managed.events("preempted") == [(key, short[1])], "a preemption")

    fail_and_restart(managed, key, more)
    managed.wait_for_state(key, JobState.RUNNING)
    managed.slurm.finish(key, 1)
    assert runs(managed, key) == 4 + more


def test_a_program_whose_jobs_fail_early_preempts_no_other_job(manage: Manage) -> None:
    managed = manage(
        policy={"thresholds_gpu_s": [20]}, preemption={"min_run_s": 0, "budget_share": 0}
    )
    for _ in range(3):
        runs(managed, submit(managed, ""))
    for key in [submit(managed, "", user="ben", duration_s=None) for _ in range(16)]:
        managed.wait_for_tier(key, 1)
    managed.wait_for_reason(submit(managed, ""), Reason.FAILED_BEFORE)
    other = submit(managed, "", name="other")
    managed.wait_for_state(other, JobState.RUNNING)
