"""Jobs at the bound on their slowdown, cycle by cycle, and after a restart of the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

import pytest

from slurm_tiresias.controller.drilled import DrilledPrograms
from slurm_tiresias.controller.past import LedgersPast
from slurm_tiresias.core.features import max_slowdown
from slurm_tiresias.core.features.max_slowdown import BoundNow, MaxSlowdown
from slurm_tiresias.model import JobState
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import WHOLE_NODE, Managed, Tables, merged

pytestmark = pytest.mark.usefixtures("short_runs")

SETTINGS: Tables = {
    "policy": {"thresholds_gpu_s": [20.0], "max_slowdown": 2.0},
    "preemption": {"min_run_s": 0.0, "grace_s": 0.0},
    "controller": {"interval_s": 0.5},
}


class Starved(Managed):
    """A cluster full of jobs that have run, and of new ones that come before them without end."""

    def __init__(self, ledger: Ledger, bound: float, tables: Tables = MappingProxyType({})) -> None:
        """``tables`` are further settings."""
        super().__init__(ledger, merged(SETTINGS, tables, {"policy": {"max_slowdown": bound}}))
        self.wall = self.fill()
        self.short: list[str] = []

    def go_on(self, cycles: int, until: Callable[[], bool] = lambda: False) -> None:
        """Run so many cycles, or fewer if the condition holds before."""
        for _ in range(cycles):
            if until():
                return
            self.short = [key for key in self.short if self.seen(key).state is not None]
            for key in self.short:
                if self.tier(key) == 1:
                    self.cancel(key)
            waiting = sum(self.seen(key).state is JobState.PENDING for key in self.short)
            self.short += [self.submit(WHOLE_NODE) for _ in range(4 - waiting)]
            self.cycle()

    def bound(self, key: str) -> BoundNow:
        assert self.cycles.features.slowdown is not None
        found = self.cycles.features.slowdown.of(key)
        assert found is not None
        return found

    def says(self) -> Iterator[str]:
        """Yield what the feature says of all jobs."""
        assert self.cycles.features.slowdown is not None
        for job in self.last.snapshot.jobs:
            shown = self.cycles.features.slowdown.explain(job, None, self.last.seen.at_s)
            yield from shown.says if shown else ()

    def attained_gpu_s(self) -> float:
        wall = set(self.wall)
        return sum(job.attained_gpu_s for job in self.last.snapshot.jobs if job.job_id in wall)


def test_jobs_that_others_pass_without_end_run_once_they_are_at_their_bound(ledger: Ledger) -> None:
    managed = Starved(ledger, bound=2.0)
    managed.go_on(40)
    began_gpu_s = managed.attained_gpu_s()
    at_bound: set[str] = set()
    said: set[str] = set()
    for _ in range(200):
        if at_bound == set(managed.wall) and managed.attained_gpu_s() > began_gpu_s + 40.0:
            break
        managed.go_on(1)
        said |= {sentence.partition(":")[0] for sentence in managed.says()}
        at_bound |= {
            key
            for key in managed.wall
            if managed.seen(key).state is JobState.PENDING and managed.bound(key).standing.at_bound
        }
    assert at_bound == set(managed.wall)
    assert {"It is at its bound", "It is near its bound"} <= said
    assert managed.attained_gpu_s() > began_gpu_s + 40.0


def test_without_a_bound_they_do_not_run(ledger: Ledger) -> None:
    managed = Starved(ledger, bound=0.0)
    managed.go_on(40)
    began_gpu_s = managed.attained_gpu_s()
    managed.go_on(120)
    assert managed.attained_gpu_s() == began_gpu_s


def test_a_new_controller_reckons_the_same_fair_shares_from_the_ledger(ledger: Ledger) -> None:
    managed = Starved(ledger, bound=3.0)
    managed.go_on(30)
    last = managed.last
    now_s = last.snapshot.now_s
    past = LedgersPast(
        managed.config, last.snapshot, managed.cycles.job_store, DrilledPrograms(ledger)
    )
    anew = MaxSlowdown(managed.config, last.snapshot.nodes, past.earlier_jobs())
    anew.follow_policy(last.policy)
    for job in last.snapshot.jobs:
        anew.follow(job, now_s)
    waiting = [key for key in managed.wall if managed.seen(key).state is JobState.PENDING]
    assert waiting
    for key in waiting:
        before, after = managed.bound(key), anew.of(key)
        assert after is not None
        assert after.must_run_by_s == pytest.approx(before.must_run_by_s, abs=5.0)


def test_a_job_held_for_long_counts_anew(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_slowdown, "COUNTS_ANEW_AFTER_S", 10.0)
    managed = Starved(ledger, bound=3.0)
    managed.go_on(10)
    held, *_ = (k for k in managed.wall if managed.seen(k).state is JobState.PENDING)
    managed.hold(held)
    managed.go_on(40)
    managed.release(held)
    managed.go_on(2)
    assert managed.bound(held).must_run_by_s > managed.last.seen.at_s


def test_a_bound_that_cannot_be_kept_for_all_is_said(ledger: Ledger) -> None:
    managed = Managed(ledger, SETTINGS)
    for _ in range(16):
        managed.submit(WHOLE_NODE)
    slowdown = managed.cycles.features.slowdown
    assert slowdown is not None
    managed.wait_until(
        lambda: "policy.max_slowdown = 2 cannot be kept for all jobs now" in slowdown.warning,
        "it is said",
    )


@pytest.mark.parametrize("step_s", [86_400.0, -86_400.0])
def test_a_step_of_the_clock_moves_no_job_to_its_bound(ledger: Ledger, step_s: float) -> None:
    managed = Starved(ledger, bound=3.0)
    managed.go_on(20)

    def left() -> dict[str, tuple[float, bool, bool]]:
        now_s = managed.last.seen.at_s
        found = {key: managed.bound(key) for key in managed.wall}
        return {
            key: (round(one.must_run_by_s - now_s), one.standing.at_bound, one.standing.kept)
            for key, one in found.items()
        }

    before = left()
    managed.slurm.step_clock(step_s)
    managed.cycle()
    for key, (left_s, *standing) in left().items():
        was_left_s, *stood = before[key]
        assert abs(left_s - was_left_s) <= 3.0
        assert standing == stood
    jobs = {job.job_id: job for job in managed.last.snapshot.jobs}
    assert not any(jobs[key].slowdown.at_bound for key in managed.wall)
