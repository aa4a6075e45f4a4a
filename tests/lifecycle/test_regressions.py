"""Courses on which the controller has gone wrong before, with the same means as the random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from scripts.testbed.lifecycle import memory
from scripts.testbed.lifecycle.faulty import Fault
from scripts.testbed.lifecycle.world import (
    DEFAULT,
    GPUS,
    MAX_GRACE_S,
    NODES,
    OTHER,
    RETRY_AFTER_S,
    Ask,
    Setup,
    World,
)
from slurm_tiresias.controller.cycle import ENFORCE, PAUSED
from slurm_tiresias.core.lifecycle.preemption import MAX_SIGNAL_REFUSALS
from slurm_tiresias.model import JobState

STEP_S = 5.0
LONGEST = 60
"""Cycles until whatever is waited for has come."""

GRACE_S = 15.0
WHOLE_CLUSTER = Ask(GPUS, nodes=len(NODES), user="ann")
NODE = Ask(GPUS, user="ben")


class Course:
    """A job that has the whole cluster and is to leave for another one, cycle by cycle."""

    def __init__(self, world: World, victim: Ask = WHOLE_CLUSTER, preemptor: Ask = NODE) -> None:
        self.world = world
        (self.victim,) = world.submit(victim)
        self.until(lambda: self.runs(self.victim))
        for _ in range(6):
            self.cycle()
        (self.preemptor,) = world.submit(preemptor)

    def cycle(self, fault: Fault | None = None, at: int = 0) -> None:
        self.world.advance(STEP_S)
        self.world.cycle(fault, at)
        self.world.check()

    def until(self, what: Callable[[], bool]) -> None:
        for _ in range(LONGEST):
            if what():
                return
            self.cycle()
        self.world.violated("what was waited for has not come")

    def runs(self, key: str) -> bool:
        return self.world.jobs()[key].state is JobState.RUNNING

    def asked(self) -> bool:
        """The victim has heard its signal."""
        return self.victim in self.world.signalled

    def requeues(self) -> int:
        """How often the controller has requeued the victim."""
        return sum(one.key == self.victim for one in self.world.slurm.requeued)

    def told(self, key: str, kind: str) -> list[str]:
        """The texts of the events of this kind of a job."""
        events = self.world.ledger.events.of_job(key, 0.0)
        return [event.text for event in events if event.kind == kind]

    def ends_well(self) -> None:
        """Both have a place in the end, and everything that must hold does."""
        self.until(lambda: self.runs(self.preemptor))
        self.world.settle()


@contextmanager
def course(setup: Setup = DEFAULT, victim: Ask = WHOLE_CLUSTER) -> Iterator[Course]:
    with closing(World(setup)) as world:
        yield Course(world, victim)


@pytest.fixture
def preemption() -> Iterator[Course]:
    with course() as one:
        yield one


@pytest.mark.parametrize("refused", [False, True], ids=["heard at once", "refused once"])
def test_a_preemption_takes_its_course(preemption: Course, refused: bool) -> None:
    if refused:
        preemption.world.refuse_signals(True)
        preemption.until(lambda: bool(preemption.told(preemption.victim, "signal-refused")))
        preemption.world.refuse_signals(False)
    preemption.until(preemption.asked)
    asked_s = preemption.world.now_s
    preemption.until(lambda: preemption.requeues() == 1)
    assert preemption.world.now_s - asked_s >= GRACE_S
    preemption.ends_well()
    assert preemption.requeues() == 1


def test_a_refused_signal_is_asked_for_again_and_then_abandoned(preemption: Course) -> None:
    world = preemption.world
    world.refuse_signals(True)
    since_s = world.now_s
    preemption.until(lambda: memory.backed_off_since(world.cycles, preemption.preemptor, since_s))
    assert preemption.requeues() == 0
    assert preemption.runs(preemption.victim)
    words = f"Kill job error on job id {preemption.victim}: Access denied"
    refusals = preemption.told(preemption.victim, "signal-refused")
    assert refusals == [f"USR1: {words}"] * MAX_SIGNAL_REFUSALS
    why = f"job {preemption.victim} cannot be told to save its state ({words})"
    assert preemption.told(preemption.preemptor, "backed-off") == [why]
    assert not memory.is_leaving(world.cycles, preemption.victim)
    world.refuse_signals(False)
    world.advance(RETRY_AFTER_S)
    preemption.ends_well()
    assert preemption.requeues() == 1


def test_a_victim_requeued_by_its_user_is_not_requeued_again(preemption: Course) -> None:
    preemption.until(preemption.asked)
    preemption.world.requeue(preemption.victim)
    preemption.until(lambda: preemption.runs(preemption.preemptor))
    assert preemption.requeues() == 0
    preemption.ends_well()


@pytest.mark.parametrize("write", ["pinned", "site-factor"])
@pytest.mark.parametrize("by_admin", [False, True])
def test_a_hold_is_not_taken_off(write: str, by_admin: bool) -> None:
    """Of a waiting job, of one that runs, and not by a release either: ``World`` looks at it."""
    with course(Setup(write=write)) as one:
        one.world.hold(one.preemptor, by_admin=by_admin)
        one.world.hold(one.victim, by_admin=by_admin)
        for _ in range(10):
            one.cycle()
        one.world.release()
        one.world.switch(PAUSED)
        one.cycle()
        assert {one.world.jobs()[key].priority for key in (one.victim, one.preemptor)} == {0}
        one.world.settle()


def test_a_suspended_job_stays_suspended(preemption: Course) -> None:
    preemption.until(preemption.asked)
    preemption.world.suspend(preemption.victim)
    for _ in range(20):
        preemption.cycle()
    assert preemption.requeues() == 0
    preemption.world.settle()


@pytest.mark.parametrize("how", ["held by its owner", "requeue forbidden"])
def test_the_owner_of_a_running_job_cannot_make_it_immune(preemption: Course, how: str) -> None:
    if how == "requeue forbidden":
        preemption.world.forbid_requeue(preemption.victim)
    else:
        preemption.world.hold(preemption.victim, by_admin=False)
    preemption.ends_well()
    assert preemption.requeues() == 1


def test_a_preemptor_that_does_not_start_on_its_nomination_backs_off(preemption: Course) -> None:
    """Slurm finds that it lacks a licence once the victim has left."""
    world = preemption.world
    preemption.until(lambda: preemption.requeues() == 1)
    world.obstruct(preemption.preemptor)
    since_s = world.now_s
    preemption.until(lambda: memory.backed_off_since(world.cycles, preemption.preemptor, since_s))
    for _ in range(20):
        preemption.cycle()
    assert preemption.requeues() == 1
    assert preemption.runs(preemption.victim), "it has its place again"
    world.settle()


def test_no_job_is_preempted_for_a_preemptor_that_lacks_more_than_room(preemption: Course) -> None:
    """A licence, which it has lost in the grace of the victim."""
    world = preemption.world
    preemption.until(preemption.asked)
    world.obstruct(preemption.preemptor)
    for _ in range(10):
        preemption.cycle()
    assert preemption.requeues() == 0
    world.obstruct(preemption.preemptor, "")
    preemption.ends_well()


def test_a_victim_whose_node_fails_in_its_grace_is_not_requeued(preemption: Course) -> None:
    world = preemption.world
    preemption.until(preemption.asked)
    world.fail(NODES[0])
    for _ in range(10):
        preemption.cycle()
    assert preemption.requeues() == 0
    world.return_to_service(NODES[0])
    preemption.ends_well()


@pytest.mark.parametrize("how", ["cancel", "hold"])
def test_a_victim_is_spared_where_its_preemptor_goes_away(preemption: Course, how: str) -> None:
    preemption.until(preemption.asked)
    if how == "cancel":
        preemption.world.cancel(preemption.preemptor)
    else:
        preemption.world.hold(preemption.preemptor, by_admin=False)
    for _ in range(10):
        preemption.cycle()
    assert preemption.requeues() == 0
    assert preemption.runs(preemption.victim)
    preemption.world.settle()


def test_a_victim_is_spared_where_its_preemptor_is_to_start_elsewhere() -> None:
    """Its node is drained in the grace: another job has to leave, and this one runs on."""
    with closing(World()) as world:
        victims = [world.submit(Ask(GPUS, user="ann"))[0] for _ in NODES]
        one = Course.__new__(Course)
        one.world = world
        one.until(lambda: all(map(one.runs, victims)))
        for _ in range(12):
            one.cycle()
        world.submit(Ask(GPUS, user="ben"))
        one.until(lambda: bool(world.signalled))
        (first,) = world.signalled
        world.drain(next(iter(world.jobs()[first].allocation)))
        for _ in range(12):
            one.cycle()
        assert first not in {each.key for each in world.slurm.requeued}
        world.settle()


@contextmanager
def two_victims(
    requeues_itself_in_s: float | None = None,
) -> Iterator[tuple[Course, str, list[str]]]:
    """n1: the first, with the longest grace, n2: the second, n3: idle; the preemptor needs all."""
    with closing(World()) as world:
        patient = Ask(GPUS - 1, user="ann", checkpoint=f"USR2@{MAX_GRACE_S:.0f}")
        second = Ask(GPUS - 1, user="ann", requeues_itself_in_s=requeues_itself_in_s)
        victims = [*world.submit(patient), *world.submit(second)]
        one = Course.__new__(Course)
        one.world = world
        one.until(lambda: all(map(one.runs, victims)))
        for _ in range(8):
            one.cycle()
        (preemptor,) = world.submit(Ask(2, nodes=len(NODES), user="ben"))
        one.until(lambda: set(world.signalled) == set(victims))
        yield one, preemptor, victims
        world.settle()


@pytest.mark.parametrize("how", ["held by an administrator", "suspended", "unreadable"])
def test_a_preemptor_backs_off_where_one_of_its_victims_is_to_stay(how: str) -> None:
    with two_victims() as (one, preemptor, (first, second)):
        world = one.world
        since_s = world.now_s
        if how == "held by an administrator":
            world.hold(first, by_admin=True)
        elif how == "suspended":
            world.suspend(first)
        else:
            world.garble(first)
        one.until(lambda: memory.backed_off_since(world.cycles, preemptor, since_s))
        for _ in range(10):
            one.cycle()
        assert not world.slurm.requeued
        assert one.runs(second)


def test_no_victim_is_preempted_again_for_a_job_that_backed_off_before_its_victim_left() -> None:
    """One of its victims is to stay; the other requeues itself after that, on its signal."""
    with two_victims(requeues_itself_in_s=GRACE_S - STEP_S) as (one, preemptor, (first, second)):
        world = one.world
        since_s = world.now_s
        world.suspend(first)
        one.until(lambda: memory.backed_off_since(world.cycles, preemptor, since_s))
        assert one.runs(second)
        one.until(lambda: not one.runs(second))
        world.resume(first)
        one.until(lambda: one.runs(second))
        world.advance(4 * RETRY_AFTER_S)
        for _ in range(20):
            one.cycle()
        assert not world.slurm.requeued
        assert world.signalled.count(second) == 1


def test_victims_of_one_preemptor_leave_together_when_the_longest_grace_is_over() -> None:
    with two_victims() as (one, preemptor, victims):
        signalled_s = one.world.now_s
        one.until(lambda: bool(one.world.slurm.requeued))
        assert {each.key for each in one.world.slurm.requeued} == set(victims)
        assert one.world.now_s - signalled_s >= MAX_GRACE_S - STEP_S
        one.until(lambda: one.runs(preemptor))


MOST_EFFECTS = 12
FAULTS_IN_PASSING = tuple(fault for fault in Fault if fault is not Fault.REFUSED)


@pytest.mark.parametrize("fault", FAULTS_IN_PASSING, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("setup", [DEFAULT, Setup(signal="")], ids=["with grace", "without"])
def test_a_preemption_survives_a_fault_at_any_effect(setup: Setup, fault: Fault) -> None:
    """Between signal and requeue, after a requeue whose answer is lost, and everywhere else."""
    number, at = 0, 0
    while True:
        with course(setup) as one:
            for _ in range(number):
                one.cycle()
            if one.runs(one.preemptor):
                break
            one.cycle(fault, at)
            passed = one.world.slurm.passed > at
            if passed:
                one.ends_well()
                assert one.requeues() == 1
        number, at = (number, at + 1) if passed else (number + 1, 0)


@pytest.mark.parametrize("write", ["pinned", "site-factor"])
@pytest.mark.parametrize("at", range(MOST_EFFECTS))
def test_a_write_that_a_killed_controller_has_not_noted_is_taken_back(write: str, at: int) -> None:
    """The job has started meanwhile, and would wait in front of all others once it is requeued."""
    with closing(World(Setup(write=write))) as world:
        world.submit(Ask(GPUS))
        world.cycle(Fault.KILLED_AFTER, at)
        world.advance(STEP_S)
        world.release()


@pytest.mark.parametrize("killed", [False, True])
def test_a_node_list_slurmctld_restores_is_taken_back(preemption: Course, killed: bool) -> None:
    """It is killed, and had saved its state before the list was taken back."""
    world = preemption.world
    preemption.until(preemption.asked)
    world.hold(preemption.preemptor, by_admin=False)
    world.advance(STEP_S)
    for _ in range(3):
        world.cycle()
    if killed:
        world.restart()
    world.restart_slurm()
    world.hold(preemption.preemptor, by_admin=False)
    assert world.jobs()[preemption.preemptor].spec.required_node_list
    for _ in range(3):
        preemption.cycle()
    assert not world.jobs()[preemption.preemptor].spec.required_node_list
    world.settle()


def test_a_preemption_counts_though_the_victim_is_unreadable(preemption: Course) -> None:
    world = preemption.world
    preemption.until(lambda: preemption.requeues() == 1)
    world.garble(preemption.victim)
    preemption.until(lambda: preemption.runs(preemption.preemptor))
    preemption.cycle()
    world.garble(preemption.victim, "")
    preemption.cycle()
    assert preemption.told(preemption.victim, "preempted")


def test_the_service_of_a_job_that_seems_to_have_ended_before_its_submission_is_kept() -> None:
    """Its node fails, and it is cancelled in the queue; Slurm's clock was set back between."""
    with closing(World()) as world:
        (job,) = world.submit(Ask(1))
        one = Course.__new__(Course)
        one.world = world
        one.until(lambda: one.runs(job))
        for _ in range(6):
            one.cycle()
        ran_gpu_s = memory.attained_gpu_s(world.cycles, job)
        assert ran_gpu_s > 0.0
        world.fail(NODES[0])
        one.cycle()
        world.step_clock(-3600.0)
        one.cycle()
        world.cancel(job)
        world.release()
        world.switch(ENFORCE)
        for _ in range(4):
            one.cycle()
        assert memory.attained_gpu_s(world.cycles, job) >= ran_gpu_s
        world.settle()


def test_the_service_of_a_job_is_not_compared_with_that_of_an_earlier_one_of_its_id() -> None:
    """slurmctld is killed before it has saved a managed job that the controller has seen, and
    gives its id to one that is not managed."""
    with closing(World()) as world:
        world.advance(STEP_S)
        (first,) = world.submit(Ask(1))
        world.cycle()
        world.restart_slurm()
        (second,) = world.submit(Ask(1, partitions=(OTHER,)))
        assert second == first
        world.advance(STEP_S)
        assert world.jobs()[second].state is JobState.RUNNING
        world.settle()


def test_a_job_that_takes_over_a_victims_id_is_not_requeued_for_it(preemption: Course) -> None:
    """slurmctld has lost its state: ids begin again. Nothing of the first holders is left."""
    world = preemption.world
    preemption.until(preemption.asked)
    memory_before = world.cycles.progress
    world.restart_slurm(wiped=True)
    (again,) = world.submit(Ask(GPUS, user="eve"))
    assert again == preemption.victim
    for _ in range(10):
        preemption.cycle()
    assert world.jobs()[again].restarts == 0 and preemption.requeues() == 0
    assert world.cycles.progress is not memory_before
    assert memory.submitted_s(world.cycles, again) == world.own[again].submitted_s
    world.settle()


def test_a_nomination_ends_when_its_job_starts_in_another_partition(preemption: Course) -> None:
    world = preemption.world
    preemption.until(lambda: preemption.requeues() == 1)
    world.move(preemption.preemptor, (OTHER,))
    preemption.until(lambda: preemption.runs(preemption.preemptor))
    preemption.cycle()
    assert preemption.preemptor not in world.cycles.job_store.lifecycles.nominations


def test_an_unreadable_job_is_handed_back_by_a_controller_that_has_not_seen_its_restart() -> None:
    with closing(World(DEFAULT)) as world:
        course = Course(world, preemptor=Ask(GPUS, user="ben", restarts=2))
        course.until(lambda: course.runs(course.preemptor))
        world.fail_run(course.preemptor)
        course.cycle()
        restarted = world.jobs()[course.preemptor]
        assert restarted.restarts == 1 and restarted.spec.required_node_list
        world.garble(course.preemptor)
        world.restart()
        world.release()
