"""A program's reports and requests to it, with a fake clock."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import DataObject, data, integers, lists, none, sampled_from

from scripts import ROOT
from scripts.testbed.patience import PATIENCE_S, wait_until
from slurm_tiresias.job.channel import FILE_VARIABLE
from slurm_tiresias.job.record import MOST_BUSY_MIN, RECORD_BYTES, Record, RecordError, decode
from slurm_tiresias.job.requests import FILE_VARIABLE as REQUEST_FILE
from slurm_tiresias.job.requests import SAVE_SIGNALS
from slurm_tiresias.job.session import LEFT, Session
from slurm_tiresias.job.time_limit import END_VARIABLE, JOB_VARIABLE, NEVER, ends_s


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The progress file as the prolog creates it."""
    path = tmp_path / "progress"
    path.write_bytes(bytes(RECORD_BYTES))
    return path


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, *SAVE_SIGNALS)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def in_a_job(file: Path, clock: Clock, **environment: str) -> Session:
    return Session({FILE_VARIABLE: str(file), **environment}, clock, clock)


def record_in(file: Path) -> Record:
    return decode(file.read_bytes())


@dataclass
class Program:
    """A program in a job: its session, the progress file, and the clock of both."""

    session: Session
    file: Path
    clock: Clock

    def record(self) -> Record:
        return record_in(self.file)


@pytest.fixture
def one(file: Path, clock: Clock) -> Program:
    return Program(in_a_job(file, clock), file, clock)


def has_no_record(file: Path) -> bool:
    try:
        record_in(file)
    except RecordError:
        return True
    return False


def test_reports_are_limited_to_one_per_second(one: Program) -> None:
    one.session.report(1, 100)
    one.session.report(2, 100)
    assert one.record().step == 1
    one.clock.now_s += 1.0
    one.session.report(3, 100)
    assert (one.record().step, one.record().total) == (3, 100)


def test_the_first_new_step_is_reported_at_once(one: Program) -> None:
    one.session.resumed(500)
    assert one.record().new_step_s is None
    one.clock.now_s += 0.25
    one.session.report(501, 1000)
    one.clock.now_s += 60.0
    one.session.report(502, 1000)
    record = one.record()
    assert (record.step, record.new_step_s) == (502, record.at_s - 60.0)


def test_a_save_is_reported_with_its_request_its_beginning_and_the_count(one: Program) -> None:
    one.session.leaving()
    one.session.report(7)
    one.session.saved(7)
    record = one.record()
    assert (record.saves, record.asked_s, record.saving_s) == (1, None, None)
    os.kill(os.getpid(), signal.SIGTERM)
    one.clock.now_s += 3.0
    one.session.saving()
    one.clock.now_s += 2.0
    one.session.saved(8)
    record = one.record()
    assert record.saves == 2 and record.asked_s is not None
    assert (record.saved_s, record.saving_s) == (record.asked_s + 5.0, record.asked_s + 3.0)


def test_the_last_report_is_sent_at_the_end(one: Program) -> None:
    one.session.report(1, 100)
    one.session.report(2, 100)
    one.session.flush()
    assert one.record().step == 2


def test_outside_of_a_job_everything_works_and_nothing_is_sent(clock: Clock) -> None:
    session = Session({}, clock, clock)
    session.report(1, 10)
    session.saving()
    session.saved(1)
    session.resumed(1)
    assert not session.leaving()
    assert not session.save_due()


@pytest.mark.parametrize(
    ("step", "total", "recorded"),
    [(5, 0, (5, None)), (5, -1, (5, None)), (11, 10, (11, None)), (5, 10**30, (5, None))],
)
def test_an_impossible_total_is_ignored_with_one_warning(
    one: Program,
    step: int,
    total: int,
    recorded: tuple[int, int | None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(3):
        one.session.report(step, total)
        one.clock.now_s += 2.0
    assert (one.record().step, one.record().total) == recorded
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("step", [-1, 10**30])
def test_an_impossible_step_is_not_reported(
    one: Program, step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    one.session.report(step, 10)
    assert has_no_record(one.file)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("wrong", [1.5, "7", None])
def test_a_fractional_step_raises_an_error(one: Program, wrong: Any) -> None:
    with pytest.raises(TypeError):
        one.session.report(wrong, 10)


def test_a_restart_of_steps_is_a_first_report(one: Program) -> None:
    one.session.report(100, 1000)
    one.clock.now_s += 10.0
    one.session.report(3, 1000)
    assert (one.record().step, one.record().first_step) == (3, 3)


def test_a_clock_set_back_does_not_stop_reports(file: Path, clock: Clock) -> None:
    wall = Clock()
    session = Session({FILE_VARIABLE: str(file)}, clock, wall)
    session.report(1, 10)
    clock.now_s += 2.0
    wall.now_s = 0.0
    session.report(2, 10)
    assert record_in(file).step == 2


@pytest.mark.parametrize("kind", ["missing", "link", "fifo", "folder", "short"])
def test_an_unexpected_progress_file_is_one_warning(
    kind: str, tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "progress"
    if kind == "link":
        (tmp_path / "other").write_bytes(bytes(RECORD_BYTES))
        path.symlink_to(tmp_path / "other")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "short":
        path.write_bytes(b"")
    session = in_a_job(path, clock)
    for step in range(5):
        session.report(step, 10)
        clock.now_s += 2.0
    assert capsys.readouterr().err.count("\n") == 1


def test_a_progress_file_that_becomes_unwritable_is_one_warning(
    one: Program, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one.session.report(1, 10)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    for step in range(2, 6):
        one.clock.now_s += 2.0
        one.session.report(step, 10)
    assert one.record().step == 1
    said = capsys.readouterr().err
    assert "No space left" in said and said.count("\n") == 1


@pytest.mark.parametrize(("total", "done"), [(0, 0), (5, 5), (5, 9)])
def test_a_loop_with_nothing_to_do_is_done(total: int, done: int, file: Path, clock: Clock) -> None:
    saves: list[int] = []
    assert list(in_a_job(file, clock).steps(total, saves.append, done)) == []
    assert not saves and record_in(file).state == "done"


def test_only_the_first_rank_reports(file: Path, clock: Clock) -> None:
    in_a_job(file, clock, SLURM_PROCID="1").report(5, 10)
    assert has_no_record(file)
    # torchrun starts its ranks in one task of Slurm.
    in_a_job(file, clock, SLURM_PROCID="0", RANK="1").report(5, 10)
    assert has_no_record(file)
    in_a_job(file, clock, SLURM_PROCID="1", RANK="0").report(5, 10)
    assert record_in(file).step == 5


def in_child(body: Callable[[], object]) -> None:
    """Run it in a forked process and wait for its end."""
    child = os.fork()
    if child == 0:
        try:
            body()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def test_of_two_programs_in_a_job_only_the_first_reports_and_the_second_is_warned(
    file: Path, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    first = in_a_job(file, clock)
    first.report(1, 10)
    in_child(lambda: in_a_job(file, clock).report(9, 10))
    assert record_in(file).step == 1
    assert "another process of this job already reports" in capfd.readouterr().err


def test_a_worker_that_reports_first_does_not_lock_its_parent_out(
    one: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    here, there = os.pipe(), os.pipe()
    worker = os.fork()
    if worker == 0:
        one.session.report(1, 10)
        os.write(here[1], b"1")
        os.read(there[0], 1)
        one.clock.now_s += 10.0
        one.session.report(2, 10)
        os._exit(0)
    os.read(here[0], 1)
    assert one.record().step == 1
    one.clock.now_s += 5.0
    one.session.report(7, 20)
    assert (one.record().step, one.record().total) == (7, 20)
    os.write(there[1], b"1")
    os.waitpid(worker, 0)
    assert one.record().step == 7
    assert "another process of this job already reports" in capfd.readouterr().err


def test_a_daemon_reports_once_its_parent_has_ended(file: Path, clock: Clock) -> None:
    def begins() -> None:
        session = in_a_job(file, clock)
        session.report(1, 10)
        parent = os.getpid()
        if os.fork() == 0:
            while os.getppid() == parent:
                time.sleep(0.001)
            clock.now_s += 5.0
            session.report(2, 10)
            os._exit(0)

    in_child(begins)
    wait_until(lambda: record_in(file).step == 2)


def test_a_child_of_the_program_reports_nothing(one: Program) -> None:
    one.session.report(1, 10)
    one.clock.now_s += 2.0
    in_child(lambda: one.session.report(7, 10))
    assert one.record().step == 1


def test_sigterm_asks_to_leave_and_sigusr1_to_save_once(one: Program) -> None:
    assert not one.session.save_due()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert one.session.save_due() and not one.session.leaving()
    one.session.saving()
    one.session.saved(5)
    assert not one.session.save_due()
    os.kill(os.getpid(), signal.SIGTERM)
    assert one.session.leaving() and one.session.save_due()


def test_a_request_during_a_save_asks_for_another_save(one: Program) -> None:
    one.session.save_due()
    os.kill(os.getpid(), signal.SIGUSR1)
    one.session.saving()
    os.kill(os.getpid(), signal.SIGUSR1)
    one.session.saved(5)
    assert one.session.save_due()


def test_saves_happen_at_the_given_interval(one: Program) -> None:
    one.clock.now_s += 299.0
    assert not one.session.save_due(every_min=5)
    one.clock.now_s += 1.0
    assert one.session.save_due(every_min=5)
    one.session.saved(5)
    assert not one.session.save_due(every_min=5)


def test_the_save_interval_is_reported_at_once(one: Program) -> None:
    one.session.saves_every(10)
    one.session.report(1, 9)
    assert one.record().save_every_s == 600.0
    one.session.save_due(every_min=20)
    one.session.flush()
    one.clock.now_s += 2.0
    one.session.report(2, 9)
    assert one.record().save_every_s == 1200.0
    one.session.save_due()
    assert one.record().save_every_s == 1200.0


def test_one_save_before_the_time_limit_starts_early_enough(file: Path, clock: Clock) -> None:
    session = in_a_job(file, clock, **{END_VARIABLE: "2000"})
    clock.now_s = 1500.0
    session.saving()
    clock.now_s = 1540.0
    session.saved(1)
    # A save takes 40 s, so the save before the time limit begins three times that before the end.
    clock.now_s = 1879.0
    assert not session.save_due()
    clock.now_s = 1880.0
    assert session.save_due()
    session.saved(2)
    assert not session.save_due()


def test_requests_of_tiresias_job_run_use_a_file(file: Path, tmp_path: Path, clock: Clock) -> None:
    asked = tmp_path / "requests"
    session = in_a_job(file, clock, **{REQUEST_FILE: str(asked)})
    assert not session.save_due()
    asked.write_text("save 1\nleave 0\n")
    assert not session.save_due(), "it looks four times a second"
    clock.now_s += 0.25
    assert session.save_due() and not session.leaving()
    session.saved(1)
    clock.now_s += 0.25
    assert not session.save_due()
    asked.write_text("save 1\nleave 1\n")
    clock.now_s += 0.25
    assert session.leaving()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"leave -1\n", b"leave nan\nsave 1e9\n"])
def test_a_corrupt_request_file_requests_nothing(
    content: bytes, file: Path, tmp_path: Path, clock: Clock
) -> None:
    asked = tmp_path / "requests"
    asked.write_bytes(content)
    session = in_a_job(file, clock, **{REQUEST_FILE: str(asked)})
    assert not session.leaving() and not session.save_due()


def test_a_loop_reports_steps_and_saves_at_last(one: Program) -> None:
    saves: list[int] = []
    done = []
    for step in one.session.steps(5, saves.append):
        done.append(step)
        one.clock.now_s += 1.0
    assert (done, saves) == ([0, 1, 2, 3, 4], [5])
    record = one.record()
    assert (record.step, record.saved_step, record.state) == (5, 5, "done")


def test_a_preempted_loop_saves_and_resumes(file: Path, tmp_path: Path, clock: Clock) -> None:
    saves: list[int] = []
    done = []
    with pytest.raises(SystemExit) as ended:
        for step in in_a_job(file, clock).steps(10, saves.append):
            done.append(step)
            if step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == LEFT == 143
    assert (done, saves) == ([0, 1, 2, 3], [4])
    assert record_in(file).state == "leaving"
    next_run = tmp_path / "next run"
    next_run.write_bytes(bytes(RECORD_BYTES))
    again = in_a_job(next_run, clock)
    assert list(again.steps(10, saves.append, done=saves[-1])) == [4, 5, 6, 7, 8, 9]
    assert record_in(next_run).resumed_step == 4


def test_processes_agree_before_they_save(file: Path, clock: Clock) -> None:
    """Another process got the request to leave in the second step; this one was not."""
    answers = iter([False, True, True])
    saves: list[int] = []
    session = in_a_job(file, clock)
    with pytest.raises(SystemExit):
        for _ in session.steps(10, saves.append, agree=lambda _mine: next(answers)):
            pass
    assert saves == [2]


def test_a_later_program_of_a_run_continues_the_last_report(file: Path, clock: Clock) -> None:
    """Like ``tiresias-job report``: each call is a separate program."""
    for step in (10, 20, 30):
        session = in_a_job(file, clock)
        session.report(step, 100)
        assert session._channel is not None
        session._channel.close()
        clock.now_s += 5.0
    record = record_in(file)
    assert (record.first_step, record.first_s) == (10, 1000.0)
    saver = in_a_job(file, clock)
    saver.saved(25)
    record = record_in(file)
    assert (record.step, record.total, record.saved_step) == (30, 100, 25)


@pytest.mark.parametrize(
    ("squeue", "end_s"),
    [
        ("echo 1795464000", 1795464000.0),
        ("echo N/A", NEVER),
        ("echo", NEVER),
        ("exit 1", NEVER),
        ("printf '\\377'", NEVER),
    ],
)
def test_without_an_end_time_squeue_is_asked(squeue: str, end_s: float, tmp_path: Path) -> None:
    program = tmp_path / "squeue"
    program.write_text(f"#!/bin/sh\necho called >> {tmp_path}/calls\n{squeue}\n")
    program.chmod(0o755)
    environment = {"SLURM_JOB_ID": "7", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert ends_s(environment) == end_s
    session = Session(environment)
    for _ in range(3):
        session.save_due()
    assert (tmp_path / "calls").read_text().count("called") == 2


def test_without_squeue_the_job_has_no_end() -> None:
    assert ends_s({"SLURM_JOB_ID": "7", "PATH": "/nonexistent"}) == NEVER
    assert ends_s({}) == NEVER


def test_a_record_says_if_the_program_listens(one: Program) -> None:
    one.session.report(1, 10)
    assert not one.record().listens
    one.session.save_due()
    one.clock.now_s += 2.0
    one.session.report(2, 10)
    assert one.record().listens


def test_a_save_answers_only_earlier_requests(one: Program) -> None:
    one.session.report(1, 10)
    assert not one.session.save_due()
    one.session.saving()
    one.clock.now_s = 1010.0
    os.kill(os.getpid(), signal.SIGURG)
    assert one.session.save_due()
    one.session.saved(1)
    assert one.record().answered_s is None
    one.clock.now_s = 1020.0
    one.session.saving()
    one.clock.now_s = 1025.0
    one.session.saved(2)
    assert one.record().answered_s == 1010.0


def test_an_unannounced_save_answers_requests_that_were_seen(one: Program) -> None:
    one.session.save_due()
    os.kill(os.getpid(), signal.SIGUSR1)
    one.session.saved(1)  # it may have begun before the request
    assert one.record().answered_s is None
    os.kill(os.getpid(), signal.SIGUSR1)
    assert one.session.save_due()
    one.session.saved(2)
    assert one.record().answered_s == 1000.0


@pytest.mark.parametrize("step", [-5, 10**16, 10**400], ids=["below", "above", "far above"])
@pytest.mark.parametrize("report", ["saved", "resumed"])
def test_an_impossible_step_of_a_checkpoint_is_one_warning_and_later_reports_arrive(
    one: Program, report: str, step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        getattr(one.session, report)(step)
        one.clock.now_s += 2.0
    assert capsys.readouterr().err.count("\n") == 1
    one.session.report(5, 10)
    one.session.saved(5)
    assert (one.record().step, one.record().saved_step) == (5, 5)
    assert one.record().resumed_step is None


@given(data())
def test_any_calls_leave_a_record_that_can_be_read(numbers: DataObject) -> None:
    """Whatever a program reports, also impossible numbers, its next sound report is seen."""
    whole = integers(-2, 12) | integers() | sampled_from([10**15, 10**15 + 1, 10**400, 10**5000])
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        file = Path(folder) / "progress"
        file.write_bytes(bytes(RECORD_BYTES))
        session = in_a_job(file, clock)
        for name in numbers.draw(lists(sampled_from(["report", "saved", "resumed", "saving"]))):
            clock.now_s += numbers.draw(sampled_from([0.0, 0.5, 2.0, 100.0]))
            if name == "saving":
                session.saving()
            elif name == "report":
                session.report(numbers.draw(whole), numbers.draw(none() | whole))
            else:
                getattr(session, name)(numbers.draw(whole))
        clock.now_s += 2.0
        session.report(3, 10)
        assert (record_in(file).step, record_in(file).total) == (3, 10)


def test_a_loop_that_is_stopped_saves_and_is_done(file: Path, clock: Clock) -> None:
    saves: list[int] = []
    session = in_a_job(file, clock)
    for step in session.steps(10, saves.append):
        if step == 3:
            session.stop()
    assert saves == [4]
    record = record_in(file)
    assert (record.step, record.saved_step, record.state) == (4, 4, "done")
    assert list(session.steps(3, saves.append)) == [0, 1, 2]


def test_only_the_inner_of_two_loops_is_stopped(one: Program) -> None:
    inner = []
    for epoch in one.session.steps(3, lambda _epoch: None):
        for batch in one.session.steps(3, lambda _batch: None):
            inner.append((epoch, batch))
            if batch == 1:
                one.session.stop()
    assert inner == [(epoch, batch) for epoch in range(3) for batch in range(2)]


def test_a_loop_that_is_left_without_a_save_is_a_warning(
    file: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in in_a_job(file, clock).steps(10, print):
        if step == 3:
            break
    assert "was left in step 3 of 10" in capsys.readouterr().err
    for _ in zip("abc", in_a_job(file, clock).steps(3, print), strict=False):
        pass
    told = capsys.readouterr()
    assert "was left in step 2 of 3" in told.err and "zip" in told.err and not told.out
    for _ in zip(in_a_job(file, clock).steps(3, print), "abc", strict=False):
        pass
    assert capsys.readouterr().out == "3\n"


@pytest.mark.parametrize(
    ("numbers", "error", "named"),
    [
        ({"done": None}, TypeError, "done=None"),
        ({"done": "5"}, TypeError, "done='5'"),
        ({"done": -3}, ValueError, "done=-3"),
        ({"total": 1.5}, TypeError, "total=1.5"),
        ({"total": -1}, ValueError, "total=-1"),
        ({"every_min": -1}, ValueError, "every_min=-1"),
        ({"every_min": math.nan}, ValueError, "every_min=nan"),
        ({"agree_every": 0}, ValueError, "agree_every=0"),
    ],
)
def test_a_wrong_number_is_an_error_that_names_it(
    numbers: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=re.escape(named)):
        Session({}).steps(**{"total": 10, "save": print, **numbers})


@pytest.mark.parametrize("minutes", [math.nan, -1])
def test_an_impossible_save_interval_is_an_error(minutes: float) -> None:
    with pytest.raises(ValueError, match="interval"):
        Session({}).saves_every(minutes)


def test_an_unknown_way_is_one_warning(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session({"TIRESIAS_PROGRESS": "yes", "SLURM_JOB_ID": "7"}, clock, clock)
    session.report(1, 10)
    session.report(2, 10)
    assert "TIRESIAS_PROGRESS=yes" in capsys.readouterr().err


def test_a_save_on_request_and_a_resume_are_lines_of_the_log(
    one: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in one.session.steps(20, lambda _step: None, done=3, every_min=1):
        one.clock.now_s += 30.0
        if step == 7:
            os.kill(os.getpid(), signal.SIGURG)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        "resumes at step 3",
        "saved step 8 as requested",
    ]
    for _ in in_a_job(one.file, one.clock, RANK="1").steps(5, lambda _step: None, done=3):
        os.kill(os.getpid(), signal.SIGURG)
    assert capsys.readouterr().err == ""


def full(_step: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_save_on_request_that_fails_does_not_end_the_training(
    file: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []
    with pytest.raises(OSError, match="No space"):
        for step in in_a_job(file, clock).steps(5, full):
            done.append(step)
            if step == 2:
                os.kill(os.getpid(), signal.SIGURG)
    assert done == [0, 1, 2, 3, 4], "only the last save is needed"
    assert "step 3 could not be saved" in capsys.readouterr().err
    record = record_in(file)
    assert record.asked_s is not None and record.answered_s is None and record.saved_s is None


@pytest.mark.parametrize("number", [signal.SIGTERM, None], ids=["told to leave", "at an interval"])
def test_other_failed_saves_end_the_training(number: int | None, file: Path, clock: Clock) -> None:
    with pytest.raises(OSError, match="No space"):
        for step in in_a_job(file, clock).steps(5, full, every_min=1):
            assert step == 0
            if number:
                os.kill(os.getpid(), number)
            else:
                clock.now_s += 60.0


def test_a_replaced_handler_is_named(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    def cleans_up(*_: object) -> None: ...

    signal.signal(signal.SIGTERM, cleans_up)
    Session({}, clock, clock).leaving()
    assert "cleans_up no longer handles SIGTERM" in capsys.readouterr().err


def test_a_program_that_saves_but_does_not_leave_is_warned(
    one: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    one.session.save_due()
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(3):
        assert one.session.save_due()
        one.session.saving()
        one.session.saved(1)
    assert capsys.readouterr().err.count("call job.leaving()") == 1


def test_an_announced_phase_ends_with_the_next_step_and_is_bounded(one: Program) -> None:
    one.session.report(1, 100)
    one.session.busy("eval\n\x1buation;", minutes=30)
    record = one.record()
    assert (record.step, record.phase) == (1, "evaluation")
    assert record.busy_until_s == pytest.approx(one.clock.now_s + 1800.0)
    one.session.busy("for ever", minutes=math.inf)
    until_s = one.record().busy_until_s
    assert until_s == pytest.approx(one.clock.now_s + 60.0 * MOST_BUSY_MIN)
    one.clock.now_s += 5.0
    one.session.report(1, 100)
    assert one.record().busy_until_s is not None
    one.clock.now_s += 5.0
    one.session.report(2, 100)
    assert (one.record().busy_until_s, one.record().phase) == (None, "")
    with pytest.raises(ValueError, match="not a time"):
        one.session.busy("evaluation", minutes=-1)


def test_each_process_tells_the_time_of_its_steps_without_waiting(
    tmp_path: Path, file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    world = {"WORLD_SIZE": "2", JOB_VARIABLE: "7"}
    first = in_a_job(file, clock, RANK="0", LOCAL_RANK="0", **world)
    second = Session({"RANK": "1", "LOCAL_RANK": "1", **world}, clock, clock)
    for step in range(1, 30):
        clock.now_s += 2.0
        second.report(step, 100)
        with first.waiting():
            clock.now_s += 1.0
        first.report(step, 100)
    (one, own_s), (other, slow_s) = record_in(file).ranks
    assert (one, other) == (0, 1)
    assert own_s == pytest.approx(2.0)
    assert slow_s == pytest.approx(3.0)
    assert not has_no_record(file)


def test_the_step_times_of_a_run_leave_no_file_behind(tmp_path: Path) -> None:
    program = (
        "import glob, os; from slurm_tiresias import job\n"
        "job.report(1, 2); print(len(glob.glob(os.environ['TMPDIR'] + '/tiresias-ranks-*')))"
    )
    world = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", JOB_VARIABLE: "7"}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **world, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "1\n", ended.stderr
    assert not list(tmp_path.iterdir())


def test_a_program_of_one_process_tells_no_step_times(file: Path, clock: Clock) -> None:
    session = in_a_job(file, clock, SLURM_PROCID="0", SLURM_NTASKS="1")
    for step in range(1, 60):
        clock.now_s += 1.0
        session.report(step)
    assert record_in(file).ranks == ()


def test_the_first_process_of_another_node_reports_its_rank(file: Path, clock: Clock) -> None:
    session = in_a_job(file, clock, RANK="8", LOCAL_RANK="0", WORLD_SIZE="16")
    session.report(1)
    assert record_in(file).rank == 8
    # Where two steps of a job share a node, the file is taken.
    other = in_a_job(file, clock, RANK="9", LOCAL_RANK="0", WORLD_SIZE="16")
    other.report(2)
    assert record_in(file).rank == 8


STUCK = """
import os, signal
from slurm_tiresias import job

def waits_for_ever():
    os.kill(os.getpid(), signal.SIGWINCH)

job.report(1)
waits_for_ever()
"""


def test_the_program_prints_its_stacks_when_it_is_signalled() -> None:
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", STUCK],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0
    assert "in waits_for_ever" in done.stderr
