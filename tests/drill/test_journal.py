"""How the lines of watchers are turned into observations."""

from __future__ import annotations

import json
import signal

from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.drill.journal import RunJournal
from slurm_tiresias.drill.observed import Disposition, Save
from slurm_tiresias.job.record import SAVING, Record, encode

TERM_MASK = f"{1 << (signal.SIGTERM - 1):016x}"
NO_MASK = f"{0:016x}"


class Watcher:
    """Feeds a journal like a watcher on n1 would."""

    def __init__(self) -> None:
        self.journal = RunJournal(0)
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


def test_a_handler_that_resets_itself_counts_as_one() -> None:
    watcher = Watcher()
    watcher.process(1.0, caught=TERM_MASK)
    watcher.process(5.01)
    watcher.term(5.02)
    watcher.say(5.5, "gone", pid=5, ticks=300)
    (process,) = watcher.journal.run().processes
    assert process.on(signal.SIGTERM) is Disposition.HANDLER
    assert process.cpu_s == 3.0 and process.gone_s == 105.5


def test_questions_of_the_job_library_are_no_processes_of_the_training() -> None:
    watcher = Watcher()
    watcher.process(1.0, caught=TERM_MASK)
    watcher.process(1.1, pid=6, parent=5)
    watcher.process(1.2, pid=6, parent=5, command="squeue --noheader --jobs=17 --format=%e")
    watcher.process(1.2, pid=7, parent=5, command="/usr/bin/squeue --noheader --all --jobs=17 -o x")
    watcher.say(1.3, "gone", pid=6, ticks=1)
    assert [one.pid for one in watcher.journal.run().processes] == [5]


def test_a_signal_in_sigwait_counts_as_blocked() -> None:
    """The kernel shows the signal as not blocked during sigtimedwait."""
    watcher = Watcher()
    watcher.process(1.0, SigBlk=TERM_MASK)
    watcher.process(2.0)
    assert watcher.journal.run().processes[0].on(signal.SIGTERM) is Disposition.BLOCKED


def test_a_process_about_to_fork_counts_as_blocking_no_signal() -> None:
    watcher = Watcher()
    watcher.process(1.0, SigBlk="fffffffe7ffbfeff")
    assert watcher.journal.run().processes[0].on(signal.SIGTERM) is Disposition.DEFAULT


def test_records_show_steps_saves_and_the_resumed_step() -> None:
    watcher = Watcher()
    base = Record(12, 100, 101.0, 10, 100.5, 1.0, resumed_step=10)
    saving = Record(13, 100, 102.0, 10, 100.5, 1.0, resumed_step=10, state=SAVING)
    saved = Record(13, 100, 103.0, 10, 100.5, 1.0, 13, 102.5, 10)
    for record in (base, saving, saved):
        watcher.say(record.at_s - 100, "record", text=encode(record).decode())
    run = watcher.journal.run()
    assert (run.resumed_step, run.last_step) == (10, 13)
    assert run.saves == (Save(13, 102.0, 102.5),)


def test_output_shows_the_same_as_records() -> None:
    watcher = Watcher()
    watcher.lines("train: from step 12 of 600", "step 13 loss 0.5", "saved at step 13 (SIGTERM)")
    run = watcher.journal.run()
    assert (run.resumed_step, run.last_step, run.resume_is_guess) == (12, 13, False)
    assert [save.step for save in run.saves] == [13]


def test_without_a_report_a_run_resumed_before_its_first_step() -> None:
    watcher = Watcher()
    watcher.lines("epoch 3 step 41: 0.2", "step 42: 0.1")
    run = watcher.journal.run()
    assert (run.resumed_step, run.last_step, run.resume_is_guess) == (40, 42, True)


def test_output_lines_of_slurm_are_ignored() -> None:
    watcher = Watcher()
    watcher.lines("slurmstepd-n2: error: *** STEP 97.0 ON n2 CANCELLED DUE TO JOB REQUEUE ***")
    assert watcher.journal.run().last_step is None


def test_a_killed_watcher_shows_that_the_job_was_killed() -> None:
    watcher = Watcher()
    watcher.process(1.0)
    watcher.term(2.0)
    watcher.journal.over(110.0)
    run = watcher.journal.run()
    assert run.killed and run.processes[0].gone_s == 110.0


def test_files_show_trackers_logs_and_saves() -> None:
    watcher = Watcher()
    for path in (
        "/w/wandb/offline-run-20260101_101010-abc123/run.wandb",
        f"/w/mlruns/0/{'0f' * 16}/meta.yaml",
        "/w/runs/today/events.out.tfevents.17.n1",
        "/w/train.log",
        "/w/checkpoints/25/commit_success.txt",
    ):
        watcher.say(1.0, "file", path=path, again=False, grows=False)
    watcher.say(1.2, "file", path="/w/train.log", again=False, grows=True)
    watcher.say(1.0, "opened", path="/w/model.pt", pid=5, progress=False)
    watcher.say(1.5, "closed", path="/w/model.pt", there=True)
    run = watcher.journal.run()
    assert {name for name, _ in run.trackers} == {"wandb", "mlflow", "tensorboard"}
    assert run.logs == {"/w/train.log"}
    assert run.saves == (Save(None, 101.0, 101.5),)


@given(st.text() | st.dictionaries(st.text(), st.integers() | st.text()).map(json.dumps))
def test_no_output_line_breaks_the_journal(line: str) -> None:
    journal = RunJournal(0)
    journal.add(line, 1.0)
    journal.run()


def report(watcher: Watcher, at_s: float, **more: object) -> None:
    record = Record(5, 10, 100.0 + at_s, 0, 100.0, 1.0, **more)  # type: ignore[arg-type]
    watcher.say(at_s, "record", text=encode(record).decode().strip())


def test_only_a_save_that_answers_the_signal_ends_the_grace() -> None:
    watcher = Watcher()
    report(watcher, 1.0, listens=True, answered_s=100.5)
    watcher.journal.signalled(signal.SIGURG, 110.0, asked=True)
    report(watcher, 10.5, listens=True, answered_s=100.5, saved_s=110.4)
    assert not watcher.journal.has_answered
    report(watcher, 11.0, listens=True, answered_s=110.1, saved_s=110.9)
    assert watcher.journal.has_answered
    assert watcher.journal.run().answered_s == 111.0


def test_without_a_record_there_is_no_answer() -> None:
    watcher = Watcher()
    watcher.journal.signalled(signal.SIGUSR1, 110.0)
    assert watcher.journal.progress is None
    assert not watcher.journal.has_answered


def test_a_save_after_the_requeue_does_not_count_as_the_answer() -> None:
    watcher = Watcher()
    watcher.journal.signalled(signal.SIGUSR1, 110.0)
    watcher.journal.requeued(120.0)
    report(watcher, 21.0, listens=True, answered_s=110.1)
    assert watcher.journal.run().answered_s is None
