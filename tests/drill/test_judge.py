"""The verdict of the drill on observations."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.tools.docs.pages import page
from slurm_tiresias.drill.counters import Point
from slurm_tiresias.drill.judge import (
    REMEDIES,
    FailureCause,
    TrialOutcome,
    Verdict,
    judge,
    judge_all,
    trainer,
)
from slurm_tiresias.drill.observed import (
    Disposition,
    Drill,
    DrillRun,
    Process,
    Save,
    Survivor,
    Trial,
    TrialKind,
)
from tests.drill.pictures import (
    DEFAULT,
    HANDLER,
    IGNORED,
    KILL_WAIT_S,
    START_S,
    TOLD_S,
    after,
    process,
    run,
    starting,
    trial,
)

ALL_CODES = {code for codes in REMEDIES.values() for code in codes}
UNDER_WAY = (Save(10, TOLD_S + 0.1, None),)
PARENT = process(1, command="python3 launch.py", cpu_s=0.2, gone_after_s=0.5)
TASK = process(2, parent=1)

BROKEN: dict[str, Trial] = {
    "no-handler": trial(run(process(1, DEFAULT, gone_after_s=0.0)), after(0)),
    "handler-in-parent-only": trial(
        run(PARENT, process(2, DEFAULT, parent=1, gone_after_s=0.0)), after(0)
    ),
    "not-reached": trial(
        run(
            process(1, DEFAULT, command="bash job.sh", cpu_s=0.1, gone_after_s=0.0),
            process(2, parent=1, gone_after_s=30.0),
            reaches_all=False,
        ),
        after(0),
    ),
    "ignored": trial(run(process(1, IGNORED, gone_after_s=30.0)), after(0)),
    "workers-killed": trial(
        run(process(1), process(2, DEFAULT, parent=1, gone_after_s=0.1)), after(0)
    ),
    "launcher-killed": trial(
        run(
            process(1, command="torchrun train.py", cpu_s=3.0, gone_after_s=20.4),
            *(process(pid, parent=1, gone_after_s=20.0) for pid in (2, 3)),
        ),
        after(0),
    ),
    "save-too-long": trial(run(process(1, gone_after_s=30.0), saves=UNDER_WAY), after(0)),
    "stayed": trial(run(process(1, gone_after_s=30.0)), after(0)),
    "save-torn": trial(run(saves=UNDER_WAY, again_s=TOLD_S + 0.2), after(0), TrialKind.SAVE),
    "not-saved": trial(run(), after(0)),
    "output-pipe": trial(
        run(process(1), process(2, DEFAULT, command="tee -a log", gone_after_s=0.1)), after(0)
    ),
    "ended-by-signal": trial(
        run(process(1, DEFAULT), signal=signal.SIGUSR1, signal_s=TOLD_S, ended="FAILED"), after(0)
    ),
    "ended-too-soon": trial(
        run(saved=10, signal=signal.SIGUSR1, signal_s=TOLD_S, ended="COMPLETED"), after()
    ),
    "resumed-from-nothing": trial(run(saved=10), after(0)),
    "resumed-earlier": trial(run(saved=10), after(4)),
    "other-node": trial(run(saved=10), after(0, nodes=("n2",))),
    "overwritten": trial(
        run(saves=(Save(10, None, TOLD_S + 0.1), Save(4, None, TOLD_S + 0.2))), after(4)
    ),
    "deleted-first": trial(
        run(process(1, gone_after_s=30.0), saves=UNDER_WAY, deleted="/w/model"), after(0)
    ),
    "steps-skipped": trial(run(saved=10), after(50)),
    "did-not-come-back": trial(run(saved=10), after(None, ended="FAILED", first_step=None)),
    "output-emptied": trial(run(saved=10), after(emptied="/w/output")),
    "new-log": trial(
        run(saved=10, logs=frozenset({"/w/train-17.log"})),
        after(logs=frozenset({"/w/train-18.log"})),
    ),
    "new-tracker-run": trial(
        run(saved=10, trackers=frozenset({("wandb", "abc")})),
        after(trackers=frozenset({("wandb", "xyz")})),
    ),
    "survivor": trial(run(saved=10), after(), survivors=(Survivor(0, "n1", 7, "sleep 600"),)),
}
"""One observation for each kind of problem."""


def cause_of(one: Trial) -> FailureCause:
    cause = judge(one, KILL_WAIT_S).cause
    assert cause is not None
    return cause


def code_of(verdict: Verdict) -> str:
    return verdict.cause.code if verdict.cause else ""


def test_every_kind_of_problem_has_a_test_case() -> None:
    assert set(BROKEN) == ALL_CODES


@pytest.mark.parametrize("code", sorted(ALL_CODES))
def test_each_problem_has_its_cause_and_a_remedy(code: str) -> None:
    verdict = judge(BROKEN[code], KILL_WAIT_S)
    cause = cause_of(BROKEN[code])
    assert code_of(verdict) == code
    assert verdict.outcome is TrialOutcome.FAILED
    assert cause.what.endswith(".") and cause.change.endswith(".")


def test_a_job_that_saves_and_resumes_passes() -> None:
    verdict = judge(trial(run(saved=10), after()), KILL_WAIT_S)
    assert verdict.outcome is TrialOutcome.PASSED and verdict.saved
    assert verdict.save_s == pytest.approx(0.2) and verdict.steps_redone == 0
    assert verdict.first_step_s == pytest.approx(1.0)


def test_an_unobserved_save_is_inferred_from_the_resumed_step() -> None:
    assert judge(trial(run(), after(10)), KILL_WAIT_S).outcome is TrialOutcome.PASSED


@pytest.mark.parametrize("ended_s", [TOLD_S - 0.05, TOLD_S + 0.05])
def test_a_save_begun_before_the_signal_hides_no_missing_handler(ended_s: float) -> None:
    lucky = run(process(1, DEFAULT, gone_after_s=0.0), saves=(Save(10, TOLD_S - 0.2, ended_s),))
    verdict = judge(trial(lucky, after(10)), KILL_WAIT_S)
    assert code_of(verdict) == "no-handler"


def test_a_program_that_waits_for_the_signal_saves_without_a_handler() -> None:
    waits = run(process(1, DEFAULT, gone_after_s=0.05), saves=(Save(10, None, TOLD_S + 0.02),))
    assert judge(trial(waits, after(10)), KILL_WAIT_S).outcome is TrialOutcome.PASSED


def test_without_a_step_after_the_next_start_the_verdict_is_unknown() -> None:
    for said in (None, 10):
        silent = replace(after(None), resumed_step=said, claimed_step=said)
        verdict = judge(trial(run(saved=10), silent), KILL_WAIT_S)
        assert verdict.outcome is TrialOutcome.UNKNOWN and "let it report" in verdict.why_unknown


def test_a_program_that_handles_the_signal_and_shows_nothing_is_unknown() -> None:
    verdict = judge(trial(starting(), after(None)), KILL_WAIT_S)
    assert (
        verdict.outcome is TrialOutcome.UNKNOWN and "no step was seen before" in verdict.why_unknown
    )


def test_a_start_without_a_progress_file_is_unknown() -> None:
    silent = after(None, has_progress_file=False)
    verdict = judge(trial(run(saved=10), silent), KILL_WAIT_S)
    assert verdict.outcome is TrialOutcome.UNKNOWN and "no progress file" in verdict.why_unknown


def test_a_save_without_a_handler_after_each_step_loses_nothing() -> None:
    saves = tuple(Save(step, None, START_S + step) for step in range(1, 11))
    dies = run(process(1, DEFAULT, gone_after_s=0.0), saves=saves)
    assert judge(trial(dies, after(10)), KILL_WAIT_S).outcome is TrialOutcome.PASSED


def test_sigkill_fails_a_trial_in_which_no_step_was_lost() -> None:
    saved = run(process(1, gone_after_s=30.0), saved=10)
    cause = cause_of(trial(saved, after(10)))
    assert cause.code == "stayed" and "after its save" in cause.what


def test_a_process_that_survived_sigkill_is_a_survivor_only() -> None:
    daemon = process(7, gone_after_s=30.0, parent=1, command="sleep 600")
    one = trial(
        run(process(1), daemon, saved=10), after(), survivors=(Survivor(0, "n1", 7, "sleep 600"),)
    )
    assert cause_of(one).code == "survivor"


def test_a_rank_that_dies_is_named_when_the_others_wait_for_it() -> None:
    waits, dies = process(1, gone_after_s=30.0), process(2, DEFAULT, gone_after_s=0.0)
    cause = cause_of(trial(run(waits, dies), after(0)))
    assert cause.code == "no-handler" and "pid 2" in cause.what


def test_a_run_that_has_just_started_may_have_a_handler_that_was_not_seen() -> None:
    hurried = run(process(1, DEFAULT, gone_after_s=0.1), number=1, resumed_step=10, first_step=11)
    twice = Trial(
        TrialKind.TWICE, (run(saved=10), replace(hurried, last_step=12)), after(12, number=2)
    )
    assert judge(twice, KILL_WAIT_S).outcome is TrialOutcome.PASSED


def test_a_save_of_an_older_step_has_lost_the_others() -> None:
    cause = cause_of(trial(run(saved=5), after(5)))
    assert cause.code == "not-saved" and "the last that it had saved" in cause.what


@given(
    st.integers(1, 20),
    st.none() | st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from(TrialKind),
    st.sampled_from((HANDLER, DEFAULT, IGNORED)),
    st.booleans(),
)
def test_no_trial_passes_in_which_steps_were_lost_or_skipped(
    done: int, saved: int | None, resumed: int, kind: TrialKind, does: Disposition, again: bool
) -> None:
    before = run(
        process(1, does), saved=saved, last_step=done, again_s=TOLD_S + 0.15 if again else None
    )
    verdict = judge(trial(before, after(resumed), kind), KILL_WAIT_S)
    if verdict.outcome in (TrialOutcome.PASSED, TrialOutcome.NOT_TESTED):
        assert done <= resumed + 1 <= max(done, saved or 0) + 1
    if resumed + 1 < done:
        assert verdict.outcome is TrialOutcome.FAILED


def test_an_old_checkpoint_of_another_node_is_blamed_on_the_node() -> None:
    verdict = judge(trial(run(saved=10), after(50, nodes=("n2",))), KILL_WAIT_S)
    assert code_of(verdict) == "other-node"


def test_a_start_that_names_the_saved_step_does_not_blame_the_node() -> None:
    said = after(4, nodes=("n2",), claimed=(Point("said", 10),))
    assert cause_of(trial(run(saved=10), said)).code == "resumed-earlier"


def test_steps_that_were_skipped_unseen_are_unknown() -> None:
    verdict = judge(trial(run(), after(50)), KILL_WAIT_S)
    assert verdict.outcome is TrialOutcome.UNKNOWN and "from step 50" in verdict.why_unknown


@pytest.mark.parametrize(
    ("claimed", "outcome"),
    [(14, TrialOutcome.PASSED), (None, TrialOutcome.UNKNOWN), (10, TrialOutcome.FAILED)],
)
def test_steps_that_are_seen_now_and_then_need_a_numbered_save_and_start(
    claimed: int | None, outcome: TrialOutcome
) -> None:
    seldom = run(saved=14, every=10)
    then = after(10, first_step=20, every=10, claimed_step=claimed)
    assert judge(trial(seldom, then), KILL_WAIT_S).outcome is outcome


def test_epochs_alone_need_a_numbered_save() -> None:
    for saved, outcome in ((10, TrialOutcome.PASSED), (None, TrialOutcome.UNKNOWN)):
        one = trial(run(saved=saved), after(10))
        assert judge(one, KILL_WAIT_S, unit="epoch").outcome is outcome


def test_a_trial_that_missed_its_moment_has_not_tested_it() -> None:
    for kind in (TrialKind.START_UP, TrialKind.SAVE):
        verdict = judge(trial(run(saved=10), after(10), kind), KILL_WAIT_S)
        assert verdict.outcome is TrialOutcome.NOT_TESTED and verdict.why_unknown


@pytest.mark.parametrize("code", ["resumed-from-nothing", "steps-skipped"])
def test_a_job_that_goes_wrong_on_each_node_does_not_blame_nodes(code: str) -> None:
    stayed = BROKEN[code]
    assert stayed.after is not None
    moved = replace(stayed, after=replace(stayed.after, nodes=("n2",)))
    verdicts = judge_all(Drill("17", KILL_WAIT_S, "", 0.0, (moved, stayed)))
    assert [code_of(verdict) for verdict in verdicts] == [code] * 2


def test_a_job_that_has_gone_on_at_its_first_start_on_a_node_does_not_blame_nodes() -> None:
    moved = trial(run(saved=10), after(10, nodes=("n2",)))
    second = run(number=1, saved=20, resumed_step=10, first_step=11, last_step=20, nodes=("n2",))
    lost = trial(second, after(0, number=2, nodes=("n1",)), before=moved.runs)
    verdicts = judge_all(Drill("17", KILL_WAIT_S, "", 0.0, (moved, lost)))
    assert code_of(verdicts[1]) == "resumed-from-nothing"


def test_an_old_checkpoint_of_a_node_that_is_used_again_does_not_clear_the_nodes() -> None:
    lost = trial(run(saved=10), after(0, nodes=("n2",)))
    second = run(number=1, saved=10, nodes=("n2",))
    lucky = trial(second, after(10, number=2), before=lost.runs)
    verdicts = judge_all(Drill("17", KILL_WAIT_S, "", 0.0, (lost, lucky)))
    assert code_of(verdicts[0]) == "other-node"


@pytest.mark.parametrize(
    "then", [after(0, number=2), after(None, number=2, ended="FAILED", first_step=None)]
)
def test_the_first_signal_can_tear_a_save_too(then: DrillRun) -> None:
    begun = Save(20, TOLD_S - 0.5, None)
    torn = run(number=1, resumed_step=10, first_step=11, last_step=20, saves=(begun,))
    verdict = judge(trial(torn, then, before=(run(saved=10),)), KILL_WAIT_S)
    assert code_of(verdict) == "save-torn"


def test_a_save_that_the_signal_cut_off_beside_the_old_checkpoint_is_not_torn() -> None:
    cut = run(number=1, last_step=20, saves=(Save(20, TOLD_S - 0.5, None),))
    verdict = judge(trial(cut, after(10, number=2), before=(run(saved=10),)), KILL_WAIT_S)
    assert code_of(verdict) == "not-saved"


def test_of_two_losses_in_a_row_the_larger_counts() -> None:
    hurried = run(process(1, DEFAULT, gone_after_s=0.1), number=1, last_step=2)
    verdict = judge(Trial(TrialKind.TWICE, (run(), hurried), after(0, number=2)), KILL_WAIT_S)
    assert code_of(verdict) == "not-saved"
    assert verdict.steps_redone == 10


def test_steps_skipped_at_the_first_of_two_starts_are_not_forgotten() -> None:
    second = run(number=1, saved=60, resumed_step=50, first_step=51, last_step=60)
    verdict = judge(
        Trial(TrialKind.TWICE, (run(saved=10), second), after(60, number=2)), KILL_WAIT_S
    )
    assert code_of(verdict) == "steps-skipped"


def test_a_run_that_saved_before_it_showed_a_step_is_matched_with_the_next() -> None:
    first = run(saved=14, every=10)
    second = starting(number=1, saved=16, every=10)
    then = after(10, number=2, first_step=20, every=10, claimed_step=16)
    assert (
        judge(Trial(TrialKind.TWICE, (first, second), then), KILL_WAIT_S).outcome
        is TrialOutcome.PASSED
    )


def test_a_run_that_saved_has_not_died_of_the_signal() -> None:
    """Its handler was not seen in time."""
    ended = run(
        process(1, DEFAULT), saved=10, signal=signal.SIGUSR1, signal_s=TOLD_S, ended="COMPLETED"
    )
    cause = cause_of(trial(ended, after()))
    assert cause.code == "ended-too-soon"


def test_a_blocked_signal_that_is_never_taken_is_named() -> None:
    blocks = run(process(1, Disposition.BLOCKED, gone_after_s=30.0))
    cause = cause_of(trial(blocks, after(0)))
    assert cause.code == "stayed"
    assert "blocked" in cause.what and "tiresias-job run" in cause.change


def test_the_task_that_stays_is_named_and_not_the_srun_that_waits_for_it() -> None:
    srun = process(1, command="srun python3 train.py", gone_after_s=30.0, cpu_s=9.0)
    stays = process(2, IGNORED, gone_after_s=30.0, cpu_s=0.1)
    done = run(srun, process(3), stays, saved=10)
    cause = cause_of(trial(done, after(10)))
    assert cause.code == "ignored" and "pid 2" in cause.what


@pytest.mark.parametrize("later", [0, 4])
def test_a_save_over_the_newer_checkpoint_is_named(later: int) -> None:
    """By a forked worker with the handler of its parent, or by a start that had loaded nothing."""
    newer, older = (Save(10, None, TOLD_S + 0.1), Save(later, None, TOLD_S + 0.2))
    by_worker = trial(run(saves=(newer, older)), after(later))
    in_start_up = starting(number=1, saves=(older,))
    by_start = Trial(TrialKind.TWICE, (run(saves=(newer,)), in_start_up), after(later, number=2))
    for one in (by_worker, by_start):
        cause = cause_of(one)
        assert cause.code == "overwritten"
        assert f"saved step 10, and then step {later}" in cause.what


def test_a_shell_that_counts_trains_and_not_the_sleep_below_it() -> None:
    shell = process(1, DEFAULT, command="bash count.sh", cpu_s=0.0)
    assert trainer(run(shell, process(2, DEFAULT, parent=1, command="sleep 1", cpu_s=0.0))) == shell


def test_reports_show_a_single_skipped_step() -> None:
    begun = after(11, first_step=11, claimed_step=11, counts_done=True)
    verdict = judge(trial(run(saved=10, counts_done=True), begun), KILL_WAIT_S)
    assert code_of(verdict) == "steps-skipped"


def test_a_trial_that_could_not_be_carried_out_is_unknown() -> None:
    verdict = judge(Trial(TrialKind.STEP, (), trouble="the job ended by itself"), KILL_WAIT_S)
    assert verdict.outcome is TrialOutcome.UNKNOWN
    assert verdict.why_unknown == "the job ended by itself"


def test_a_program_that_dies_in_its_start_up_has_lost_nothing() -> None:
    dies = starting(process(1, DEFAULT))
    assert (
        judge(trial(dies, after(0), TrialKind.START_UP), KILL_WAIT_S).outcome is TrialOutcome.PASSED
    )


def test_a_start_up_that_is_killed_must_not_cost_the_checkpoint() -> None:
    twice = Trial(TrialKind.TWICE, (run(saved=10), starting(number=1)), after(0, number=2))
    verdict = judge(twice, KILL_WAIT_S)
    assert code_of(verdict) == "resumed-from-nothing"
    assert verdict.steps_redone == 10


def test_losses_of_one_trial_do_not_count_against_the_next() -> None:
    """The first lost the checkpoint of step 10; the second kept that of step 4."""
    second = run(number=1, saved=4, last_step=4)
    then = Trial(TrialKind.STEP, (second,), after(4, number=2), (run(saved=10),))
    assert judge(then, KILL_WAIT_S).outcome is TrialOutcome.PASSED


def test_torchrun_is_recognized_by_its_thirty_seconds() -> None:
    one = BROKEN["launcher-killed"].runs[0]
    later = tuple(replace(each, gone_s=(each.gone_s or 0.0) + 10.0) for each in one.processes)
    verdict = judge(trial(replace(one, processes=later), after(0)), 60.0)
    assert verdict.cause and "torchrun waits 30 s" in verdict.cause.what


def test_the_process_that_reports_is_the_one_that_trains() -> None:
    busy, reporting = process(1, cpu_s=90.0), process(2, parent=1, cpu_s=0.1, reports=True)
    assert trainer(run(busy, reporting)) == reporting


def test_the_innermost_busy_program_trains_not_its_forks_or_helpers() -> None:
    helper = process(3, parent=2, command="wandb-core", cpu_s=0.1)
    copy = process(4, parent=2, cpu_s=9.0)
    assert trainer(run(PARENT, TASK, helper, copy)) == TASK


def test_a_log_that_is_still_written_is_not_a_new_one() -> None:
    logs = frozenset({"/w/rank-0.log", "/w/rank-1.log"})
    one = run(saved=10, logs=frozenset({"/w/rank-0.log"}))
    assert judge(trial(one, after(logs=logs)), KILL_WAIT_S).outcome is TrialOutcome.PASSED


def test_a_continued_tracker_run_is_not_a_new_one() -> None:
    both = frozenset({("wandb", "abc"), ("wandb", "sweep")})
    one = run(saved=10, trackers=frozenset({("wandb", "abc")}))
    assert judge(trial(one, after(trackers=both)), KILL_WAIT_S).outcome is TrialOutcome.PASSED


def test_problems_with_files_are_reported_once() -> None:
    one = BROKEN["new-log"]
    verdicts = judge_all(Drill("17", KILL_WAIT_S, "", 0.0, (one, one)))
    assert [code_of(verdict) for verdict in verdicts] == ["new-log", ""]


def test_tasks_of_srun_get_a_different_remedy_for_ignoring_a_signal() -> None:
    srun = process(1, HANDLER, command="srun python3 train.py", cpu_s=0.1)
    ended = DrillRun(
        0,
        processes=(srun, process(2, DEFAULT)),
        started_s=START_S,
        signal=signal.SIGUSR1,
        signal_s=TOLD_S,
        ended="FAILED",
    )
    assert "srun bash -c" in cause_of(trial(ended, after(0))).change


def asked(*processes: Process, term_s: float | None, **more: Any) -> DrillRun:
    """A run that was asked to save, and got SIGTERM at ``term_s``."""
    signals = {"signal": signal.SIGURG, "signal_s": TOLD_S, "asked": True, "term_s": term_s}
    return run(*processes, **{**signals, **more})


def test_the_verdict_shows_the_result_of_the_save_request() -> None:
    times = {"answered_s": TOLD_S + 0.5, "requeued_s": TOLD_S + 1}
    verdict = judge(trial(asked(term_s=TOLD_S + 1.2, saved=10, **times), after()), KILL_WAIT_S)
    assert verdict.outcome is TrialOutcome.PASSED
    assert (verdict.asked, verdict.answered, verdict.requeued_s) == (True, True, 1.0)
    assert verdict.save_s == pytest.approx(0.2)


def test_a_program_dies_of_sigterm_and_not_of_the_request_to_save() -> None:
    dead = process(1, DEFAULT, gone_after_s=60.0)
    cause = cause_of(trial(asked(dead, term_s=TOLD_S + 60.0), after(0)))
    assert cause.code == "no-handler" and "SIGTERM" in cause.what


def test_a_job_that_ends_when_it_is_only_asked_to_save_ended_too_soon() -> None:
    ended = asked(term_s=None, saved=10, ended="COMPLETED")
    cause = cause_of(trial(ended, after()))
    assert cause.code == "ended-too-soon" and "SIGURG" in cause.what


def test_a_job_that_did_all_of_its_steps_needs_a_longer_rehearsal() -> None:
    ended = asked(term_s=None, saved=10, ended="COMPLETED", finished=True)
    came_back = DrillRun(1, started_s=START_S, ended="COMPLETED", exit_code="0:0")
    cause = cause_of(trial(ended, came_back))
    assert cause.code == "ended-too-soon" and "more steps" in cause.change


@pytest.mark.parametrize("target", REMEDIES)
def test_causes_name_headings_that_their_page_has(target: str) -> None:
    name, _, heading = target.partition("#")
    assert heading in page(name).anchors()
