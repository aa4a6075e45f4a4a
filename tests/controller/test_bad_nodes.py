"""Suspected nodes are avoided, drained within bounds, and returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from scripts.testbed.in_memory import Submission
from slurm_tiresias.controller.acting.drain import SUSPECTS_WEIGHT
from slurm_tiresias.errors import RefusedError
from slurm_tiresias.explanation.events import event_text
from slurm_tiresias.model import Amount, EventRecord, JobState, Request
from slurm_tiresias.slurm.protocol import SetNode
from slurm_tiresias.slurm.write_lines import lines
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import Managed

ONE_GPU = Request(Amount({"": 1}, 1), max_chunks_per_node=1, max_nodes=1)

Manage = Callable[..., Managed]


@pytest.fixture
def manage(tmp_path: Path) -> Manage:
    def made(**failures: object) -> Managed:
        settings: Mapping[str, Mapping[str, object]] = {
            "manage": {"partitions": ["gpu"]},
            "failures": failures,
        }
        return Managed(Ledger(tmp_path / "ledger.sqlite"), settings)

    return made


def fail_on(managed: Managed, node: str, *users: str) -> None:
    """Let a run of each user fail early on a node."""
    for user in users:
        asked = Submission(ONE_GPU, user=user, node_list=node, duration_s=2.0, exit_code=1)
        key = managed.slurm.submit(asked)
        managed.wait_for_state(key, None)
        managed.cycle()


def node_of(managed: Managed, user: str = "ann") -> str:
    """Submit a job, whose start job_submit.lua delays; return the node that it starts on."""
    until_s = int(managed.slurm.clock.whole_s) + 60
    asked = Submission(
        ONE_GPU, user=user, begin_in_s=60.0, admin_comment=f"tiresias-first-look:{until_s}"
    )
    key = managed.slurm.submit(asked)
    managed.wait_for_state(key, JobState.RUNNING)
    (node,) = managed.seen(key).allocation
    return node


def events(managed: Managed, kind: str) -> list[str]:
    return [event.text for event in managed.ledger.events.last(100) if event.kind == kind]


def weight(managed: Managed, name: str) -> int:
    return next(one.weight for one in managed.slurm.observe().nodes if one.name == name)


def is_drained(managed: Managed, name: str) -> bool:
    return next(not one.available for one in managed.slurm.observe().nodes if one.name == name)


def test_two_runs_are_lost_to_a_bad_node_before_it_is_avoided(manage: Manage) -> None:
    managed = manage()
    fail_on(managed, "n1", "ann", "ben")
    assert events(managed, "node-suspected") == ["n1: 2 early failures of 2 users"]
    assert {node_of(managed, user=f"user{number}") for number in range(12)} == {"n2", "n3", "n4"}
    assert not is_drained(managed, "n1")


def test_slurm_itself_starts_new_jobs_on_other_nodes(manage: Manage) -> None:
    managed = manage()
    fail_on(managed, "n1", "ann", "ben")
    managed.cycle()
    keys = [managed.slurm.submit(Submission(ONE_GPU, user=f"user{n}")) for n in range(12)]
    managed.slurm.advance(2.0)
    assert {*managed.seen(keys[-1]).allocation} == {"n4"}
    managed.cycles.clear_node("n1")
    managed.wait_until(lambda: weight(managed, "n1") == 1, "n1 has its own weight")


def test_a_controller_that_stops_acting_returns_the_weights(manage: Manage) -> None:
    managed = manage()
    fail_on(managed, "n1", "ann", "ben")
    managed.cycle()
    assert weight(managed, "n1") == SUSPECTS_WEIGHT
    managed.cycle("paused")
    assert weight(managed, "n1") == 1


def test_an_operator_who_may_not_set_nodes_is_told_once(manage: Manage) -> None:
    managed = manage(drain=2)
    managed.slurm.refusals["n1"] = "Access/permission denied"
    fail_on(managed, "n1", "ann", "ben")
    managed.cycle(times=5)
    assert events(managed, "failed") == ["Access/permission denied"]


def test_a_suspected_node_is_used_if_no_other_suffices(manage: Manage) -> None:
    managed = manage()
    fail_on(managed, "n1", "ann", "ben")
    for node in ("n2", "n3", "n4"):
        managed.slurm.drain(node)
    assert node_of(managed) == "n1"


def test_a_suspected_node_is_drained_on_demand_and_returned_when_cleared(manage: Manage) -> None:
    managed = manage(drain=2)
    fail_on(managed, "n1", "ann", "ben")
    managed.wait_until(lambda: is_drained(managed, "n1"), "n1 is drained")
    assert events(managed, "node-drained") == ["n1: 2 early failures of 2 users"]
    managed.cycles.clear_node("n1")
    assert not is_drained(managed, "n1")
    managed.cycle(times=5)
    assert not is_drained(managed, "n1")
    with pytest.raises(RefusedError):
        managed.cycles.clear_node("n9")


def test_one_users_failures_drain_no_node(manage: Manage) -> None:
    managed = manage(drain=1.5)
    fail_on(managed, "n1", *["ann"] * 6)
    assert not is_drained(managed, "n1")


def test_at_most_one_node_of_a_partition_is_drained_in_an_hour(manage: Manage) -> None:
    managed = manage(drain=2)
    fail_on(managed, "n1", "ann", "ben")
    managed.wait_until(lambda: is_drained(managed, "n1"), "n1 is drained")
    fail_on(managed, "n2", "cy", "dan")
    managed.cycle(times=10)
    assert not is_drained(managed, "n2")


def test_the_last_node_of_a_partition_is_not_drained(manage: Manage) -> None:
    managed = manage(drain=2)
    for node in ("n2", "n3", "n4"):
        managed.slurm.drain(node)
    fail_on(managed, "n1", "ann", "ben")
    managed.cycle(times=10)
    assert not is_drained(managed, "n1")


def test_an_administrators_return_of_a_drained_node_clears_it(manage: Manage) -> None:
    managed = manage(drain=2)
    fail_on(managed, "n1", "ann", "ben")
    managed.wait_until(lambda: is_drained(managed, "n1"), "n1 is drained")
    managed.slurm.resume_node("n1")
    managed.wait_until(lambda: events(managed, "node-cleared"), "n1 is cleared")
    assert not is_drained(managed, "n1")


def test_a_restarted_controller_knows_what_is_suspected_and_cleared(manage: Manage) -> None:
    managed = manage()
    fail_on(managed, "n1", "ann", "ben")
    fail_on(managed, "n2", "cy", "dan")
    managed.cycles.clear_node("n2")
    managed.ledger.close()
    again = manage()
    assert again.cycles.features.bad_nodes is not None
    assert set(again.cycles.features.bad_nodes.last_resort) == {"n1"}


def test_the_reason_of_a_drain_cannot_add_a_command() -> None:
    drain = SetNode("n1", drain="tiresias: 2 early failures of 2 users")
    assert lines(drain) == [
        'update NodeName=n1 State=DRAIN Reason="tiresias: 2 early failures of 2 users"'
    ]
    for name, reason in (("n1 State=DOWN", "x"), ("n1", 'x" State=DOWN'), ("n1", "x\nshutdown")):
        with pytest.raises(ValueError, match="cannot be set"):
            lines(SetNode(name, drain=reason))


def test_events_of_nodes_name_the_node() -> None:
    event = EventRecord(0.0, "node-suspected", "", "", "n1: 2 early failures of 2 users")
    assert event_text("", event) == "node suspected: n1: 2 early failures of 2 users"
