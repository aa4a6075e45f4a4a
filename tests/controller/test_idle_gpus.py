"""Jobs that do nothing with their GPUs, cycle by cycle, and after a restart of the controller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from slurm_tiresias.core.features.idle_gpus import GPUS_IDLE, LATE_AFTER_S, GpuIdleness, is_flagged
from slurm_tiresias.model import JobState, NodeUse, Protection, Reason
from slurm_tiresias.profiler.gpu_activity import SUFFIX, text_of
from slurm_tiresias.profiler.gpu_use_folder import FOLDER
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import WHOLE_NODE, Managed, Tables, merged
from tests.known import known

AFTER_S = 20.0
NODE_GPUS = 4


class Site(Managed):
    """Four nodes that each run one job in the one tier that there is, and tell what it does."""

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        action: str = "rank-last",
        min_run_s: float = 0.0,
        tables: Tables = MappingProxyType({}),
    ) -> None:
        self._collect = folder
        own: Tables = {
            "policy": {"thresholds_gpu_s": [1e9]},
            "preemption": {"min_run_s": min_run_s},
            "controller": {"interval_s": 0.5},
            "profiler": {"collect_dir": str(folder)},
            "idle_gpus": {"after_s": AFTER_S, "action": action} if action else {},
        }
        super().__init__(ledger, merged(own, tables))
        self.jobs = [self.submit(WHOLE_NODE) for _ in range(4)]
        for key in self.jobs:
            self.wait_for_state(key, JobState.RUNNING)
        self.busy: dict[str, int] = dict.fromkeys(self.jobs, NODE_GPUS)
        """How many GPUs each job uses."""
        self._idle_since_s: dict[str, float | None] = {}

    def tells(self, *, late_s: float = 0.0) -> None:
        """Have all nodes tell what their jobs do now, or did so long ago."""
        at_s = self.last.seen.at_s - late_s
        for key in self.jobs:
            job = self.seen(key)
            if job.state is not JobState.RUNNING:
                continue
            busy = self.busy[key]
            since_s = None if busy else self._idle_since_s.get(key) or at_s
            self._idle_since_s[key] = since_s
            [node] = job.allocation
            sampled_s = max(0.0, at_s - (job.start_s or at_s))
            use = NodeUse(at_s, busy, since_s, sampled_s, busy * sampled_s)
            path = self._collect / FOLDER / f"{node}{SUFFIX}"
            draft = path.with_suffix(".draft")
            draft.write_bytes(text_of({RunId(job.raw_id, job.restarts, node): use}, at_s))
            draft.rename(path)

    def go_on(self, seconds: float) -> None:
        for _ in range(round(2 * seconds)):
            self.tells()
            self.cycle()

    def idleness(self, key: str) -> GpuIdleness | None:
        assert self.cycles.features.idle_gpus is not None
        return self.cycles.features.idle_gpus.of(key)

    def last_ones(self) -> list[str]:
        """The jobs that are preempted before all others."""
        return [job.job_id for job in self.last.snapshot.jobs if job.ranks_last]


@pytest.fixture
def site(ledger: Ledger, tmp_path: Path) -> Site:
    return Site(ledger, tmp_path)


def test_in_a_tier_the_job_that_has_long_been_idle_makes_room_and_no_other(site: Site) -> None:
    idle, partly, *_ = site.jobs
    site.busy |= {idle: 0, partly: 1}
    waiting = site.submit(WHOLE_NODE)
    site.go_on(AFTER_S - 2)
    assert site.last_ones() == []
    site.wait_for_reason(waiting, Reason.NO_ROOM)
    site.go_on(8)
    assert site.events("preempted") == [(idle, waiting)]
    assert [key for key, _ in site.events(GPUS_IDLE)] == [idle]
    site.wait_for_state(waiting, JobState.RUNNING)
    another = site.submit(WHOLE_NODE)
    site.go_on(2 * AFTER_S)
    assert site.events("preempted") == [(idle, waiting)]
    found = site.idleness(partly)
    assert found is not None and (found.busy, found.idle_since_s) == (1, None)
    assert site.seen(another).state is JobState.PENDING


def test_once_it_is_busy_its_rank_returns_and_falls_only_after_as_long_again(site: Site) -> None:
    idle = site.jobs[0]
    changes: list[tuple[float, list[str]]] = []
    began_s = site.last.seen.at_s

    def go_on(seconds: float) -> None:
        for _ in range(round(2 * seconds)):
            site.go_on(0.5)
            if not changes or changes[-1][1] != site.last_ones():
                changes.append((site.last.seen.at_s - began_s, site.last_ones()))

    site.busy[idle] = 0
    go_on(AFTER_S + 5)
    for _ in range(10):  # a kernel every few seconds
        site.busy[idle] = 1
        go_on(1)
        site.busy[idle] = 0
        go_on(4)
    go_on(AFTER_S)
    assert [ranks for _, ranks in changes] == [[], [idle], [], [idle]]
    assert changes[1][0] == pytest.approx(AFTER_S, abs=2)
    assert changes[3][0] >= AFTER_S + 5 + 46 + AFTER_S - 2


def test_a_restart_neither_loses_nor_invents_it_and_it_is_noted_once(site: Site) -> None:
    idle = site.jobs[0]
    site.busy[idle] = 0
    site.go_on(AFTER_S + 5)
    before = site.idleness(idle)
    assert before is not None and site.last_ones() == [idle]
    site.restart()
    site.cycle()
    assert known(site.idleness(idle)).idle_since_s == before.idle_since_s
    assert site.last_ones() == [idle]
    site.go_on(3)
    assert [key for key, _ in site.events(GPUS_IDLE)] == [idle]


def test_late_samples_and_those_of_an_earlier_run_count_for_nothing(site: Site) -> None:
    idle = site.jobs[0]
    site.busy[idle] = 0
    site.go_on(AFTER_S + 5)
    assert site.last_ones() == [idle]
    site.tells(late_s=LATE_AFTER_S + 1)
    site.cycle()
    assert (site.last_ones(), site.idleness(idle)) == ([], None)
    site.go_on(1)
    assert site.last_ones() == [idle]
    waiting = site.submit(WHOLE_NODE)
    site.wait_for_state(waiting, JobState.RUNNING)
    site.cancel(waiting)
    site.wait_for_state(idle, JobState.RUNNING)
    site.cycle()
    # All files are as they were, and tell of the run before.
    assert (site.last_ones(), site.idleness(idle)) == ([], None)


def test_its_minimum_run_time_protects_it_all_the_same(ledger: Ledger, tmp_path: Path) -> None:
    site = Site(ledger, tmp_path, min_run_s=60.0)
    idle = site.jobs[0]
    site.busy[idle] = 0
    began_s = site.seen(idle).start_s
    waiting = site.submit(WHOLE_NODE)
    site.go_on(AFTER_S + 5)
    assert site.last_ones() == [idle]
    blocked = site.decision(waiting)
    assert blocked is not None and blocked.reason is Reason.PROTECTED
    assert blocked.blockers == ((idle, Protection.MIN_RUN),)
    assert began_s is not None
    while site.last.seen.at_s < began_s + 59:
        site.go_on(0.5)
    assert site.events("preempted") == []
    site.go_on(5)
    assert site.events("preempted") == [(idle, waiting)]


def test_a_job_that_slurm_may_not_requeue_is_flagged_and_stays(site: Site) -> None:
    site.cancel(site.jobs[0])
    stays = site.submit(replace(WHOLE_NODE, requeue=False))
    site.wait_for_state(stays, JobState.RUNNING)
    site.jobs[0] = stays
    site.busy = dict.fromkeys(site.jobs, NODE_GPUS) | {stays: 0}
    waiting = site.submit(WHOLE_NODE)
    site.go_on(2 * AFTER_S)
    assert is_flagged(known(site.idleness(stays)), site.config.idle_gpus, site.last.seen.at_s)
    assert site.last_ones() == []
    assert site.events("preempted") == []
    assert site.seen(waiting).state is JobState.PENDING


@pytest.mark.parametrize("action", ["", "flag"])
def test_without_the_setting_or_with_flag_only_nothing_is_preempted(
    ledger: Ledger, tmp_path: Path, action: str
) -> None:
    (tmp_path / FOLDER).mkdir()
    site = Site(ledger, tmp_path, action)
    site.busy = dict.fromkeys(site.jobs, 0)
    site.submit(WHOLE_NODE)
    site.go_on(2 * AFTER_S)
    assert site.events("preempted") == []
    noted = {key for key, _ in site.events(GPUS_IDLE)}
    assert noted == (set(site.jobs) if action else set())
    assert (site.idleness(site.jobs[0]) is None) is (not action)


def test_gpu_time_held_idle_is_kept_with_the_run_also_once_it_is_over(site: Site) -> None:
    idle, partly, busy, _ = site.jobs
    site.busy |= {idle: 0, partly: 1}
    site.go_on(10)
    for key in (idle, partly, busy):
        site.cancel(key)
    site.go_on(2)
    held = {key: site.ledger.runs.of(key)[0] for key in (idle, partly, busy)}
    most = {key: run.elapsed_s * run.gpus for key, run in held.items()}
    assert held[idle].idle_gpu_s == pytest.approx(most[idle], abs=3 * NODE_GPUS)
    assert held[partly].idle_gpu_s == pytest.approx(most[partly] * 0.75, abs=3 * NODE_GPUS)
    assert held[busy].idle_gpu_s == 0
    assert all(held[key].idle_gpu_s <= most[key] for key in held)
