"""A job that hangs is requeued once, wherever the controller is killed on the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from scripts.testbed.lifecycle.faulty import Fault
from scripts.testbed.lifecycle.machine import MOST_EFFECTS
from scripts.testbed.lifecycle.world import GPUS, Ask, Setup, World
from slurm_tiresias.core.features.idle_gpus import MOST_IN_A_ROW
from slurm_tiresias.core.lifecycle.preemption import Cause
from slurm_tiresias.model import JobAccount, JobState

STEP_S = 30.0
WHOLE_NODE = Ask(GPUS)
KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)


class Hangs:
    """Two jobs that report; the first one stops after some steps."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hung, self.healthy = (key for _ in range(2) for key in world.submit(WHOLE_NODE))
        self.until(lambda: self.runs(restarts=0), steps=False)
        for _ in range(8):
            self.cycle(both=True)
        self.account_before = self.account()

    def cycle(
        self, fault: Fault | None = None, at: int = 0, *, both: bool = False, steps: bool = True
    ) -> None:
        self.world.advance(STEP_S)
        for key in (self.healthy, *((self.hung,) if both else ())):
            if steps and self.world.jobs()[key].state is JobState.RUNNING:
                self.world.report(key, 1, 0)
        self.world.cycle(fault, at)
        self.world.check()

    def until(self, holds: Callable[[], object], *, steps: bool = True) -> None:
        for _ in range(80):
            if holds():
                return
            self.cycle(steps=steps)
        self.world.violated("what was waited for has not come")

    def disturbed(self, fault: Fault, at: int) -> None:
        """Let a fault happen in every other cycle until the job is requeued, if it is."""
        for number in range(60):
            self.cycle(fault if number % 2 else None, at)
            if self.requeues():
                return

    def account(self) -> JobAccount:
        account = self.world.cycles.job_store.accounts.of(self.hung)
        assert account is not None
        return account

    def is_found(self) -> bool:
        return bool(self.events("hung"))

    def is_signalled(self) -> bool:
        return self.hung in self.world.signalled

    def requeues(self) -> int:
        return len(self.world.slurm.requeued)

    def runs(self, restarts: int = 1) -> bool:
        job = self.world.jobs()[self.hung]
        return job.state is JobState.RUNNING and job.restarts == restarts

    def events(self, kind: str) -> list[str]:
        events = self.world.cycles.job_store.changes.ledger.events.of_job(self.hung, 0.0)
        return [event.text for event in events if event.kind == kind]

    def ends_well(self) -> None:
        """It was requeued once, which was counted once, and kept its service."""
        self.until(self.runs)
        self.cycle()
        assert self.requeues() == 1
        requeued = [(run[0], cause) for run, cause in self.world.own_causes.items()]
        assert requeued == [(self.hung, Cause.HUNG)]
        account, before = self.account(), self.account_before
        assert (account.hung_requeues, account.hung_signalled_run) == (1, 0)
        assert (account.preemptions, account.tier) == (0, max(account.tier, before.tier))
        (text,) = self.events("hung-requeued")
        assert re.fullmatch(r"9[0-9]\.[0-9] GPU-h before its time limit, restart 1", text)
        assert len(self.events("hung-signalled")) == 1
        assert self.events("requeued") == self.events("preempted") == []
        self.world.settle()


@pytest.fixture
def hangs() -> Iterator[Hangs]:
    with closing(World(Setup(hung="requeue"))) as world:
        yield Hangs(world)


def test_a_hung_job_is_requeued_and_keeps_its_service(hangs: Hangs) -> None:
    hangs.until(hangs.is_found)
    (text,) = hangs.events("hung")
    assert text.startswith("no step since step 8 for ")
    assert hangs.world.cycles.job_store.runs.attained_gpu_s(hangs.hung) > 0
    hangs.ends_well()
    assert hangs.events("hung-false") == []


def test_a_hung_job_starts_on_another_node_if_there_is_one(hangs: Hangs) -> None:
    (before,) = hangs.world.jobs()[hangs.hung].allocation
    hangs.until(hangs.runs)
    (after,) = hangs.world.jobs()[hangs.hung].allocation
    assert after != before
    hangs.world.settle()


@pytest.mark.parametrize("fault", KILLS, ids=lambda fault: str(fault.value))
@pytest.mark.parametrize("at", range(MOST_EFFECTS))
def test_kills_requeue_a_hung_job_once(hangs: Hangs, fault: Fault, at: int) -> None:
    hangs.disturbed(fault, at)
    hangs.ends_well()


@pytest.mark.parametrize("fault", [Fault.FAILS, Fault.ANSWER_LOST, Fault.REFUSED])
@pytest.mark.parametrize("at", range(MOST_EFFECTS))
def test_failures_requeue_a_hung_job_at_most_once(hangs: Hangs, fault: Fault, at: int) -> None:
    hangs.disturbed(fault, at)
    assert hangs.requeues() <= 1
    hangs.world.settle()


def test_a_step_after_the_verdict_is_a_false_one_and_the_job_stays() -> None:
    with closing(World(Setup(hung="flag"))) as world:
        hangs = Hangs(world)
        hangs.until(hangs.is_found)
        hangs.cycle(both=True)
        assert len(hangs.events("hung-false")) == 1
        assert hangs.requeues() == 0
        run = world.cycles.job_store.runs.in_order(hangs.hung)[-1]
        assert (run.false_verdicts, run.hung_s) == (1, 0.0)


def test_a_job_that_gets_no_further_is_requeued_three_times(hangs: Hangs) -> None:
    for number in range(1, MOST_IN_A_ROW + 1):
        hangs.until(lambda: hangs.runs(restarts=number))  # noqa: B023 - called at once
        for _ in range(7):
            hangs.cycle(both=True)
    for _ in range(60):
        hangs.cycle()
    assert hangs.requeues() == MOST_IN_A_ROW
    assert len(hangs.events("hung")) == MOST_IN_A_ROW + 1
    # One step beyond all earlier runs is enough to begin anew.
    for _ in range(9):
        hangs.cycle(both=True)
    assert hangs.account().hung_requeues == 0
