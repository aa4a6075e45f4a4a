"""Which of several controllers may act."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from scripts.testbed.patience import wait_until
from slurm_tiresias.errors import DamagedLedgerError, LeaseLostError
from slurm_tiresias.ha.lease import FileLease, now_s
from slurm_tiresias.profiler.profile import MODEL, Profile, key_of
from slurm_tiresias.profiler.skew import Skew
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.slurm import process
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.protocol import Commands, Requeue
from slurm_tiresias.store.ledger import FILE_NAME, Ledger
from slurm_tiresias.store.terms import (
    inherited_ledger,
    inherited_profiles,
    newest_ledger,
    newest_profiles,
)

INTERVAL_S = 10.0
"""The lease lasts as long."""


class Clock:
    """A clock that advances only when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def one(tmp_path: Path, clock: Clock) -> FileLease:
    return FileLease(tmp_path, "one", INTERVAL_S, clock)


@pytest.fixture
def two(tmp_path: Path, clock: Clock) -> FileLease:
    return FileLease(tmp_path, "two", INTERVAL_S, clock)


def test_only_one_takes_a_free_lease(one: FileLease, two: FileLease, clock: Clock) -> None:
    assert one.take()
    assert not two.take()
    assert one.check() > clock.now_s
    with pytest.raises(LeaseLostError):
        two.check()


def test_a_lease_that_is_renewed_is_not_taken(one: FileLease, two: FileLease, clock: Clock) -> None:
    assert one.take()
    for _ in range(30):
        clock.now_s += one.beat_s
        one.renew()
        assert not two.take()
    assert one.check()


def test_a_lease_that_is_not_renewed_is_over_before_another_takes_it(
    one: FileLease, two: FileLease, clock: Clock
) -> None:
    assert one.take()
    until_s, last_beat_s = one.check(), clock.now_s
    while not two.take():
        assert clock.now_s < last_beat_s + 2 * INTERVAL_S
        clock.now_s += two.beat_s
    assert until_s < clock.now_s <= last_beat_s + INTERVAL_S + two.beat_s
    for act in (one.check, one.renew):
        with pytest.raises(LeaseLostError):
            act()


def test_a_holder_stopped_too_long_has_lost_even_a_free_lease(one: FileLease, clock: Clock) -> None:
    assert one.take()
    clock.now_s += INTERVAL_S
    with pytest.raises(LeaseLostError):
        one.renew()


def test_a_released_lease_can_be_taken_at_once_by_its_designated_successor(
    tmp_path: Path, one: FileLease, two: FileLease
) -> None:
    three = FileLease(tmp_path, "three", INTERVAL_S)
    assert one.take()
    one.release(to="three")
    assert not two.take()
    assert not one.take()
    assert three.take()
    three.release()
    assert two.take()
    assert two.term == 3


def test_a_process_stopped_while_taking_it_has_no_lease(tmp_path: Path, one: FileLease) -> None:
    late = FileLease(tmp_path, "late", INTERVAL_S)
    for _ in range(15):
        assert one.take()
        one.release()
    assert not (tmp_path / "lease-2").exists()
    assert not late._begin(2)
    with pytest.raises(LeaseLostError):
        late.check()


def test_a_standby_is_listed_until_silent(one: FileLease, two: FileLease, clock: Clock) -> None:
    assert one.take()
    two.stand_by(wanted=True)
    assert [(s.host, s.wanted) for s in one.standbys()] == [("two", True)]
    clock.now_s += INTERVAL_S
    assert one.standbys() == []
    two.leave()
    assert one.standbys() == []


def test_the_lease_ends_if_its_directory_is_out_of_reach(tmp_path: Path, one: FileLease) -> None:
    assert one.take()
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    assert one.standbys() == []
    with pytest.raises(LeaseLostError):
        one.check()
    assert not one.take()


# Writes end with the lease


def test_nothing_starts_after_the_lease(tmp_path: Path, one: FileLease, clock: Clock) -> None:
    mark = tmp_path / "ran"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\n[ "$1" = ping ] && echo at x is UP || touch {mark}\n')
    scontrol.chmod(0o755)
    slurm = CommandSlurm(Commands(scontrol=str(scontrol), scancel=str(scontrol)), one)
    assert one.take()
    clock.now_s += INTERVAL_S
    with pytest.raises(LeaseLostError):
        slurm.write([Requeue("7")])
    with pytest.raises(LeaseLostError):
        slurm.signal(["7"], "USR1")
    assert not mark.exists()


def test_a_command_is_killed_at_the_end_of_the_lease_even_as_an_orphan(tmp_path: Path) -> None:
    pid, mark = tmp_path / "pid", tmp_path / "ran"
    program = (
        "import os\n"
        "from slurm_tiresias.ha.lease import now_s\n"
        "from slurm_tiresias.slurm.process import run\n"
        f"command = ['sh', '-c', 'echo $$ > {pid}; sleep 60; touch {mark}']\n"
        "run(command, stdin='', timeout_s=90, environment=os.environ, until_s=now_s() + 1.5)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", program])
    wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"))
    command = Path("/proc", pid.read_text().strip())
    starter.kill()
    starter.wait()
    wait_until(lambda: has_ended(command))
    assert not mark.exists()


def has_ended(process: Path) -> bool:
    """Whether the process is gone, or has ended and was not reaped yet."""
    try:
        return ") Z " in (process / "stat").read_text()
    except OSError:
        return True


def test_a_command_stopped_beyond_the_lease_does_nothing_when_continued(tmp_path: Path) -> None:
    mark, pid = tmp_path / "ran", tmp_path / "pid"
    script = f"echo $$ > {pid}; kill -STOP $$; touch {mark}"
    waker = subprocess.Popen(
        ["sh", "-c", f"while [ ! -s {pid} ]; do sleep 0.05; done; sleep 1; kill -CONT $(cat {pid})"]
    )
    with pytest.raises(Exception, match="lease"):
        process.run(
            ["sh", "-c", script],
            stdin="",
            timeout_s=9,
            environment=dict(os.environ),
            until_s=now_s() + 0.6,
        )
    waker.wait()
    assert not mark.exists()


def test_a_command_is_not_started_after_the_lease() -> None:
    environment = dict(os.environ)
    with pytest.raises(LeaseLostError):
        process.run(["true"], stdin="", timeout_s=9, environment=environment, until_s=now_s() - 1)
    answer = process.run(
        ["cat"], stdin="word", timeout_s=9, environment=environment, until_s=now_s() + 9
    )
    assert (answer.stdout, answer.status) == ("word", 0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_command_with_a_time_to_end_is_started_without_python_in_a_forked_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other threads may hold locks that a forked copy would never get."""
    begun: list[dict[str, object]] = []
    real = subprocess.Popen

    def begin(arguments: list[str], **options: object) -> object:
        begun.append(options)
        return real(arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", begin)
    process.run(["true"], stdin="", timeout_s=9, environment=dict(os.environ), until_s=now_s() + 9)
    assert begun and all(options.get("preexec_fn") is None for options in begun)


def test_a_missing_command_with_a_deadline_is_reported_by_name() -> None:
    answer = process.run(
        ["no-such-command"], stdin="", timeout_s=9, environment={}, until_s=now_s() + 9
    )
    assert answer.stderr == "no-such-command cannot be started: No such file or directory\n"


# Copies of the ledger


def test_each_term_has_its_own_ledger_with_all_that_was_in_the_one_before(tmp_path: Path) -> None:
    assert newest_ledger(tmp_path) == tmp_path / FILE_NAME
    with closing(Ledger(tmp_path / FILE_NAME)) as alone:
        alone.set_value("paused", "yes")
    for term in range(1, 8):
        path = inherited_ledger(tmp_path, term)
        with closing(Ledger(path)) as ledger:
            assert ledger.value("paused") == "yes"
        assert newest_ledger(tmp_path) == path
    assert len(list(tmp_path.glob("ledger-*.sqlite"))) == 3


def test_the_ledger_of_a_holder_stopped_while_it_wrote_is_taken_over(tmp_path: Path) -> None:
    before = inherited_ledger(tmp_path, 1)
    with closing(Ledger(before)) as ledger, ledger.transaction():
        ledger.set_value("said", "before")
    with closing(Ledger(before)) as stopped:
        stopped.set_value("said", "last word")
        with stopped.transaction():
            stopped.set_value("said", "half a word")
            with closing(Ledger(inherited_ledger(tmp_path, 2))) as mine:
                assert mine.value("said") == "last word"
    with closing(Ledger(newest_ledger(tmp_path))) as mine:
        assert mine.value("said") == "last word"


def test_each_term_has_its_own_profiles_with_all_that_was_known_before(tmp_path: Path) -> None:
    """A stopped holder may have its own copy open, and locked: no other controller waits for it, or
    reads it."""
    assert newest_profiles(tmp_path) == tmp_path / "profiles.sqlite"
    known = Profile(key_of(MODEL, "bert"), Skew(1, 9, 3), "operator", 1000.0)
    with closing(ProfileStore(newest_profiles(tmp_path))) as alone:
        alone.save([known])
    with closing(sqlite3.connect(newest_profiles(tmp_path), isolation_level=None)) as stopped:
        stopped.execute("BEGIN IMMEDIATE")
        stopped.execute("DELETE FROM profiles")
        for term in range(1, 8):
            path = inherited_profiles(tmp_path, term)
            assert path.stat().st_mode & 0o777 == 0o600
            with closing(ProfileStore(path)) as mine:
                assert mine.profiles() == [known]
            assert newest_profiles(tmp_path) == path
        stopped.execute("COMMIT")
    with closing(ProfileStore(newest_profiles(tmp_path))) as mine:
        assert mine.profiles() == [known]
    assert len(list(tmp_path.glob("profiles-*.sqlite"))) == 3


def test_an_unreadable_ledger_is_not_treated_as_empty(tmp_path: Path) -> None:
    path = inherited_ledger(tmp_path, 1)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (x)")
    path.write_bytes(path.read_bytes()[:3000] + b"x" * 5000)
    with pytest.raises(DamagedLedgerError):
        inherited_ledger(tmp_path, 2)
