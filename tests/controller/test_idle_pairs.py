"""Several jobs that leave their GPUs idle, and wait for the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_tiresias.controller import bands
from slurm_tiresias.controller.lifecycles import IDLE_REQUEUED
from slurm_tiresias.model import JobState
from slurm_tiresias.settings.idle_gpus import LEAVE, RANK_LAST
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import WHOLE_NODE
from tests.controller.test_idle_gpus import AFTER_S, Site

LEAVE_AFTER_S = 4 * AFTER_S


class IdlePair(Site):
    """A job holds a node whose GPUs it does not use, and another one like it waits. All jobs are of
    one tier."""

    def __init__(self, ledger: Ledger, folder: Path, action: str) -> None:
        leave = {"action": action, "leave_after_s": LEAVE_AFTER_S if action == LEAVE else 0.0}
        super().__init__(ledger, folder, action, tables={"idle_gpus": leave})
        self.first = self.jobs[0]
        self.second = self.submit(WHOLE_NODE)
        self.jobs.append(self.second)
        self.busy |= {self.first: 0, self.second: 0}

    def go_on_until_preempted(self) -> None:
        while not self.events("preempted"):
            self.go_on(1)


@pytest.fixture(params=[RANK_LAST, LEAVE])
def pair(request: pytest.FixtureRequest, ledger: Ledger, tmp_path: Path) -> IdlePair:
    return IdlePair(ledger, tmp_path, request.param)


def test_one_preempts_the_other_once_and_never_again(pair: IdlePair) -> None:
    pair.go_on(20 * AFTER_S)
    assert pair.events("preempted") == [(pair.first, pair.second)]


def test_the_preempted_one_waits_behind_all_others_until_it_uses_a_gpu(pair: IdlePair) -> None:
    pair.go_on_until_preempted()
    later = pair.submit(WHOLE_NODE)
    pair.go_on(AFTER_S / 2)
    assert pair.last_ones() == [pair.first]
    assert pair.seen(pair.first).priority == bands.LOWEST["pinned"]
    assert pair.seen(later).priority > pair.seen(pair.first).priority
    for key in (later, pair.second):
        pair.cancel(key)
    pair.wait_for_state(pair.first, JobState.RUNNING)
    pair.go_on(1)
    assert pair.last_ones() == [pair.first]
    pair.busy[pair.first] = 1
    pair.go_on(1)
    assert pair.last_ones() == []


def test_a_restart_of_the_controller_keeps_it(pair: IdlePair) -> None:
    pair.go_on_until_preempted()
    pair.restart()
    pair.cycle()
    assert pair.last_ones() == [pair.first]


def test_a_busy_job_that_is_preempted_does_not_rank_last(pair: IdlePair) -> None:
    pair.busy[pair.first] = 4
    pair.requeue(pair.first)
    pair.go_on(2)
    assert pair.last_ones() == []


def test_idle_time_goes_on_in_the_run_after_a_preemption(ledger: Ledger, tmp_path: Path) -> None:
    pair = IdlePair(ledger, tmp_path, LEAVE)
    pair.go_on_until_preempted()
    pair.cancel(pair.second)
    pair.wait_for_state(pair.first, JobState.RUNNING)
    started_s = pair.last.seen.at_s
    while not pair.events(IDLE_REQUEUED):
        pair.go_on(1)
    assert pair.last.seen.at_s - started_s < LEAVE_AFTER_S - AFTER_S / 2


def test_after_a_requeue_for_idle_gpus_the_time_begins_anew(ledger: Ledger, tmp_path: Path) -> None:
    pair = IdlePair(ledger, tmp_path, LEAVE)
    pair.cancel(pair.second)
    while not pair.events(IDLE_REQUEUED):
        pair.go_on(1)
    pair.wait_for_state(pair.first, JobState.RUNNING)
    pair.go_on(LEAVE_AFTER_S - 2)
    assert len(pair.events(IDLE_REQUEUED)) == 1
