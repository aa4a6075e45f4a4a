"""What a preemption of a running job would lose, from what is known about it and its program."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.core.features.at_stake import MOST_INTERVALS, work_at_stake
from slurm_tiresias.model import USUAL_STAKE, JobProgress, ProgramCosts, ProgressSource, WorkAtStake
from tests.known import known

START_S = 1000.0
COSTS = ProgramCosts(restart_s=30.0, unsaved_s=200.0)


def told(**facts: Any) -> JobProgress:
    """The progress of a run that has done 50 of 100 steps."""
    return JobProgress(
        0, ProgressSource.REPORTS, "running", 0, 50, 100, 1900.0, 1900.0, 60.0, **facts
    )


def test_without_saves_and_measurements_the_stake_is_unknown() -> None:
    assert work_at_stake(START_S, None, None) is None
    assert work_at_stake(START_S, told(), None) is None


def test_a_silent_job_loses_what_its_program_usually_loses_whenever_it_is_preempted() -> None:
    stake = known(work_at_stake(START_S, None, COSTS))
    assert {stake.lost_s(now_s) for now_s in (START_S, 2000.0, 1e6)} == {230.0}


def test_a_job_that_saves_loses_what_it_has_done_since() -> None:
    stake = work_at_stake(START_S, told(saved_s=1600.0, save_every_s=500.0), None)
    assert stake == WorkAtStake(1600.0, 1000.0, USUAL_STAKE.restart_s, 2100.0)
    assert stake.lost_s(1700.0) == 100.0 + USUAL_STAKE.restart_s


def test_after_its_first_save_a_job_is_expected_to_save_again_after_as_long() -> None:
    assert known(work_at_stake(START_S, told(saved_s=1600.0), None)).save_due_s == 2200.0


def test_a_job_that_has_saved_before_is_expected_to_save_as_often_in_a_later_run() -> None:
    stake = work_at_stake(START_S, told(), COSTS, saved_every_s=700.0)
    assert stake is not None and stake.save_due_s == 1700.0
    stake = work_at_stake(START_S, told(saved_s=3100.0), None, saved_every_s=700.0)
    assert stake is not None and stake.save_due_s == 3800.0


def test_a_job_that_has_not_saved_yet_is_expected_to_when_its_program_usually_does() -> None:
    costs = ProgramCosts(30.0, 200.0, save_every_s=700.0)
    assert work_at_stake(START_S, told(), costs) == WorkAtStake(START_S, 200.0, 30.0, 1700.0)


def test_preemptions_do_not_wait_for_a_program_that_saves_on_request() -> None:
    costs = ProgramCosts(30.0, 2.0, save_every_s=700.0, saved_when_asked=0.9)
    stake = work_at_stake(START_S, told(saved_s=1600.0, save_every_s=700.0), costs)
    assert stake == WorkAtStake(-math.inf, 2.0, 30.0)


def test_a_listening_program_is_expected_to_save_until_it_was_measured() -> None:
    telling = told(saved_s=1600.0, save_every_s=500.0, listens=True)
    for costs in (None, COSTS):
        stake = work_at_stake(START_S, telling, costs)
        assert stake is not None and (stake.most_unsaved_s, stake.save_due_s) == (0.0, None)
    measured = ProgramCosts(30.0, 200.0, measured=3)
    assert work_at_stake(START_S, telling, measured) == WorkAtStake(1600.0, 1000.0, 30.0, 2100.0)


@given(
    saved_s=st.one_of(st.none(), st.floats(-1e9, 1e12)),
    every_s=st.one_of(st.none(), st.floats(0, 1e12)),
    costs=st.sampled_from([None, COSTS]),
    now_s=st.floats(START_S, 1e8),
)
def test_false_reports_of_saves_change_unsaved_work_within_bounds(
    saved_s: float | None, every_s: float | None, costs: ProgramCosts | None, now_s: float
) -> None:
    progress = told(saved_s=None if saved_s is None else min(saved_s, now_s), save_every_s=every_s)
    stake = work_at_stake(START_S, progress, costs) or USUAL_STAKE
    usual_s = USUAL_STAKE.most_unsaved_s if costs is None else costs.unsaved_s
    most_s = max(usual_s, MOST_INTERVALS * (every_s or now_s - START_S))
    assert (
        stake.lost_s(now_s) - stake.restart_s <= min(most_s, max(usual_s, now_s - START_S)) + 1e-6
    )
