"""What the runs of a job teach, cycle by cycle, and how little a false report gains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_tiresias.config import parse
from slurm_tiresias.controller.feed import Feed
from slurm_tiresias.core.features.claims import SPEAKS_AGAIN_WITHIN_S
from slurm_tiresias.core.features.drilled import counts_as_drilled
from slurm_tiresias.core.features.lost_work import NO_NET_PROGRESS, LostWork
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.lifecycle.preemption import GraceOver, Planned, PreemptorTried
from slurm_tiresias.job.record import Record
from slurm_tiresias.model import NO_PAST_LOSSES, JobStatus, ProgramCosts
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.progress.node import FOLDER
from slurm_tiresias.store.ledger import FILE_NAME, Ledger
from tests.controller.fed import fed
from tests.controller.test_job_store import pending, running
from tests.controller.test_progress import START_S, Site

CONFIG = parse({})
WAITS_S = 10.0


CostsOf = Callable[[str, str], ProgramCosts | None]


def unmeasured(_user: str, _name: str) -> ProgramCosts | None:
    """Preemption costs if no program's preemptions were measured."""
    return None


class Life:
    """Job 7, which is preempted repeatedly, and what is learned about it."""

    def __init__(self, folder: Path, costs_of: CostsOf = unmeasured) -> None:
        (folder / FOLDER).mkdir()
        self.ledger = Ledger(folder / FILE_NAME)
        self.site = Site(folder, self.ledger)
        self._costs_of = costs_of
        self.begin()
        self.restarts = 0
        self.began_s = START_S
        self.redone_s = 0.0

    def begin(self) -> None:
        """Begin with what the ledger knows."""
        self._feed = Feed(
            self.site.job_store, CONFIG, progress=self.site.tracker, costs_of=self._costs_of
        )
        self._lost_work = LostWork()

    @property
    def job(self) -> Job:
        return self._feed.jobs["7"]

    def look_at(self, status: JobStatus) -> None:
        """Let the feature follow the job, and record what it says."""
        fed(self._feed, self.site.seen(status))
        self._lost_work.follow(self.job, self.site.now_s)
        assert list(self._lost_work.tick(self.site.now_s)) == []
        self.site.job_store.record(self._lost_work.take_news(), self.site.now_s)

    def cycle(self, step: int | None = None, first_step: int = 0, **changes: object) -> bool:
        """Run a cycle ten seconds later, with a report if ``step`` is given. Return whether the run
        is protected because it redoes lost work."""
        self.site.now_s += 10.0
        if step is not None:
            now_s = self.site.now_s
            said = Record(step, None, now_s, first_step, self.began_s)
            self.site.told = {RunId(7, self.restarts, "n1"): replace(said, **changes)}  # type: ignore[arg-type]
        job = running(
            self.began_s, self.site.now_s - self.began_s, raw_id=7, restarts=self.restarts
        )
        self.site.cycle(job)
        self.look_at(job)
        self.site.job_store.commit()
        until_s = self.job.past_losses.redoing_until_s
        is_protected = until_s is not None and until_s > self.site.now_s
        self.redone_s += 10.0 if is_protected else 0.0
        return is_protected

    def preempt(self) -> None:
        store, now_s = self.site.job_store, self.site.now_s
        for event in (Planned("8"), PreemptorTried(now_s), GraceOver(now_s, allow_requeue=False)):
            store.lifecycles.preemption_event("7", event)
        self.restarts += 1
        self.site.now_s += WAITS_S
        waiting = pending(raw_id=7, restarts=self.restarts, submit_s=now_s)
        self.site.told = {}
        self.site.cycle(waiting)
        self.look_at(waiting)
        self.began_s = self.site.now_s

    def events(self) -> Sequence[str]:
        found = self.ledger.events.of_kind(NO_NET_PROGRESS, 0.0)
        return [event.text for event in found]


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


def test_a_run_is_protected_until_it_passes_the_furthest_step_of_earlier_ones(life: Life) -> None:
    assert not any(life.cycle(step) for step in (10, 20, 30, 40))
    life.preempt()
    assert [life.cycle(step) for step in (0, 20, 40, 41, 50)] == [True, True, True, False, False]
    life.preempt()
    # If the last run came no further, the step of the one before it counts.
    assert [life.cycle(step) for step in (45, 50, 51)] == [True, True, False]


def test_a_run_that_lost_no_work_is_not_protected_for_long(life: Life) -> None:
    assert not any(life.cycle(step) for step in (10, 20, 30, 40))
    life.preempt()
    assert [life.cycle(step, 40) for step in (40, 50)] == [True, False]


def test_a_run_that_never_catches_up_is_protected_for_twice_the_lost_time(life: Life) -> None:
    for step in (10, 20, 30, 40):
        life.cycle(step)
    life.preempt()
    assert [life.cycle(number) for number in range(9)] == 7 * [True] + 2 * [False]


def test_a_run_without_reports_is_protected_only_while_it_starts(life: Life) -> None:
    for step in range(100):
        life.cycle(step)
    life.preempt()
    protected = [life.cycle() for _ in range(100)]
    assert sum(protected) * 10.0 == SPEAKS_AGAIN_WITHIN_S


def test_a_stalled_run_is_not_protected(life: Life) -> None:
    for step in range(100):
        life.cycle(step)
    life.preempt()
    protected = [life.cycle(5) for _ in range(60)]
    assert protected[0]
    assert not protected[-1]


def test_two_runs_that_saved_nothing_are_recorded_once(life: Life) -> None:
    for run in range(4):
        for step in (10, 20, 30):
            life.cycle(step)
        assert life.job.past_losses.stuck_runs == (run if run > 1 else 0)
        life.preempt()
    assert [text.partition(",")[0] for text in life.events()] == [
        "its last 2 runs saved nothing",
        "its last 3 runs saved nothing",
    ]


def test_a_restarted_controller_does_not_record_it_again(life: Life) -> None:
    for _ in range(3):
        for step in (10, 20, 30):
            life.cycle(step)
        if life.restarts < 2:
            life.preempt()
    life.site.begin()
    life.begin()
    life.cycle(30)
    assert life.job.past_losses.stuck_runs == 2
    assert len(life.events()) == 1


def test_a_save_beyond_all_starting_steps_ends_the_alarm(life: Life) -> None:
    for _ in range(3):
        for step in (10, 20, 30):
            life.cycle(step)
        if life.restarts < 2:
            life.preempt()
    life.cycle(40, saved_step=40, saved_s=life.site.now_s)
    assert life.job.past_losses == NO_PAST_LOSSES


def test_a_job_that_saves_nothing_is_protected_as_if_it_had_not_passed_a_drill(life: Life) -> None:
    life.cycle(10)
    for run in range(3):
        for step in (10, 20, 30):
            life.cycle(step)
        life.job.drilled = True
        assert counts_as_drilled(life.job) == (run < 2)
        life.preempt()


def test_a_program_that_loses_all_its_work_counts_from_the_first_run_on(tmp_path: Path) -> None:
    costs = ProgramCosts(10.0, 300.0, measured=3, lost_all_in_a_row=3)
    life = Life(tmp_path, lambda _user, _name: costs)
    life.cycle()
    assert life.job.past_losses.program_lost == 3


@settings(max_examples=15, deadline=None)
@given(runs=st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_nothing_is_learned_about_a_job_without_reports(runs: list[int]) -> None:
    with TemporaryDirectory() as folder:
        life = Life(Path(folder))
        for cycles in runs:
            for _ in range(cycles):
                life.cycle()
                assert life.job.past_losses == NO_PAST_LOSSES
            life.preempt()
            assert life.job.past_losses == NO_PAST_LOSSES


reports = st.none() | st.tuples(st.integers(0, 50), st.integers(0, 50)).map(
    lambda pair: (max(pair), min(pair))
)


@settings(max_examples=60, deadline=None)
@given(
    runs=st.lists(
        st.tuples(st.lists(reports, min_size=1, max_size=12), st.booleans()), min_size=1, max_size=8
    )
)
def test_false_reports_protect_a_job_at_most_twice_as_long_as_losing_all_work(
    runs: list[tuple[list[tuple[int, int] | None], bool]],
) -> None:
    """A job that loses all its work at each preemption must, in each run, redo the work of all
    earlier runs; it needs that time, and is protected for it."""
    with TemporaryDirectory() as folder:
        life = Life(Path(folder))
        honest_s = 0.0
        new_work_s = 0.0
        for said, waits in runs:
            honest_s += new_work_s
            before_s, began_s = life.redone_s, life.site.now_s
            for step, first in (one or (None, 0) for one in said):
                life.cycle(step, first)
            # It reports the same until its protection ends, or it is preempted before.
            while waits and life.cycle(said[-1][0] if said[-1] else None):
                pass
            new_work_s += life.site.now_s - began_s - (life.redone_s - before_s)
            life.preempt()
            assert life.redone_s <= 2 * honest_s
