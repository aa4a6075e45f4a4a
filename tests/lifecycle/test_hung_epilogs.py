"""Preemptors whose nodes do not become free, mostly because an epilog hangs there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from unittest import mock

import pytest

from scripts.testbed.lifecycle import memory
from scripts.testbed.lifecycle.world import GPUS, MAX_GRACE_S, NODES, START_BOUND_S, Ask, World
from slurm_tiresias.core.lifecycle.nomination import IN_USE_BOUNDS
from slurm_tiresias.model import JobState
from slurm_tiresias.slurm.protocol import Limit
from tests.lifecycle.test_regressions import STEP_S, Course, course

GIVES_UP_IN_S = MAX_GRACE_S + IN_USE_BOUNDS * START_BOUND_S
NODE = Ask(GPUS, user="ann")


class HungEpilog(Course):
    """A job runs on each node. One was requeued for another job, and its epilog hangs."""

    def __init__(self, world: World) -> None:
        self.others = [key for _ in NODES[1:] for key in world.submit(NODE)]
        super().__init__(world, NODE)
        for node in NODES:
            world.hang(node, True)
        self.until(lambda: self.requeues_in_all() == 1)
        self.hangs_since_s = world.now_s

    def requeues_in_all(self) -> int:
        return len(self.world.slurm.requeued)

    def hung_for_s(self) -> float:
        return self.world.now_s - self.hangs_since_s

    def waits_for(self, seconds: float) -> None:
        self.until(lambda: self.hung_for_s() >= seconds)

    def runners(self) -> list[str]:
        (completing,) = (
            job.key for job in self.world.jobs().values() if job.state is JobState.COMPLETING
        )
        return [key for key in (self.victim, *self.others) if key != completing]


@pytest.fixture
def hung() -> Iterator[HungEpilog]:
    with closing(World()) as world:
        yield HungEpilog(world)


def test_the_preemptor_starts_on_another_node_that_becomes_idle(hung: HungEpilog) -> None:
    leaves = hung.runners()[0]
    (node,) = hung.world.jobs()[leaves].allocation
    hung.world.hang(node, False)
    hung.world.finish(leaves)
    hung.until(lambda: hung.runs(hung.preemptor))
    assert hung.hung_for_s() <= GIVES_UP_IN_S + 2 * START_BOUND_S
    assert list(hung.world.jobs()[hung.preemptor].allocation) == [node]
    assert hung.requeues_in_all() == 1


def test_until_then_it_waits_for_the_node_of_its_victim(hung: HungEpilog) -> None:
    hung.waits_for(GIVES_UP_IN_S - 4 * STEP_S)
    assert not memory.backed_off_since(hung.world.cycles, hung.preemptor, hung.hangs_since_s)
    for node in NODES:
        hung.world.hang(node, False)
    hung.until(lambda: hung.runs(hung.preemptor))
    assert hung.requeues_in_all() == 1
    hung.world.settle()


def test_then_it_costs_no_further_victim_and_starts_after_the_epilog(hung: HungEpilog) -> None:
    hung.until(lambda: not memory.nominations(hung.world.cycles))
    assert hung.hung_for_s() >= GIVES_UP_IN_S - START_BOUND_S
    hung.waits_for(hung.hung_for_s() + GIVES_UP_IN_S)
    for node in NODES:
        hung.world.hang(node, False)
    hung.until(lambda: hung.runs(hung.preemptor))
    assert hung.requeues_in_all() == 1
    hung.world.settle()


def test_victims_do_not_stay_signalled_while_other_jobs_use_up_a_limit_of_their_preemptor() -> None:
    used_up = [Limit("licence solver", 0, 1, 1)]
    with course() as one, mock.patch.object(one.world.slurm, "limits") as limits:
        limits.side_effect = lambda _specs: {}
        one.until(one.asked)
        since_s = one.world.now_s
        limits.side_effect = lambda specs: {spec.key: used_up for spec in specs}
        one.until(lambda: not memory.is_leaving(one.world.cycles, one.victim))
        assert one.world.now_s - since_s <= GIVES_UP_IN_S
        assert one.requeues() == 0 and one.runs(one.victim)
        limits.side_effect = lambda _specs: {}
        one.ends_well()
