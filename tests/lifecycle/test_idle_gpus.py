"""An idle job is requeued once, wherever the controller is killed on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from scripts.testbed.lifecycle import memory
from scripts.testbed.lifecycle.faulty import Fault
from scripts.testbed.lifecycle.machine import MOST_EFFECTS
from scripts.testbed.lifecycle.world import GPUS, Ask, Setup, World
from slurm_tiresias.controller.cycle import ENFORCE, PAUSED
from slurm_tiresias.core.lifecycle.preemption import Cause
from slurm_tiresias.model import JobState

LEAVE = Setup(idle="leave")
STEP_S = 5.0
WHOLE_NODE = Ask(GPUS)
KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)


class Idle:
    """One job that has used none of its GPUs since its start, and one that uses one of four."""

    def __init__(self, world: World, idle: Ask = WHOLE_NODE) -> None:
        self.world = world
        self.idle, self.partly = (key for ask in (idle, WHOLE_NODE) for key in world.submit(ask))
        world.use_gpus(self.idle, "none")
        world.use_gpus(self.partly, "one")

    def cycle(self, fault: Fault | None = None, at: int = 0) -> None:
        self.world.advance(STEP_S)
        self.world.cycle(fault, at)
        self.world.check()

    def until(self, holds: Callable[[], object], fault: Fault | None = None, at: int = 0) -> None:
        for _ in range(60):
            if holds():
                return
            self.cycle(fault, at)
        self.world.violated("what was waited for has not come")

    def until_its_grace_ends_next(self) -> None:
        """Go on until the idle job is signalled and its grace is over in the next cycle."""
        self.until(self.is_signalled)
        while not memory.grace_is_over(self.world.cycles, self.idle, self.world.now_s + STEP_S):
            self.cycle()

    def is_signalled(self) -> bool:
        return self.idle in self.world.signalled

    def requeues(self) -> int:
        return len(self.world.slurm.requeued)

    def runs_again(self) -> bool:
        job = self.world.jobs()[self.idle]
        return job.state is JobState.RUNNING and job.restarts == 1

    def events(self, kind: str) -> list[str]:
        events = self.world.cycles.job_store.changes.ledger.events.of_job(self.idle, 0.0)
        return [event.text for event in events if event.kind == kind]

    def ends_well(self) -> None:
        """It was requeued once, for its idle GPUs alone, and this was counted once."""
        self.until(self.runs_again)
        self.cycle()
        assert self.requeues() == 1
        requeued = [(run[0], cause) for run, cause in self.world.own_causes.items()]
        assert requeued == [(self.idle, Cause.IDLE_GPUS)]
        record = self.world.cycles.job_store.accounts.of(self.idle)
        assert record is not None
        assert (record.idle_requeues, record.idle_signalled_run, record.preemptions) == (1, 0, 0)
        assert self.events("idle-requeued") == ["restart 1"]
        assert len(self.events("idle-signalled")) == 1
        assert self.events("requeued") == self.events("preempted") == []
        self.world.settle()


@pytest.fixture
def idle() -> Iterator[Idle]:
    with closing(World(LEAVE)) as world:
        yield Idle(world)


@pytest.mark.parametrize("fault", KILLS, ids=lambda fault: str(fault.value))
@pytest.mark.parametrize("at", range(MOST_EFFECTS))
def test_kills_in_every_other_cycle_requeue_once(idle: Idle, fault: Fault, at: int) -> None:
    for number in range(40):
        idle.cycle(fault if number % 2 else None, at)
        if idle.requeues():
            break
    idle.ends_well()


@pytest.mark.parametrize("fault", KILLS, ids=lambda fault: str(fault.value))
@pytest.mark.parametrize("at", range(MOST_EFFECTS))
def test_a_kill_in_the_requeues_own_cycle_requeues_once(idle: Idle, fault: Fault, at: int) -> None:
    idle.until_its_grace_ends_next()
    idle.cycle(fault, at)
    idle.ends_well()


@pytest.mark.parametrize("fault", KILLS, ids=lambda fault: str(fault.value))
@pytest.mark.parametrize("at", range(MOST_EFFECTS))
def test_a_job_that_uses_a_gpu_after_a_kill_is_spared(idle: Idle, fault: Fault, at: int) -> None:
    idle.until_its_grace_ends_next()
    idle.cycle(fault, at)
    was_requeued = idle.requeues()
    idle.world.use_gpus(idle.idle, "all")
    for _ in range(10):
        idle.cycle()
    assert idle.requeues() == was_requeued
    assert len(idle.events("idle-spared")) == 1 - was_requeued
    idle.world.settle()


@pytest.mark.parametrize("fault", [Fault.FAILS, Fault.ANSWER_LOST, Fault.REFUSED])
@pytest.mark.parametrize("at", range(MOST_EFFECTS))
def test_failures_lead_to_at_most_one_requeue(idle: Idle, fault: Fault, at: int) -> None:
    for number in range(40):
        idle.cycle(fault if number % 2 else None, at)
        if idle.requeues():
            break
    assert idle.requeues() <= 1
    idle.world.settle()


def test_a_run_is_not_signalled_again_after_a_pause_in_its_grace(idle: Idle) -> None:
    idle.until(idle.is_signalled)
    idle.world.switch(PAUSED)
    idle.cycle()
    idle.world.switch(ENFORCE)
    for _ in range(30):
        idle.cycle()
    assert idle.requeues() == 0
    assert idle.world.signalled.count(idle.idle) == 1
    idle.world.settle()


def test_a_standby_continues_the_grace(idle: Idle) -> None:
    idle.until(idle.is_signalled)
    idle.world.failover()
    idle.until(idle.requeues)
    assert idle.world.signalled.count(idle.idle) == 1
    idle.ends_well()
