"""The cost of a preemption, from the job's reports before and after it.

Pictures: one character is ten seconds of a run of one step every ten seconds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.core.features.preemption_cost import (
    LeftRun,
    leaving_after_save,
    leaving_of,
    leaving_without_a_step,
    restart_s_of,
    resumed_step_of,
)
from slurm_tiresias.model import Estimate, JobProgress, ProgressSource

STEP_S = 10.0
START_S = 1000.0
RUN = LeftRun(START_S, asked_s=1300.0, gone_s=1310.0)
"""It was signalled after 300 s, and its last process was gone 10 s later."""


def told(**changed: object) -> JobProgress:
    """A run that loaded for 20 s, resumed from step 100, and had done 27 steps when signalled."""
    usual = JobProgress(
        restarts=0,
        source=ProgressSource.REPORTS,
        state="running",
        first_step=100,
        step=127,
        total=1000,
        reported_s=1290.0,
        advanced_s=1290.0,
        quiet_after_s=120.0,
        resumed_step=100,
        per_step=Estimate(STEP_S, STEP_S, STEP_S),
        first_step_s=1030.0,
        first_s=1020.0,
    )
    return replace(usual, **changed)  # type: ignore[arg-type]


def test_a_save_on_request_costs_the_time_to_save_and_to_exit() -> None:
    """Signalled at 1300, it finished a step at 1302, saved from then to 1306, and was gone at
    1310."""
    run = told(step=128, saved_step=128, asked_s=1300.1, saving_s=1302.0, saved_s=1306.0)
    lost = leaving_of(RUN, run, resumed_step=128)
    assert (lost.save_s, lost.leave_s, lost.again_s) == (4.0, 4.0, 0.0)
    assert lost.answered_s == pytest.approx(5.9)
    assert (lost.steps_again, lost.lost_all) == (0, False)


def test_without_a_save_on_request_the_work_since_the_last_save_is_lost() -> None:
    run = told(saved_step=110, saving_s=1120.0, saved_s=1123.0)
    lost = leaving_of(RUN, run, resumed_step=110)
    assert (lost.save_s, lost.leave_s, lost.again_s) == (0.0, 10.0, 180.0)
    assert (lost.answered_s, lost.steps_again, lost.lost_all) == (None, 17, False)


def test_an_incomplete_save_does_not_count() -> None:
    """The checkpoint that it saved on request could not be read: it resumed from the one before."""
    run = told(saved_step=127, asked_s=1300.0, saving_s=1300.0, saved_s=1304.0)
    lost = leaving_of(RUN, run, resumed_step=120)
    assert lost.answered_s == 4.0
    assert (lost.save_s, lost.leave_s) == (0.0, 10.0)
    assert lost.again_s == pytest.approx(300 - 20 - 20 * STEP_S)
    assert lost.steps_again == 7


def test_a_job_that_resumes_from_nothing_loses_all_of_its_runs() -> None:
    """The loss is all of this run's work, plus the work that it had resumed from: 100 steps in
    earlier runs of 900 s."""
    run = replace(RUN, earlier_s=900.0)
    lost = leaving_of(run, told(), resumed_step=0)
    assert lost.again_s == pytest.approx(280.0 + 900.0 + 20.0), "never more than it ran in all"
    assert lost.lost_all and lost.steps_again == 127


def test_a_save_without_a_reported_beginning_counts_from_the_request() -> None:
    run = told(step=128, saved_step=128, saved_s=1306.0)
    lost = leaving_of(RUN, run, resumed_step=128)
    assert (lost.save_s, lost.leave_s, lost.answered_s) == (6.0, 4.0, 6.0)


def test_a_save_counts_from_the_request_that_it_answers() -> None:
    """A signal at 1300 and a requeue at 1309: the job received both, but had no time for another
    save."""
    run = told(step=128, saved_step=128, asked_s=1309.0, saving_s=1302.0, saved_s=1306.0)
    assert leaving_of(RUN, run, resumed_step=128).answered_s == 6.0


def test_slurms_whole_second_is_refined_by_reports_in_it() -> None:
    run = told(step=128, saved_step=128, saving_s=1302.0, saved_s=1310.7, reported_s=1310.7)
    lost = leaving_of(RUN, run, resumed_step=128)
    assert lost.save_s == pytest.approx(8.7) and lost.leave_s == 0.0


def test_the_time_to_exit_is_unknown_if_slurm_does_not_record_it() -> None:
    run = replace(RUN, gone_s=None)
    assert leaving_of(run, told(), resumed_step=120).leave_s is None
    assert leaving_without_a_step(run).leave_s is None


def test_a_run_without_a_step_loses_no_work() -> None:
    lost = leaving_without_a_step(RUN)
    assert (lost.again_s, lost.leave_s, lost.lost_all) == (0.0, 10.0, True)


@pytest.mark.parametrize(
    ("saved_s", "answered_s", "save_s", "leave_s", "again_s", "lost_all"),
    [
        (1250.0, None, 0.0, 10.0, 50.0, False),
        (1304.0, 4.0, 4.0, 6.0, 0.0, False),
        (1310.5, 10.5, 10.5, 0.0, 0.0, False),
        (1500.0, 10.0, 10.0, 0.0, 0.0, False),
        (900.0, None, 0.0, 10.0, 300.0, True),
    ],
    ids=["before", "when asked", "in the last second", "later, which cannot be", "no save"],
)
def test_a_job_that_reports_only_saves_loses_the_time_since_its_last_save(
    saved_s: float,
    answered_s: float | None,
    save_s: float,
    leave_s: float,
    again_s: float,
    lost_all: bool,
) -> None:
    lost = leaving_after_save(RUN, saved_s)
    assert (lost.answered_s, lost.save_s, lost.leave_s) == (answered_s, save_s, leave_s)
    assert (lost.again_s, lost.lost_all, lost.steps_again) == (again_s, lost_all, None)


def test_a_restart_lasts_to_the_first_new_step_less_a_usual_one() -> None:
    assert restart_s_of(told(), START_S, 500.0, STEP_S) == 20.0
    printed = told(source=ProgressSource.OUTPUT)
    assert restart_s_of(printed, START_S, 500.0, STEP_S) == 30.0
    assert restart_s_of(told(first_step_s=None), START_S, 500.0, STEP_S) is None


def test_without_a_resumed_step_the_first_reported_step_counts() -> None:
    assert resumed_step_of(told(resumed_step=None)) == 100
    assert resumed_step_of(told(resumed_step=90)) == 90


STEPS = st.integers(0, 10**15)
TIMES = st.floats(0, 1e11)


@given(
    st.builds(
        told,
        first_step=STEPS,
        step=STEPS,
        reported_s=TIMES,
        saved_step=st.none() | STEPS,
        saved_s=st.none() | TIMES,
        saving_s=st.none() | TIMES,
        asked_s=st.none() | TIMES,
        resumed_step=st.none() | STEPS,
        first_s=st.none() | TIMES,
        first_step_s=st.none() | TIMES,
        per_step=st.none() | st.builds(Estimate, TIMES, TIMES, TIMES),
    ),
    STEPS,
    st.floats(0, 1e6),
)
def test_a_false_report_changes_costs_only_within_slurms_times(
    run: JobProgress, resumed_step: int, earlier_s: float
) -> None:
    lost = leaving_of(replace(RUN, earlier_s=earlier_s), run, resumed_step)
    assert lost.leave_s is not None
    parts_s = (lost.save_s, lost.leave_s, lost.again_s)
    assert all(0 <= part_s < math.inf for part_s in parts_s)
    assert sum(parts_s) <= 312.0 + earlier_s
    restart_s = restart_s_of(run, START_S, 500.0, STEP_S)
    assert restart_s is None or 0 <= restart_s <= 500.0
