"""What is written to Slurm, and what is made of its refusals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from scripts.testbed.job_views import changed
from slurm_tiresias.config import parse
from slurm_tiresias.controller.act import Actor
from slurm_tiresias.controller.acting.under_way import UnderWay
from slurm_tiresias.controller.bands import TOP_TIER
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.lifecycle.preemption import PreemptionState
from slurm_tiresias.errors import SlurmUnreachableError
from slurm_tiresias.model import (
    Action,
    Amount,
    Decision,
    JobSpec,
    JobStatus,
    Node,
    Plan,
    Reason,
    Request,
)
from slurm_tiresias.slurm.protocol import (
    Limit,
    Observation,
    Partition,
    Slurm,
    Unpin,
    Update,
    Write,
    WriteFailure,
)
from slurm_tiresias.store.ledger import Ledger
from tests.controller.test_job_store import pending, running, see

CONFIG = parse({"preemption": {"checkpoint": "USR1@10"}})
PLANNED, SIGNALLED = PreemptionState.PLANNED, PreemptionState.SIGNALLED
ON_N1 = {"n1": Amount({"": 4}, 4)}
NODES = (Node("n1", Amount({"": 4}, 16)),)


@dataclass
class FakeSlurm:
    """Notes what is written and signalled, and refuses what it is told to refuse."""

    written: list[Write] = field(default_factory=list)
    signals: list[tuple[str, ...]] = field(default_factory=list)
    refused_signals: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""
    unanswered_signal: str = ""

    def write(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        self.written += writes
        return [WriteFailure(write, self.refusal) for write in writes if self.refusal]

    def limits(self, _jobs: Collection[JobSpec]) -> Mapping[str, Sequence[Limit]]:
        return {}

    def signal(self, keys: Sequence[str], signal: str) -> Mapping[str, str]:
        self.signals.append(tuple(keys))
        if signal == self.unanswered_signal:
            raise SlurmUnreachableError("scancel did not answer", "Try again")
        return {key: self.refused_signals[key] for key in keys if key in self.refused_signals}


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


@pytest.fixture
def job_store(ledger: Ledger) -> JobStore:
    return JobStore(ledger, CONFIG, accounting=False)


@pytest.fixture
def actor(slurm: FakeSlurm, job_store: JobStore) -> Actor:
    return Actor(UnderWay(cast(Slurm, slurm), job_store, CONFIG, requeue_delay_s=120.0))


def events(ledger: Ledger, kind: str) -> list[tuple[str, str]]:
    return [(event.job_id, event.text) for event in ledger.events.last(100) if event.kind == kind]


@pytest.mark.parametrize(
    ("priority", "state", "released"),
    [(0, "RUNNING", False), (0, "SUSPENDED", False), (3_000_000_000, "RUNNING", True)],
)
def test_release_does_not_take_the_hold_off_a_job_that_runs_or_is_suspended(
    job_store: JobStore, slurm: FakeSlurm, actor: Actor, priority: int, state: str, released: bool
) -> None:
    job = running(1005, 5, priority=priority, slurm_state=state)
    see(job_store, 1010, job)
    job_store.accounts.put(replace(job_store.accounts.all["7"], written_priority=3_000_000_000))
    actor.hand_back(Observation(1010, (job,), NODES, ()))
    assert slurm.written == ([Unpin("7")] if released else [])


PARTITIONS = (
    Partition("gpu", frozenset({"n1"}), True),
    Partition("shares-nodes", frozenset({"n1", "n2"}), True),
    Partition("cpu", frozenset({"n2"}), True),
)


@pytest.mark.parametrize(
    ("was_managed", "partition", "priority", "is_reset"),
    [
        (False, "cpu", 4_000_000_000, False),
        (False, "shares-nodes", 4_000_000_000, False),
        (False, "cpu", TOP_TIER, True),
        (False, "shares-nodes", TOP_TIER, True),
        (True, "cpu", 4_000_000_000, False),
        (True, "shares-nodes", TOP_TIER + 17, True),
        (True, "shares-nodes", 1000, False),
    ],
)
def test_only_priorities_that_come_from_here_are_reset(
    job_store: JobStore,
    slurm: FakeSlurm,
    actor: Actor,
    was_managed: bool,
    partition: str,
    priority: int,
    is_reset: bool,
) -> None:
    """An operator may give any other job any priority. A new job has the top tier's exact number
    from job_submit.lua."""
    if was_managed:
        see(job_store, 1000, pending())
    job = changed(pending(), partitions=(partition,), priority=priority)
    see(job_store, 1010, job)
    plan = Plan({"7": Decision("7", Action.LEAVE, Reason.UNMANAGED)})
    seen = Observation(1010, (job,), NODES, PARTITIONS)
    actor.carry_out(plan, seen)
    assert slurm.written == ([Unpin("7")] if is_reset else [])
    slurm.written.clear()
    actor.hand_back(seen)
    assert slurm.written == ([Unpin("7")] if is_reset else [])


@pytest.mark.parametrize(
    ("words", "noted"),
    [
        ("Job has already finished for job 7", []),
        ("Invalid job id specified for job 7", []),
        ("Job/step already completing or completed for job 7", []),
        ("Job is no longer pending execution for job 7", ["7"]),
        ("7_1: Job has already finished; 7_2: Requested partition is down", ["7"]),
    ],
)
def test_a_write_refused_because_the_job_has_ended_is_no_event(
    job_store: JobStore,
    slurm: FakeSlurm,
    actor: Actor,
    ledger: Ledger,
    words: str,
    noted: list[str],
) -> None:
    job = running(1005, 5)
    see(job_store, 1010, job)
    slurm.refusal = words
    plan = Plan({"7": Decision("7", Action.RUN_ON, Reason.RUNS_ON, tier=0)})
    actor.carry_out(plan, Observation(1010, (job,), NODES, ()))
    assert slurm.written
    assert [job_id for job_id, _ in events(ledger, "failed")] == noted


@pytest.mark.parametrize("unanswered", ["USR1", "USR2"])
def test_an_unanswered_signal_says_nothing_of_victims_with_other_signals(
    job_store: JobStore, slurm: FakeSlurm, actor: Actor, unanswered: str
) -> None:
    signals = {"7": "USR1", "9": "USR2"}
    victims_of_8 = [
        Decision(key, Action.PREEMPT, Reason.PREEMPTED, tier=1, preempted_for="8")
        for key in signals
    ]
    starts = Decision(
        "8", Action.START, Reason.STARTS_PREEMPTING, tier=0, start_on=ON_N1, victims=("7", "9")
    )
    plan = Plan({one.job_id: one for one in (*victims_of_8, starts)})
    slurm.unanswered_signal = unanswered
    now_s = 1010.0
    while not slurm.signals:
        preemptor = pending("8", reason="Resources", priority=4_000_000_000)
        if "8" in job_store.lifecycles.nominations:
            written = job_store.accounts.all["8"].written_priority
            preemptor = changed(preemptor, priority=written, required_node_list="n1")
        victims = [
            running(
                1005,
                now_s - 1005,
                key=key,
                raw_id=int(key),
                comment=f"tiresias:checkpoint={name}@60",
            )
            for key, name in signals.items()
        ]
        see(job_store, now_s, *victims, preemptor)
        seen = Observation(now_s, (*victims, preemptor), NODES, ())
        actor.review(seen)
        with suppress(SlurmUnreachableError):
            actor.carry_out(plan, seen)
        now_s += 5.0
    states = {key: job_store.lifecycles.preemptions[key] for key in signals}
    for key, name in signals.items():
        if name == unanswered:
            assert (states[key].state, states[key].signalled_s) == (PLANNED, now_s - 5.0)
        elif (key,) in slurm.signals:
            assert states[key].state is SIGNALLED, "its signal was answered before"
        else:
            assert (states[key].state, states[key].signalled_s) == (PLANNED, None)


# A job that Slurm holds while the node list that was written here stands on it

HELD = Plan({"8": Decision("8", Action.WAIT, Reason.HELD, tier=0)})


def held(reason: str, node_list: str) -> JobStatus:
    return changed(pending("8"), reason=reason, priority=0, required_node_list=node_list)


@pytest.mark.parametrize(
    ("reason", "let_go"),
    [("BadConstraints", True), ("JobHeldUser", False), ("JobHeldAdmin", False)],
)
def test_a_held_job_gets_its_node_list_back_and_is_released_only_if_ours_held_it(
    job_store: JobStore, slurm: FakeSlurm, actor: Actor, ledger: Ledger, reason: str, let_go: bool
) -> None:
    see(job_store, 1000, pending("8"))
    job_store.accounts.put(
        replace(job_store.accounts.all["8"], written_nodes="n1", own_nodes="n[1-4]")
    )
    job = held(reason, "n1")
    see(job_store, 1010, job)
    actor.carry_out(HELD, Observation(1010, (job,), NODES, ()))
    back = Update("8", node_list="n[1-4]")
    assert slurm.written == ([back, Unpin("8")] if let_go else [back])
    assert [job_id for job_id, _ in events(ledger, "list-refused")] == (["8"] if let_go else [])
    assert job_store.accounts.all["8"].list_refused == let_go
    # What its user has asked for is the user's: it is let go once, and not again.
    job = held(reason, "n[1-4]")
    see(job_store, 1020, job)
    actor.carry_out(HELD, Observation(1020, (job,), NODES, ()))
    assert len(slurm.written) == (2 if let_go else 1)


def test_no_nodes_are_named_for_a_job_whose_list_was_refused(
    job_store: JobStore, slurm: FakeSlurm, actor: Actor
) -> None:
    job = changed(pending("8"), request=Request(Amount({"": 1}), chunks=4))
    see(job_store, 1000, job)
    job_store.accounts.put(replace(job_store.accounts.all["8"], list_refused=True))
    start = Decision("8", Action.START, Reason.STARTS, tier=0, start_on=ON_N1)
    actor.carry_out(Plan({"8": start}), Observation(1000, (job,), NODES, ()))
    assert [write.node_list for write in slurm.written if isinstance(write, Update)] == [None]
