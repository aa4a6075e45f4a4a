"""How the lines of watchers are turned into observations."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.drill.counters import REPORTS, Point
from slurm_tiresias.drill.journal import RunJournal
from slurm_tiresias.drill.observed import Disposition, DrillRun, Save
from slurm_tiresias.drill.scale import in_steps
from slurm_tiresias.job.record import SAVING, Record, encode

TERM_MASK = f"{1 << (signal.SIGTERM - 1):016x}"
NO_MASK = f"{0:016x}"
FOLDER = "/w/.tiresias-drill-x"


class Watcher:
    """Feeds a journal like a watcher on n1 would."""

    def __init__(self) -> None:
        self.journal = RunJournal(0, "17", FOLDER)
        self.say(0.0, "up", job="17", hertz=100)

    def say(self, at_s: float, kind: str, **values: object) -> None:
        line = json.dumps({"kind": kind, "at_s": 100.0 + at_s, "node": "n1", **values})
        self.journal.add(line, 100.0 + at_s)

    def process(self, at_s: float, pid: int = 5, caught: str = NO_MASK, **more: object) -> None:
        facts: dict[str, object] = {"start": 1, "parent": 2, "group": pid}
        facts |= {"direct": True, "orphaned": False, "command": "python3 t.py"}
        masks = {"SigCgt": caught, "SigIgn": NO_MASK, "SigBlk": NO_MASK}
        self.say(at_s, "process", pid=pid, **{**facts, **masks, **more})

    def term(self, at_s: float) -> None:
        self.say(at_s, "signal", signal=15, got_s=100.0 + at_s, ticks={"5": 250})

    def lines(self, *texts: str) -> None:
        for index, text in enumerate(texts):
            self.say(1.0 + index, "line", text=text)


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


def test_a_handler_that_resets_itself_counts_as_one(watcher: Watcher) -> None:
    watcher.process(1.0, caught=TERM_MASK)
    watcher.process(5.01)
    watcher.term(5.02)
    watcher.say(5.5, "gone", pid=5, ticks=300)
    (process,) = watcher.journal.run().processes
    assert process.on(signal.SIGTERM) is Disposition.HANDLER
    assert process.cpu_s == 3.0 and process.gone_s == 105.5


def test_questions_of_the_job_library_are_no_processes_of_the_training(watcher: Watcher) -> None:
    watcher.process(1.0, caught=TERM_MASK)
    watcher.process(1.1, pid=6, parent=5)
    watcher.process(1.2, pid=6, parent=5, command="squeue --noheader --jobs=17 --format=%e")
    watcher.process(1.2, pid=7, parent=5, command="/usr/bin/squeue --noheader --all --jobs=17 -o x")
    watcher.say(1.3, "gone", pid=6, ticks=1)
    assert [one.pid for one in watcher.journal.run().processes] == [5]


def test_a_signal_in_sigwait_counts_as_blocked(watcher: Watcher) -> None:
    """The kernel shows the signal as not blocked during sigtimedwait."""
    watcher.process(1.0, SigBlk=TERM_MASK)
    watcher.process(2.0)
    assert watcher.journal.run().processes[0].on(signal.SIGTERM) is Disposition.BLOCKED


def test_a_process_about_to_fork_counts_as_blocking_no_signal(watcher: Watcher) -> None:
    watcher.process(1.0, SigBlk="fffffffe7ffbfeff")
    assert watcher.journal.run().processes[0].on(signal.SIGTERM) is Disposition.DEFAULT


def scaled(*runs: DrillRun) -> Sequence[DrillRun]:
    """The runs in steps of the counter that shows them best."""
    return in_steps(runs)[0]


def run_of(*texts: str) -> DrillRun:
    """The run that printed these lines."""
    watcher = Watcher()
    watcher.lines(*texts)
    return watcher.journal.run()


def test_records_show_steps_saves_and_the_resumed_step(watcher: Watcher) -> None:
    base = Record(12, 100, 101.0, 10, 100.5, resumed_step=10)
    saving = Record(13, 100, 102.0, 10, 100.5, resumed_step=10, state=SAVING)
    saved = Record(13, 100, 103.0, 10, 100.5, 13, 102.5, 10)
    for record in (base, saving, saved):
        watcher.say(record.at_s - 100, "record", text=encode(record).decode())
    (run,) = scaled(watcher.journal.run())
    assert (run.resumed_step, run.last_step, run.counts_done) == (10, 13, True)
    assert run.saves == (Save(13, 102.0, 102.5, Point(REPORTS, 13)),)


def test_output_shows_the_same_as_records() -> None:
    (run,) = scaled(
        run_of(
            "train: from step 12 of 600",
            "step 13 loss 0.5",
            "step 14 loss 0.5",
            "saved at step 14 (SIGTERM)",
        )
    )
    assert (run.resumed_step, run.claimed_step, run.last_step, run.every) == (12, 12, 14, 1)
    assert [save.step for save in run.saves] == [14]


def test_without_a_claim_a_run_resumed_before_its_first_step() -> None:
    (run,) = scaled(run_of("epoch 3 step 41: 0.2", "epoch 3 step 42: 0.1"))
    assert (run.resumed_step, run.claimed_step, run.last_step) == (40, None, 42)


def test_observed_steps_win_over_a_claim() -> None:
    (run,) = scaled(run_of("resumed at step 9", "step 1", "step 2"))
    assert (run.resumed_step, run.claimed_step, run.first_step) == (0, None, 1)


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        (("Epoch 3/90: loss 1", "Epoch 4/90: loss 1"), ("Epoch 5/90: loss 1",), (4, 5)),
        (
            ("Epoch [3/90], Step [9/10]", "Epoch [3/90], Step [10/10]"),
            ("Epoch [4/90], Step [1/10]",),
            (40, 41),
        ),
        (
            ("Epoch 3:  90%|##| 9/10 [00:01<00:00]", "Epoch 3: 100%|##| 10/10 [00:01<00:00]"),
            ("Epoch 4:   0%|  | 0/10 [00:00<?]", "Epoch 4:  10%|# | 1/10 [00:00<00:01]"),
            (40, 41),
        ),
        (
            (
                "Total optimization steps = 400",
                "Num Epochs = 20",
                " 11%|#| 44/400 [00:05<00:40]",
                " 11%|#| 45/400 [00:05<00:40]",
            ),
            (
                "Total optimization steps = 400",
                "  0%|   | 0/400 [00:00<?]",
                "Continuing training from global step 45",
                " 12%|#| 46/400 [00:00<00:40]",
            ),
            (45, 46),
        ),
        (
            ("batch: 32", "steps=400", '{"step": 1,024, "loss": 1}', '{"step": 1,025}'),
            ("batch: 32", "steps=400", '{"step": 1,026, "epoch": 2.0}'),
            (1025, 1026),
        ),
        (
            ("Epoch 1", "step 8", "step 9", "Epoch 2", "step 0", "step 1"),
            ("Epoch 2", "step 2"),
            (2 * 10 + 1, 2 * 10 + 2),
        ),
        (("val step 3/4", "step 7", "val step 4/4", "step 8"), ("step 9",), (8, 9)),
    ],
)
def test_each_way_of_counting_is_followed_from_run_to_run(
    before: tuple[str, ...], after: tuple[str, ...], steps: tuple[int, int]
) -> None:
    first, second = scaled(run_of(*before), run_of(*after))
    assert (first.last_step, second.first_step) == steps


@pytest.mark.parametrize(("saved", "resumed"), [(30, 20), (3, 3)])
def test_without_steps_what_the_job_says_of_its_saves_counts(saved: int, resumed: int) -> None:
    """A run that saves an earlier step than that at which it said to resume has not resumed."""
    first, second = scaled(
        run_of("train: from step 0 of 600", "train: saved at step 20 (SIGTERM)"),
        run_of("train: from step 20 of 600", f"train: saved at step {saved} (SIGTERM)"),
    )
    assert (first.last_step, second.first_step, second.every) == (20, resumed, None)


@pytest.mark.parametrize(
    "line", ["checkpoint 3 is being written", "step 3 will be saved", "step 3 was not saved"]
)
def test_a_save_that_is_not_done_is_not_counted_as_done(line: str) -> None:
    (run,) = scaled(run_of("step 1", "step 2", "step 3", line))
    assert not [save for save in run.saves if save.ended_s]


def test_lines_that_recur_at_each_step_are_steps_and_no_claims() -> None:
    _, run = scaled(run_of("starting step 0"), run_of(*(f"starting step {n}" for n in range(4, 8))))
    assert (run.claimed_step, run.first_step, run.last_step) == (None, 4, 7)


def test_a_start_that_is_named_before_lines_of_steps_is_a_claim() -> None:
    (run,) = scaled(run_of("resumed at step 4", *(f"starting step {n}" for n in range(4, 8))))
    assert (run.claimed_step, run.first_step, run.last_step) == (4, 4, 7)


def test_a_claim_that_a_save_disproves_is_no_step_of_the_run() -> None:
    (run,) = scaled(run_of("resumed at step 659", "saved step 63"))
    assert (run.claimed_step, run.first_step, run.last_step) == (None, 63, 63)


def test_a_run_that_shows_no_step_may_announce_the_step_that_it_saves() -> None:
    _, second = scaled(run_of("step 1", "step 2", "saved step 2"), run_of("saved step 0"))
    assert [save.step for save in second.saves] == [0]


def test_a_saved_batch_of_an_epoch_is_no_step_of_the_whole() -> None:
    (run,) = scaled(run_of("step 44", "step 45", "Saved checkpoint: epoch 1 batch 5", "step 46"))
    assert [save.step for save in run.saves] == [None]


def test_output_lines_of_slurm_are_ignored(watcher: Watcher) -> None:
    watcher.lines("slurmstepd-n2: error: *** STEP 97.0 ON n2 CANCELLED DUE TO JOB REQUEUE ***")
    assert not watcher.journal.run().counters


def test_a_killed_watcher_shows_that_the_job_was_killed(watcher: Watcher) -> None:
    watcher.process(1.0)
    watcher.term(2.0)
    watcher.journal.over(110.0)
    run = watcher.journal.run()
    assert run.processes[0].gone_s == 110.0


def test_files_show_trackers_and_logs_but_no_saves(watcher: Watcher) -> None:
    for path in (
        "/w/wandb/offline-run-20260101_101010-abc123/run.wandb",
        f"/w/mlruns/0/{'0f' * 16}/meta.yaml",
        "/w/runs/today/events.out.tfevents.17.n1",
        "/w/train.log",
        "/w/checkpoints/25/commit_success.txt",
    ):
        watcher.say(1.0, "file", path=path, grows=False)
    watcher.say(1.2, "file", path="/w/train.log", grows=True)
    watcher.say(1.0, "opened", path="/w/model.pt", pid=5, progress=False)
    watcher.say(1.5, "closed", path="/w/model.pt")
    run = watcher.journal.run()
    assert {name for name, _ in run.trackers} == {"wandb", "mlflow", "tensorboard"}
    assert run.logs == {"/w/train.log"}
    assert run.saves == ()


@given(st.text() | st.dictionaries(st.text(), st.integers() | st.text()).map(json.dumps))
def test_no_output_line_breaks_the_journal(line: str) -> None:
    journal = RunJournal(0)
    journal.add(line, 1.0)
    journal.run()


def report(watcher: Watcher, at_s: float, **more: object) -> None:
    record = Record(5, 10, 100.0 + at_s, 0, 100.0, **more)  # type: ignore[arg-type]
    watcher.say(at_s, "record", text=encode(record).decode().strip())


def test_only_a_save_that_answers_the_signal_ends_the_grace(watcher: Watcher) -> None:
    watcher.say(1.0, "progress-file", path="/run/tiresias/17.0.n1.progress")
    report(watcher, 1.0, listens=True, answered_s=100.5)
    watcher.journal.signalled(signal.SIGURG, 110.0, asked=True)
    report(watcher, 10.5, listens=True, answered_s=100.5, saved_s=110.4)
    assert not watcher.journal.has_answered
    report(watcher, 11.0, listens=True, answered_s=110.1, saved_s=110.9)
    assert watcher.journal.has_answered
    assert watcher.journal.run().answered_s == 111.0


def test_a_save_that_only_the_drill_sees_is_no_answer(watcher: Watcher) -> None:
    watcher.say(1.0, "progress-file", path=f"{FOLDER}/progress")
    watcher.journal.signalled(signal.SIGUSR1, 110.0)
    report(watcher, 11.0, listens=True, answered_s=110.1, saved_s=110.9)
    assert not watcher.journal.has_answered


def test_without_a_record_there_is_no_answer(watcher: Watcher) -> None:
    watcher.journal.signalled(signal.SIGUSR1, 110.0)
    assert watcher.journal.progress is None
    assert not watcher.journal.has_answered


def test_a_save_after_the_requeue_does_not_count_as_the_answer(watcher: Watcher) -> None:
    watcher.say(1.0, "progress-file", path="/run/tiresias/17.0.n1.progress")
    watcher.journal.signalled(signal.SIGUSR1, 110.0)
    watcher.journal.requeued(120.0)
    report(watcher, 21.0, listens=True, answered_s=110.1)
    assert watcher.journal.run().answered_s is None
