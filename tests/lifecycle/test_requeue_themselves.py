"""Victims whose programs requeue their own job when they get the checkpoint signal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from scripts.testbed.lifecycle import memory
from scripts.testbed.lifecycle.faulty import not_answering
from scripts.testbed.lifecycle.world import GPUS, MIN_RUN_S, NODES, Ask, Setup, World
from slurm_tiresias.core.features.losses import LEAVES_WITHIN_S
from slurm_tiresias.core.lifecycle.preemption import Cause, PreemptionState
from slurm_tiresias.model import JobAccount, JobState
from slurm_tiresias.store.records import CostSource
from tests.lifecycle.test_idle_gpus import LEAVE, WHOLE_NODE, Idle
from tests.lifecycle.test_regressions import GRACE_S, WHOLE_CLUSTER, Course, course

SLURMS_DELAY_S = 120.0
SAVES_IN_S = 4.0


def account(world: World, key: str) -> JobAccount:
    found = world.cycles.job_store.accounts.of(key)
    assert found is not None
    return found


ITSELF = replace(WHOLE_CLUSTER, requeues_itself_in_s=SAVES_IN_S)


@pytest.fixture
def one() -> Iterator[Course]:
    """A victim that requeues itself soon after its signal, and its preemptor."""
    with course(victim=ITSELF) as found:
        yield found


@pytest.mark.parametrize("in_s", [0.0, SAVES_IN_S, GRACE_S - 1.0])
def test_it_is_a_preemption_like_any_other(in_s: float) -> None:
    with course(victim=replace(ITSELF, requeues_itself_in_s=in_s)) as one:
        one.until(lambda: one.runs(one.preemptor))
        assert one.asked() and one.requeues() == 0
        victim = account(one.world, one.victim)
        assert (victim.preemptions, victim.preempted_by) == (1, one.preemptor)
        ((run, cause),) = memory.preempted_runs(one.world.cycles)
        assert (run[0], cause) == (one.victim, Cause.FOR_JOB)
        (cost,) = one.world.cycles.job_store.lifecycles.costs.awaited
        assert (cost.key, cost.source) == (one.victim, CostSource.AWAITED)
        one.ends_well()


def test_it_is_charged_to_the_preemptor() -> None:
    with course(Setup(budget_share=1e-6), ITSELF) as one:
        one.until(lambda: one.world.cycles.job_store.users_over_budget == {"ben"})


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("next_user", ["", "cat"])
def test_it_is_charged_to_a_preemptor_cancelled_meanwhile(next_user: str, restarts: bool) -> None:
    """Even if another job wants its GPUs by then, or the controller was killed."""
    victim = replace(ITSELF, requeues_itself_in_s=GRACE_S - 1.0)
    with course(Setup(budget_share=1e-6), victim) as one:
        one.until(one.asked)
        one.world.cancel(one.preemptor)
        one.cycle()
        if next_user:
            one.world.submit(replace(WHOLE_CLUSTER, user=next_user))
            one.cycle()
        if restarts:
            one.world.restart()
        assert one.runs(one.victim)
        one.until(lambda: one.world.cycles.job_store.users_over_budget == {"ben"})
        left = account(one.world, one.victim)
        assert (left.preemptions, left.preempted_by) == (1, one.preemptor)


@pytest.mark.parametrize("looks_before", [False, True])
def test_a_requeue_by_its_user_long_after_the_grace_is_none(looks_before: bool) -> None:
    with course() as one:
        one.until(one.asked)
        one.world.cancel(one.preemptor)
        one.cycle()
        one.world.advance(GRACE_S + 2 * LEAVES_WITHIN_S)
        if looks_before:
            one.cycle()
            assert one.victim not in one.world.cycles.job_store.lifecycles.preemptions
        one.world.requeue(one.victim)
        one.cycle()
        assert account(one.world, one.victim).preemptions == 0


def test_it_counts_if_an_answer_was_lost(one: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = one.world.slurm.signal

    def sent_without_answer(keys: Sequence[str], signal: str) -> Mapping[str, str]:
        sent(keys, signal)
        raise not_answering()

    with monkeypatch.context() as patch:
        patch.setattr(one.world.slurm, "signal", sent_without_answer)
        one.until(one.asked)
    assert (
        one.world.cycles.job_store.lifecycles.preemptions[one.victim].state
        is PreemptionState.PLANNED
    )
    one.cycle()
    assert account(one.world, one.victim).preemptions == 1
    one.ends_well()


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_victim_that_ends_on_its_signal_is_not_charged_to_the_preemptor(cancelled: bool) -> None:
    """Slurm does not show whether it would have ended anyway, and no run is left to protect."""
    with course(Setup(budget_share=1e-6)) as one:
        one.until(one.asked)
        if cancelled:
            one.world.cancel(one.preemptor)
            one.cycle()
        one.world.finish(one.victim)
        one.cycle()
        one.cycle()
        assert one.victim not in one.world.cycles.job_store.lifecycles.preemptions
        assert memory.preempted_runs(one.world.cycles) == []
        assert not one.world.cycles.job_store.users_over_budget


def test_its_preemptor_keeps_its_nomination_and_costs_no_further_victim(one: Course) -> None:
    one.until(lambda: account(one.world, one.victim).preemptions == 1)
    nomination = one.world.cycles.job_store.lifecycles.nominations.get(one.preemptor)
    assert nomination is None or nomination.victims_left


def test_it_does_not_wait_for_slurms_own_delay(one: Course) -> None:
    one.until(lambda: account(one.world, one.victim).preemptions == 1)
    one.world.finish(one.preemptor) if one.runs(one.preemptor) else one.world.cancel(one.preemptor)
    left_s = one.world.now_s
    one.until(lambda: one.runs(one.victim))
    assert one.world.now_s - left_s < SLURMS_DELAY_S / 2


def test_it_makes_the_minimum_run_time_of_the_next_run_longer(one: Course) -> None:
    one.until(lambda: one.runs(one.preemptor))
    one.world.finish(one.preemptor)
    one.until(lambda: one.runs(one.victim))
    one.world.submit(Ask(GPUS, user="ben"))
    one.until(lambda: account(one.world, one.victim).preemptions == 2)
    runs = one.world.cycles.job_store.runs.in_order(one.victim)
    assert runs[1].elapsed_s >= 2 * MIN_RUN_S


def test_it_waits_until_the_other_victims_have_left() -> None:
    """Otherwise Slurm might start it on the GPUs that its preemptor awaits."""
    with closing(World()) as world:
        (early,) = world.submit(Ask(GPUS, nodes=2, user="ann", requeues_itself_in_s=0.0))
        late = Ask(GPUS, user="ann", checkpoint="USR1@30")
        one = Course(world, late, replace(WHOLE_CLUSTER, user="ben"))
        one.until(lambda: account(world, early).preemptions == 1)
        one.until(lambda: account(world, one.victim).preemptions == 1)
        assert world.jobs()[early].state is JobState.PENDING
        one.ends_well()
        assert account(world, early).preemptions == 1


def test_a_controller_that_was_restarted_meanwhile_counts_it(one: Course) -> None:
    one.until(one.asked)
    one.world.advance(SAVES_IN_S + 1.0)
    one.world.restart()
    one.cycle()
    assert account(one.world, one.victim).preemptions == 1
    one.ends_well()


def test_one_that_left_while_no_controller_ran_counts_for_a_cancelled_preemptor() -> None:
    with course(victim=replace(ITSELF, requeues_itself_in_s=GRACE_S - 1.0)) as one:
        one.until(one.asked)
        one.world.cancel(one.preemptor)
        one.cycle()
        one.world.advance(10 * GRACE_S)
        one.world.restart()
        one.cycle()
        assert account(one.world, one.victim).preemptions == 1


def test_a_requeue_by_its_user_before_the_signal_is_none(one: Course) -> None:
    one.world.requeue(one.victim)
    one.until(lambda: one.runs(one.preemptor))
    assert account(one.world, one.victim).preemptions == 0
    assert memory.preempted_runs(one.world.cycles) == []


def test_a_victim_whose_node_fails_after_its_signal_is_none() -> None:
    with course(victim=replace(ITSELF, requeues_itself_in_s=GRACE_S - 1.0)) as one:
        one.until(one.asked)
        one.world.fail(NODES[0])
        one.cycle()
        assert account(one.world, one.victim).preemptions == 0


def test_one_that_leaves_for_its_idle_gpus_counts_towards_three_in_a_row() -> None:
    with closing(World(LEAVE)) as world:
        one = Idle(world, replace(WHOLE_NODE, requeues_itself_in_s=SAVES_IN_S))
        one.cycle()
        one.until(lambda: account(world, one.idle).idle_requeues == 1)
        assert world.slurm.requeued == []
        assert [cause for _, cause in memory.preempted_runs(world.cycles)] == [Cause.IDLE_GPUS]
