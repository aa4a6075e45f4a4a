"""Reports through the job's comment, with fake Slurm commands."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S, wait_until
from slurm_tiresias.job.channel import BY_COMMENT, WAY_VARIABLE
from slurm_tiresias.job.comment import MARK, decode, split
from slurm_tiresias.job.comment_channel import CommentChannel
from slurm_tiresias.job.pace import FIRST_AFTER_S, MOST_UPDATES, RESERVED_UPDATES, Pace
from slurm_tiresias.job.record import Record
from slurm_tiresias.job.session import Session

DAY_S = 86400.0
JOB = "17"


class Clock:
    def __init__(self) -> None:
        self.now_s = 5000.0

    def __call__(self) -> float:
        return self.now_s


class Slurm:
    """Fake ``squeue`` and ``scontrol`` that keep one comment in a file, and log their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.comment_file = folder / "comment"
        self.comment_file.write_text("")
        (folder / "squeue").write_text(
            f"""#!/bin/sh
for word; do case $word in --format=*) end=${{word#--format=%A|%i|%k}} ;; esac; done
echo squeue "$@" >> {folder}/calls
. {folder}/before
cat {folder}/rows | sed "s/END/$end/"
printf '{JOB}|{JOB}_3|%s%s\\n' "$(cat {folder}/comment)" "$end"
"""
        )
        (folder / "scontrol").write_text(
            f"""#!/bin/sh
echo scontrol "$1" "$2" >> {folder}/calls
. {folder}/before
printf %s "${{3#Comment=}}" > {folder}/comment
"""
        )
        for program in ("squeue", "scontrol"):
            (folder / program).chmod(0o755)
        self.before("")
        self.rows("")

    def before(self, line: str) -> None:
        """Shell code that each command runs first."""
        (self.folder / "before").write_text(line)

    def rows(self, text: str) -> None:
        """Other jobs that squeue shows."""
        (self.folder / "rows").write_text(text)

    @property
    def comment(self) -> str:
        return self.comment_file.read_text()

    def calls(self, program: str) -> list[str]:
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.startswith(program)]

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{self.folder}:{os.environ['PATH']}"
        return {"SLURM_JOB_ID": JOB, WAY_VARIABLE: BY_COMMENT, "PATH": path, **more}


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    folder = tmp_path / "slurm"
    folder.mkdir()
    return Slurm(folder)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def wait_for_command(session: Session) -> None:
    """The clock stands still while a command runs, however busy this machine is."""
    channel = session._channel
    if not isinstance(channel, CommentChannel):
        return
    give_up_s = time.monotonic() + PATIENCE_S
    while channel._command is not None and channel._command.poll() is None:
        assert time.monotonic() < give_up_s
        time.sleep(0.002)


def live(
    session: Session, clock: Clock, seconds: float, step_s: float = 20.0, save: int = 0
) -> int:
    """Report a step at this interval in seconds, and save after every ``save`` reports."""
    steps = int(seconds / step_s)
    for step in range(1, steps + 1):
        clock.now_s += step_s
        session.report(step, 10**6)
        if save and step % save == 0:
            session.saving()
            session.saved(step)
        wait_for_command(session)
    return steps


def progress_of(comment: str) -> Record:
    return decode(split(comment)[1])


@pytest.fixture
def session(slurm: Slurm, clock: Clock) -> Session:
    return Session(slurm.environment(), clock, clock)


def test_a_day_takes_25_updates_and_one_query(session: Session, slurm: Slurm, clock: Clock) -> None:
    live(session, clock, DAY_S)
    assert 18 <= len(slurm.calls("scontrol")) <= 32
    assert len(slurm.calls("squeue")) == 1
    record = progress_of(slurm.comment)
    assert record.total == 10**6


def test_a_month_of_saves_takes_few_updates(session: Session, slurm: Slurm, clock: Clock) -> None:
    live(session, clock, 30 * DAY_S, step_s=600.0, save=1)
    assert len(slurm.calls("scontrol")) <= MOST_UPDATES - RESERVED_UPDATES
    session.done()
    wait_for_command(session)
    assert progress_of(slurm.comment).state == "done"
    assert len(slurm.calls("scontrol")) <= MOST_UPDATES


def test_an_announced_phase_is_told_at_once_although_no_report_follows(
    session: Session, slurm: Slurm, clock: Clock
) -> None:
    clock.now_s += FIRST_AFTER_S + 60.0
    session.report(1, 100)
    wait_for_command(session)
    clock.now_s += 2 * FIRST_AFTER_S
    session.busy("evaluation", minutes=90)
    assert progress_of(slurm.comment).busy_until_s == pytest.approx(clock.now_s + 5400.0, abs=1.0)
    calls = len(slurm.calls("scontrol"))
    for _ in range(10):
        clock.now_s += 1.0
        session.busy("evaluation", minutes=90)
    assert len(slurm.calls("scontrol")) == calls, "at most once a minute"


def test_a_run_under_a_minute_calls_nothing(session: Session, slurm: Slurm, clock: Clock) -> None:
    live(session, clock, FIRST_AFTER_S - 2, step_s=1.0)
    session.done()
    assert not slurm.calls("s")


def test_jobs_started_together_do_not_update_together() -> None:
    paces = [Pace.begin(0.0) for _ in range(20)]
    assert len({pace.interval_s for pace in paces}) == 20
    for pace in paces:
        pace.count(7200.0)
    intervals = {pace.interval_s for pace in paces}
    assert len(intervals) == 20 and max(intervals) < 1.5 * min(intervals)


def test_the_random_numbers_of_the_program_are_left_alone(slurm: Slurm, clock: Clock) -> None:
    before = random.getstate()
    live(Session(slurm.environment(), clock, clock), clock, 600.0)
    assert slurm.calls("scontrol") and random.getstate() == before


@pytest.mark.parametrize("before", ["exit 1", "kill -9 $$"])
def test_errors_make_updates_rarer(
    session: Session, before: str, slurm: Slurm, clock: Clock
) -> None:
    live(session, clock, 600.0)
    good = len(slurm.calls("scontrol"))
    slurm.before(before)
    live(session, clock, DAY_S)
    assert good >= 3
    assert 2 <= len(slurm.calls("scontrol")) - good <= 10


def test_a_slow_slurmctld_makes_updates_rarer_for_a_while(slurm: Slurm, clock: Clock) -> None:
    slurm.before("sleep 0.3")
    session = Session(slurm.environment(), clock, clock)
    session.report(1, 10)
    channel = session._channel
    assert isinstance(channel, CommentChannel)
    clock.now_s += 100.0
    for _ in range(3):
        clock.now_s += 1.5
        session.report(2, 10)
    wait_for_command(session)
    clock.now_s += 1.5
    session.report(3, 10)
    assert channel._state.pace.slowness == 2
    slurm.before("")
    live(session, clock, 3600.0)
    assert channel._state.pace.slowness == 1


def test_a_hanging_command_is_killed_and_nothing_waits_for_it(slurm: Slurm, clock: Clock) -> None:
    slurm.before(f"echo $$ > {slurm.folder}/pid; exec sleep 300")
    session = Session(slurm.environment(), clock, clock)
    session.report(1, 10)
    clock.now_s += 100.0
    began_s = time.monotonic()
    for step in range(2, 12):
        session.report(step, 10)
        clock.now_s += 1.0
    assert time.monotonic() - began_s < 30.0
    assert len(slurm.calls("s")) <= 1, "one at a time"
    while not (slurm.folder / "pid").exists() or not (slurm.folder / "pid").read_text().strip():
        time.sleep(0.01)
    clock.now_s += 2.0
    session.report(20, 10)
    wait_for_command(session)
    with pytest.raises(ProcessLookupError):
        os.kill(int((slurm.folder / "pid").read_text()), 0)


def test_the_comment_and_words_of_another_task_are_left_alone(slurm: Slurm, clock: Clock) -> None:
    """An array's first task has the number of the whole array."""
    slurm.comment_file.write_text("mine, with 100% 'odd' \"words\"\nand lines  ")
    slurm.rows("18|17_1|17|17_3|forgedEND\n19|17_2|(null)END\n")
    session = Session(slurm.environment(), clock, clock)
    live(session, clock, 300.0)
    assert {call.split()[2] for call in slurm.calls("scontrol")} == {f"JobId={JOB}_3"}
    words, word = split(slurm.comment)
    # The shell of the fake squeue strips trailing newlines, and nothing else.
    assert words == "mine, with 100% 'odd' \"words\"\nand lines  "
    assert decode(word).total == 10**6


def test_an_earlier_progress_word_is_replaced(slurm: Slurm, clock: Clock) -> None:
    slurm.comment_file.write_text(f"tiresias:model=vgg16 {MARK}1/2@old")
    live(Session(slurm.environment(), clock, clock), clock, 300.0)
    words, word = split(slurm.comment)
    assert words == "tiresias:model=vgg16" and decode(word)


@pytest.mark.parametrize("kind", ["long", "two rows", "no row"])
def test_a_comment_that_cannot_be_kept_exactly_is_not_touched(
    kind: str, slurm: Slurm, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "é" * 480 if kind == "long" else "mine"
    slurm.comment_file.write_text(words)
    slurm.rows({"two rows": f"{JOB}|{JOB}|otherEND\n"}.get(kind, ""))
    more = {"SLURM_JOB_ID": "99"} if kind == "no row" else {}
    session = Session(slurm.environment(**more), clock, clock)
    live(session, clock, DAY_S)
    assert slurm.comment == words
    assert not slurm.calls("scontrol")
    assert capsys.readouterr().err.count("\n") == 1


def test_without_slurms_commands_there_is_one_warning(
    slurm: Slurm, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    (slurm.folder / "scontrol").unlink()
    session = Session(slurm.environment(PATH=str(slurm.folder)), clock, clock)
    live(session, clock, 600.0)
    said = capsys.readouterr().err
    assert "there is no scontrol in PATH" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    "more",
    [
        {"SLURM_PROCID": "1"},
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_ID": "17; rm"},
        {WAY_VARIABLE: "yes"},
    ],
    ids=str,
)
def test_only_the_first_rank_reports(more: dict[str, str], slurm: Slurm, clock: Clock) -> None:
    session = Session(slurm.environment(**more), clock, clock)
    live(session, clock, 600.0)
    assert session._channel is None and not slurm.calls("s")


def test_of_two_programs_in_a_job_only_the_first_reports(
    slurm: Slurm, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Session(slurm.environment(), clock, clock)
    second = Session(slurm.environment(), clock, clock)
    first.report(1, 10)
    second.report(9, 10)
    assert first._channel is not None and second._channel is None
    assert "another process of this job already reports" in capsys.readouterr().err


def test_successive_programs_share_one_bound_and_continue(slurm: Slurm, clock: Clock) -> None:
    """Like a shell script that calls ``tiresias-job report`` 4,000 times in a day."""
    for step in range(1, 400):
        session = Session(slurm.environment(), clock, clock)
        session.report(step, 10**6)
        wait_for_command(session)
        assert isinstance(session._channel, CommentChannel)
        session._channel._finish()
        clock.now_s += DAY_S / 400
    assert 10 <= len(slurm.calls("scontrol")) <= 30
    assert len(slurm.calls("squeue")) == 1
    record = progress_of(slurm.comment)
    assert record.first_step == 1


def test_the_next_run_of_a_requeued_job_starts_with_a_new_state(slurm: Slurm, clock: Clock) -> None:
    first = Session(slurm.environment(), clock, clock)
    live(first, clock, 600.0)
    assert first._channel is not None
    first._channel.close()
    questions = len(slurm.calls("squeue"))
    second = Session(slurm.environment(SLURM_RESTART_COUNT="1"), clock, clock)
    second.report(5, 10)
    assert second._channel is not None and second._channel.last() is not None
    assert progress_of(slurm.comment).step != 5, "a minute has not passed"
    live(second, clock, 600.0)
    assert len(slurm.calls("squeue")) == questions + 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"run":"0"}', b"\xff", b"null"])
def test_a_damaged_state_file_is_replaced(
    content: bytes, temporary_folder: Path, slurm: Slurm, clock: Clock
) -> None:
    file = temporary_folder / f"tiresias-progress-{os.geteuid()}-{JOB}"
    file.write_bytes(content)
    live(Session(slurm.environment(), clock, clock), clock, 300.0)
    assert slurm.calls("scontrol")


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "second name"])
def test_a_foreign_file_in_its_place_is_not_written(
    kind: str, temporary_folder: Path, slurm: Slurm, clock: Clock, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    file = temporary_folder / f"tiresias-progress-{os.geteuid()}-{JOB}"
    if kind == "link":
        file.symlink_to(other)
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.hardlink_to(other)
    live(Session(slurm.environment(), clock, clock), clock, 300.0)
    assert other.read_text() == "precious"
    assert not slurm.calls("s")


def test_the_state_file_is_private(temporary_folder: Path, slurm: Slurm, clock: Clock) -> None:
    Session(slurm.environment(), clock, clock).report(1, 10)
    (file,) = temporary_folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_misleading_variables_are_not_passed_to_squeue(slurm: Slurm, clock: Clock) -> None:
    slurm.before('[ -z "$SQUEUE_NAMES$SLURM_CLUSTERS$SCONTROL_ALL" ] || exit 1')
    misleading = {"SQUEUE_NAMES": "x", "SLURM_CLUSTERS": "x", "SCONTROL_ALL": "1"}
    live(Session(slurm.environment(**misleading), clock, clock), clock, 300.0)
    assert progress_of(slurm.comment)


PROGRAM = """
import os, signal, sys, time
from slurm_tiresias.job.session import Session
shift = 0.0
session = Session(clock=lambda: time.monotonic() + shift)
session.report(1, 10)
shift = 100.0
if "fork" in sys.argv:
    if os.fork() == 0:
        session.report(7, 10)
        sys.exit()
    os.wait()
if "killed" in sys.argv:
    session.report(2, 10)
    time.sleep(0.3)
    os.killpg(0, signal.SIGTERM)
session.report(2, 10)
session.saved(2)
session.done()
"""


def run_program(slurm: Slurm, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, **slurm.environment(TMPDIR=tempfile.gettempdir())},
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        timeout=PATIENCE_S,
    )


def test_the_end_of_a_program_waits_for_its_last_update(slurm: Slurm) -> None:
    slurm.before("sleep 0.2")
    assert run_program(slurm).returncode == 0
    assert progress_of(slurm.comment).state == "done"


def test_the_end_of_a_program_waits_two_seconds_at_most(slurm: Slurm) -> None:
    slurm.before("exec sleep 300")
    began_s = time.monotonic()
    ended = run_program(slurm)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert 2.0 <= time.monotonic() - began_s < 120.0


def test_a_forked_child_sends_nothing_and_ends_nothing(slurm: Slurm) -> None:
    assert run_program(slurm, "fork").returncode == 0
    assert progress_of(slurm.comment).step == 2


def test_a_signal_to_the_programs_group_does_not_reach_the_command(slurm: Slurm) -> None:
    slurm.before(
        f"sleep 0.6; read line; echo noise; echo noise >&2; echo survived >> {slurm.folder}/calls"
    )
    ended = run_program(slurm, "killed")
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGTERM, "", "")
    wait_until(lambda: slurm.calls("survived"))
