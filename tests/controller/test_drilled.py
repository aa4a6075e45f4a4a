"""Programs that have passed a drill: what users may say of it, and how long it is remembered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_tiresias import json_codec
from slurm_tiresias.config import parse
from slurm_tiresias.controller.drilled import (
    DRILLED_FOR_S,
    MOST_OF_A_USER,
    MOST_WAITING,
    DrilledPrograms,
    say_how_it_ended,
)
from slurm_tiresias.controller.guards import Guards
from slurm_tiresias.errors import ConfigError, RefusedError
from slurm_tiresias.model import JobAccount, Learned, ProgramCosts
from slurm_tiresias.progress.node import FOLDER
from slurm_tiresias.status.answers import Peer, Question, serving
from slurm_tiresias.store.ledger import FILE_NAME, Ledger
from tests.controller.test_job_store import pending
from tests.controller.test_progress import Site

NOW_S = 2e9


class User(Peer):
    """A user of whom the host knows the name."""

    @property
    def name(self) -> str:
        return {0: "root", 1: "ann", 2: "bob"}.get(self.uid, "")


ANN, BOB = User(1), User(2)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / FILE_NAME)
    for key, user, name in (("7", "ann", "train"), ("8", "bob", "train"), ("9_1", "ann", "sweep")):
        remember(ledger, key, user, name)
    yield ledger
    ledger.close()


def remember(ledger: Ledger, key: str, user: str, name: str) -> None:
    account = JobAccount(key, 0, 1.0, 1.0, 1.0, 0, user=user, name=name, ended_s=9.0)
    with ledger.transaction():
        ledger.save_jobs([account])


def say(drilled: DrilledPrograms, peer: Peer, text: str) -> bytes:
    answer = drilled.service(Path()).answer(Question(peer, text, lambda: False))
    return bytes(answer)


def test_a_program_that_has_passed_is_known_by_user_and_name_also_after_a_restart(
    ledger: Ledger,
) -> None:
    drilled = DrilledPrograms(ledger)
    assert json_codec.loads(say(drilled, ANN, "passed 7"))["noted"] is True
    assert ("ann", "train") not in drilled, "the thread that answers writes no ledger"
    drilled.follow(NOW_S)
    assert ("ann", "train") in drilled and ("bob", "train") not in drilled
    say(drilled, ANN, "passed 9_1")
    drilled.follow(NOW_S + 1)
    assert ("ann", "sweep") in DrilledPrograms(ledger)


def test_a_failed_drill_ends_it(ledger: Ledger) -> None:
    drilled = DrilledPrograms(ledger)
    say(drilled, ANN, "passed 7")
    drilled.follow(NOW_S)
    say(drilled, ANN, "failed 7")
    drilled.follow(NOW_S + 1)
    assert ("ann", "train") not in drilled
    assert ("ann", "train") not in DrilledPrograms(ledger)


@pytest.mark.parametrize(
    "text",
    [
        *("", "passed", "passed ", "passed x", "7", "passed -7", "passed 7 8", "PASSED 7"),
        *("passed 12345678901", "passed 7_", "passed \x00", "failed 7; DROP TABLE jobs"),
        *("passed ７", "passed 7\npassed 8", "x" * 64),
    ],
)
def test_what_no_drill_says_is_refused(ledger: Ledger, text: str) -> None:
    drilled = DrilledPrograms(ledger)
    with pytest.raises(RefusedError):
        say(drilled, ANN, text)
    drilled.follow(NOW_S)
    assert ledger.drilled() == []


@pytest.mark.parametrize(
    ("peer", "text"),
    [(BOB, "passed 7"), (ANN, "passed 8"), (ANN, "passed 10"), (User(77), "passed 7")],
    ids=["another's job", "another's job of the same name", "no job", "an unknown user"],
)
def test_what_is_said_of_no_job_of_the_users_own_changes_nothing(
    ledger: Ledger, peer: Peer, text: str
) -> None:
    drilled = DrilledPrograms(ledger)
    say(drilled, peer, text)
    drilled.follow(NOW_S)
    assert ledger.drilled() == []


def test_no_user_can_take_another_users_away(ledger: Ledger) -> None:
    drilled = DrilledPrograms(ledger)
    say(drilled, ANN, "passed 7")
    say(drilled, BOB, "failed 7")
    drilled.follow(NOW_S)
    assert ("ann", "train") in drilled


def test_more_than_can_be_taken_in_at_once_is_refused(ledger: Ledger) -> None:
    drilled = DrilledPrograms(ledger)
    for _ in range(MOST_WAITING):
        say(drilled, ANN, "passed 7")
    with pytest.raises(RefusedError, match="Too many"):
        say(drilled, BOB, "passed 8")
    drilled.follow(NOW_S)
    say(drilled, BOB, "passed 8")
    drilled.follow(NOW_S)
    assert ("bob", "train") in drilled


def test_the_latest_of_a_users_programs_are_kept_and_the_others_users_too(ledger: Ledger) -> None:
    drilled = DrilledPrograms(ledger)
    say(drilled, BOB, "passed 8")
    for number in range(MOST_OF_A_USER + 3):
        remember(ledger, str(100 + number), "ann", f"try{number}")
        say(drilled, ANN, f"passed {100 + number}")
    drilled.follow(NOW_S)
    kept = ledger.drilled()
    assert len(kept) == MOST_OF_A_USER + 1
    assert ("ann", "try2") not in drilled and ("ann", "try3") in drilled
    assert ("bob", "train") in drilled


def test_after_ninety_days_it_has_to_pass_again(ledger: Ledger) -> None:
    drilled = DrilledPrograms(ledger)
    say(drilled, ANN, "passed 7")
    drilled.follow(NOW_S)
    drilled.follow(NOW_S + DRILLED_FOR_S)
    assert ("ann", "train") in drilled
    drilled.follow(NOW_S + DRILLED_FOR_S + 1)
    assert ("ann", "train") not in drilled and ledger.drilled() == []


def test_a_drill_reaches_the_controller_by_its_socket(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Peer, "name", "ann")
    drilled = DrilledPrograms(ledger)
    assert not say_how_it_ended(tmp_path, "7", passed=True), "no controller answers"
    with serving(drilled.service(tmp_path)):
        assert say_how_it_ended(tmp_path, "7", passed=True)
    drilled.follow(NOW_S)
    assert ("ann", "train") in drilled


def test_a_program_that_lost_all_its_work_since_is_left_alone_as_long_as_others(
    tmp_path: Path,
) -> None:
    (tmp_path / FOLDER).mkdir()
    site = Site(tmp_path, Ledger(tmp_path / FILE_NAME))
    lost = {"all": 0}

    def costs_of(_user: str, _name: str) -> ProgramCosts:
        return ProgramCosts(10.0, 10.0, lost_all_in_a_row=lost["all"])

    guards = Guards(site.job_store, site.tracker, costs_of, {("ann", "train")})
    site.cycle(pending())
    guards.take(site.seen(pending()))
    assert guards.of("7") == Learned(drilled=True)
    lost["all"] = 1
    guards.take(site.seen(pending()))
    assert guards.of("7") == Learned(program_lost=1)


def test_a_minimum_run_time_above_that_of_others_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"drilled_min_run_s = 300 is longer than"):
        parse({"preemption": {"drilled_min_run_s": 300}})
