"""A victim that saves is asked to, and leaves as soon as it has, whatever happens in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.testbed.lifecycle import memory
from scripts.testbed.lifecycle.faulty import Fault
from scripts.testbed.lifecycle.machine import MOST_EFFECTS
from scripts.testbed.lifecycle.world import GPUS, MIN_RUN_S, SAVE_GRACE_S, Ask, Setup
from tests.lifecycle.test_regressions import GRACE_S, Course, course

NO_SIGNAL = Setup(signal="")
KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)


@pytest.fixture
def asked() -> Iterator[Course]:
    """A victim that saves on request and has just been asked to, on a site without a signal."""
    with course(NO_SIGNAL) as one:
        one.world.report(one.victim, 50, 0)
        one.until(one.asked)
        yield one


def test_a_victim_that_listens_is_asked_to_save_where_no_signal_is_set(asked: Course) -> None:
    asked_s = asked.world.now_s
    assert asked.world.slurm.signalled[-1].signal == "URG"
    asked.until(lambda: asked.requeues() == 1)
    assert SAVE_GRACE_S <= asked.world.now_s - asked_s <= SAVE_GRACE_S + 10.0
    asked.ends_well()


def test_it_is_requeued_in_the_cycle_after_its_save(asked: Course) -> None:
    asked.world.save(asked.victim)
    asked.cycle()
    assert asked.requeues() == 1
    asked.ends_well()


def test_so_is_one_that_got_the_signal_of_the_site() -> None:
    with course() as one:
        one.world.report(one.victim, 50, 0)
        one.until(one.asked)
        one.world.save(one.victim)
        one.cycle()
        assert one.requeues() == 1
        one.ends_well()


def test_a_save_from_before_the_signal_ends_no_grace() -> None:
    with course() as one:
        one.world.claim_save(one.victim, 0.0)
        one.until(one.asked)
        asked_s = one.world.now_s
        one.until(lambda: one.requeues() == 1)
        assert one.world.now_s - asked_s >= GRACE_S
        one.ends_well()


def test_a_job_that_does_not_save_on_request_is_not_asked() -> None:
    with course(NO_SIGNAL) as one:
        one.until(lambda: one.requeues() == 1)
        assert not one.asked()
        one.ends_well()


@pytest.mark.parametrize("fault", KILLS, ids=lambda fault: str(fault.value))
@pytest.mark.parametrize("at", range(MOST_EFFECTS))
def test_a_controller_killed_between_request_and_save_requeues_once(fault: Fault, at: int) -> None:
    with course(NO_SIGNAL) as one:
        one.world.report(one.victim, 50, 0)
        for _ in range(3):
            one.cycle(fault, at)
        one.until(one.asked)
        one.world.restart()
        one.world.save(one.victim)
        one.until(lambda: one.requeues() == 1)
        one.ends_well()
        assert one.requeues() == 1


@pytest.mark.parametrize("fault", KILLS, ids=lambda fault: str(fault.value))
@pytest.mark.parametrize("at", range(MOST_EFFECTS))
def test_a_kill_after_a_save_still_requeues_once(fault: Fault, at: int, asked: Course) -> None:
    asked.world.save(asked.victim)
    asked.cycle(fault, at)
    asked.until(lambda: asked.requeues() == 1)
    asked.ends_well()
    assert asked.requeues() == 1


def test_a_victim_that_came_back_stays_until_it_has_passed_the_point_it_had_reached() -> None:
    with course(NO_SIGNAL) as one:
        world = one.world
        world.report(one.victim, 50, 0)
        one.until(lambda: one.requeues() == 1)
        one.until(lambda: one.runs(one.preemptor))
        world.finish(one.preemptor)
        one.until(lambda: one.runs(one.victim))
        (one.preemptor,) = world.submit(Ask(GPUS, user="ben"))
        came_back_s = world.now_s
        world.report(one.victim, 1, 0)
        while world.now_s - came_back_s < 2 * MIN_RUN_S + 15.0:
            world.report(one.victim, 1, 0)
            one.cycle()
        assert memory.is_redoing(world.cycles, one.victim)
        assert one.requeues() == 1
        world.report(one.victim, 50, 0)
        one.until(lambda: one.requeues() == 2)
        assert world.now_s - came_back_s < 3 * MIN_RUN_S + SAVE_GRACE_S + 15.0
        one.ends_well()
