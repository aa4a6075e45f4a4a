"""Any sequence of reports of a run, since users' programs write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.job.record import MOST_STEPS, MOST_TIME_S, STATES, Record, decode, encode
from slurm_tiresias.model import ProgressSource
from slurm_tiresias.progress.reported_run import LEAST_QUIET_S, ReportedRun

STEPS = st.integers(0, MOST_STEPS)
TIMES = st.floats(0, MOST_TIME_S)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any record that a reader accepts."""
    first, step, total = sorted(draw(st.tuples(STEPS, STEPS, STEPS.map(lambda n: n + 1))))
    return Record(
        step=step,
        total=draw(st.sampled_from([None, min(total, MOST_STEPS)])),
        at_s=draw(TIMES),
        first_step=first,
        first_s=draw(TIMES),
        saved_step=draw(st.none() | STEPS),
        saved_s=draw(st.none() | TIMES),
        resumed_step=draw(st.none() | STEPS),
        state=draw(st.sampled_from(STATES)),
        new_step_s=draw(st.none() | TIMES),
        asked_s=draw(st.none() | TIMES),
        saving_s=draw(st.none() | TIMES),
        saves=draw(st.integers(0, 10**9)),
    )


def test_the_save_interval_is_averaged_since_the_first_reported_save() -> None:
    run = ReportedRun(restarts=0)

    def save_every_s(saves: int, saved_s: float) -> float | None:
        record = Record(1, 9, saved_s, 0, 0.0, 1, saved_s, saves=saves)
        run.take(ProgressSource.REPORTS, record, saved_s, saved_s)
        return run.progress.save_every_s

    assert save_every_s(0, 90.0) is None
    assert save_every_s(1, 100.0) is None
    assert save_every_s(2, 130.0) == 30.0
    assert save_every_s(6, 500.0) == 80.0, "those between count, too"
    assert save_every_s(1, 600.0) is None, "another program in the same run"


def test_before_two_saves_the_announced_save_interval_counts() -> None:
    run = ReportedRun(restarts=0)

    def save_every_s(saves: int, saved_s: float, says_s: float) -> float | None:
        record = Record(1, 9, saved_s, 0, 0.0, 1, saved_s, saves=saves, save_every_s=says_s)
        run.take(ProgressSource.REPORTS, record, saved_s, saved_s)
        return run.progress.save_every_s

    assert save_every_s(0, 90.0, 0.0) is None
    assert save_every_s(1, 100.0, 60.0) == 60.0
    assert save_every_s(2, 130.0, 60.0) == 30.0


def test_a_runs_times_follow_slurms_clock() -> None:
    """The node's clock is an hour behind; then Slurm's is set back by ten seconds."""
    record = Record(5, 9, 100.0, 0, 10.0, 4, 90.0, new_step_s=20.0, asked_s=85.0, saving_s=88.0)
    run = ReportedRun(restarts=0)
    run.take(ProgressSource.REPORTS, record, 3700.0, 0.0)
    run.clock_was_set(-10.0)
    told = run.progress
    assert (told.reported_s, told.saved_s, told.saving_s) == (3690.0, 3680.0, 3678.0)
    assert (told.first_s, told.first_step_s, told.asked_s) == (3600.0, 3610.0, 3675.0)


def test_the_longest_step_leaves_announced_phases_out() -> None:
    run = ReportedRun(restarts=0)

    def longest_step_s(step: int, at_s: float, busy_until_s: float | None = None) -> float:
        record = Record(step, 99, at_s, 0, 0.0, busy_until_s=busy_until_s)
        run.take(ProgressSource.REPORTS, record, at_s, at_s)
        return run.progress.longest_step_s

    assert longest_step_s(1, 50.0) == 0.0, "before the first step a program loads its data"
    assert longest_step_s(3, 60.0) == 5.0
    assert longest_step_s(4, 80.0) == 20.0
    assert longest_step_s(5, 90.0, busy_until_s=200.0) == 20.0
    assert longest_step_s(6, 205.0) == 20.0


@given(st.lists(st.tuples(records(), st.sampled_from(ProgressSource), TIMES), min_size=1))
def test_whatever_a_run_reports_its_progress_is_finite_and_not_in_the_future(
    reports: list[tuple[Record, ProgressSource, float]],
) -> None:
    run = ReportedRun(restarts=0)
    now_s = 0.0
    for record, source, later_s in reports:
        if record.total == 0:
            continue
        now_s += later_s
        run.take(source, decode(encode(record)), now_s, now_s)
        told = run.progress
        assert told.reported_s <= now_s
        assert told.advanced_s <= now_s
        stamps = (told.saved_s, told.saving_s, told.asked_s, told.first_step_s, told.first_s)
        assert all(at_s is None or at_s <= told.reported_s for at_s in stamps)
        assert told.save_every_s is None or 0 < told.save_every_s < math.inf
        remaining = told.remaining(told.step)
        if remaining is not None:
            assert 0 <= remaining.least_s <= remaining.likely_s <= remaining.most_s < math.inf


@pytest.mark.parametrize("by_s", [3 * 3600.0, -3600.0])
@pytest.mark.parametrize("source", ProgressSource)
def test_a_clock_set_during_a_run_leaves_the_time_left(source: ProgressSource, by_s: float) -> None:
    """One step a second of a thousand; the clock is set after 300 of them."""
    run = ReportedRun(restarts=0)
    for step in range(0, 600, 10):
        wall_s = 1e9 + step + (by_s if step >= 300 else 0.0)
        late_s = 3.0 + step % 7
        record = Record(step, 1000, wall_s, 0, 1e9)
        run.take(source, record, 1e9 + step + late_s, step + late_s)
        left = run.progress.remaining(step)
        assert left is None or left.likely_s == pytest.approx(1000 - step, rel=0.05)
        assert run.progress.quiet_after_s == LEAST_QUIET_S
