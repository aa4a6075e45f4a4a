"""Programs that have passed a drill: what users may report, and how long it is remembered."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_tiresias import json_codec
from slurm_tiresias.config import parse
from slurm_tiresias.controller import drilled as module
from slurm_tiresias.controller.drilled import (
    MOST_WAITING_OF_A_USER,
    REQUEST,
    DrilledPrograms,
    say_how_it_ended,
)
from slurm_tiresias.core.features import drilled as feature_module
from slurm_tiresias.core.features.drilled import DRILLED_FOR_S, MOST_OF_A_USER, Drilled
from slurm_tiresias.core.features.lost_work import LostWork
from slurm_tiresias.core.features.min_run import min_run_s
from slurm_tiresias.errors import ConfigError, LedgerError, NotRunningError, RefusedError
from slurm_tiresias.model import JobAccount, ProgramCosts
from slurm_tiresias.settings.preemption import PreemptionConfig
from slurm_tiresias.status.ask import SOCKET_NAME
from slurm_tiresias.status.server import serving
from slurm_tiresias.status.service import Peer, Question
from slurm_tiresias.store.ledger import FILE_NAME, Ledger
from slurm_tiresias.store.rows import Rows
from tests.other_user import as_root
from tests.pictures import gpus, job

NOW_S = 2e9

SAYS_ALL_KINDS_OF_THINGS = """
import os, socket, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
for said in (b"passed 7", b"passed 99", b"x" * 100_000, b"\\xff\\x00" * 20, b"passed 12;", b"",
    b"passed 12"):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        try:
            connection.sendall(b"drill " + said + b"\\n")
        except BrokenPipeError:
            pass
        print(connection.recv(4096).decode())
"""


class User(Peer):
    """A user whose name the host knows."""

    @property
    def name(self) -> str:
        return {0: "root", 1: "ann", 2: "bob", 3: "eve"}.get(self.uid, "")


ANN, BOB, EVE = User(1), User(2), User(3)


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
        ledger.jobs.put([account])


def say(drilled: DrilledPrograms, peer: Peer, text: str) -> bytes:
    answer = drilled.service.answer(Question(peer, text, lambda: False))
    return bytes(answer)


@pytest.fixture
def drilled(ledger: Ledger) -> DrilledPrograms:
    return DrilledPrograms(ledger)


def test_a_passed_drill_is_kept_by_user_and_name(drilled: DrilledPrograms, ledger: Ledger) -> None:
    assert json_codec.loads(say(drilled, ANN, "passed 7"))["noted"] is True
    assert ("ann", "train") not in drilled.programs, "the thread that answers writes no ledger"
    drilled.follow(NOW_S)
    assert ("ann", "train") in drilled.programs and ("bob", "train") not in drilled.programs
    say(drilled, ANN, "passed 9_1")
    drilled.follow(NOW_S + 1)
    assert ("ann", "sweep") in DrilledPrograms(ledger).programs


def test_a_failed_drill_revokes_a_passed_one(drilled: DrilledPrograms, ledger: Ledger) -> None:
    say(drilled, ANN, "passed 7")
    drilled.follow(NOW_S)
    say(drilled, ANN, "failed 7")
    drilled.follow(NOW_S + 1)
    assert ("ann", "train") not in drilled.programs
    assert ("ann", "train") not in DrilledPrograms(ledger).programs


@pytest.mark.parametrize(
    "text",
    [
        *("", "passed", "passed ", "passed x", "7", "passed -7", "passed 7 8", "PASSED 7"),
        *("passed 12345678901", "passed 7_", "passed \x00", "failed 7; DROP TABLE jobs"),
        *("passed ７", "passed 7\npassed 8", "x" * 64),
    ],
)
def test_malformed_results_are_refused(drilled: DrilledPrograms, ledger: Ledger, text: str) -> None:
    with pytest.raises(RefusedError):
        say(drilled, ANN, text)
    drilled.follow(NOW_S)
    assert ledger.drilled.all() == []


@pytest.mark.parametrize(
    ("peer", "text"),
    [(BOB, "passed 7"), (ANN, "passed 8"), (ANN, "passed 10"), (User(77), "passed 7")],
    ids=["another's job", "another's job of the same name", "no job", "an unknown user"],
)
@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_results_for_another_users_job_and_an_unknown_job_get_the_same_refusal(
    drilled: DrilledPrograms, ledger: Ledger, peer: Peer, text: str, outcome: str
) -> None:
    say(drilled, ANN, "passed 7")
    say(drilled, BOB, "passed 8")
    drilled.follow(NOW_S)
    before = ledger.drilled.all()
    with pytest.raises(RefusedError, match=r"has managed no job \d+ of this user"):
        say(drilled, peer, text.replace("passed", outcome))
    drilled.follow(NOW_S + 1)
    assert ledger.drilled.all() == before


def test_a_job_without_a_known_user_belongs_to_none(ledger: Ledger) -> None:
    remember(ledger, "11", "", "train")
    with pytest.raises(RefusedError):
        say(DrilledPrograms(ledger), User(77), "passed 11")


def test_an_array_is_found_by_its_own_id(drilled: DrilledPrograms) -> None:
    say(drilled, ANN, "passed 9")
    drilled.follow(NOW_S)
    assert ("ann", "sweep") in drilled.programs


def test_too_many_results_of_one_user_are_refused(drilled: DrilledPrograms, ledger: Ledger) -> None:
    for number in range(MOST_WAITING_OF_A_USER):
        remember(ledger, str(100 + number), "ann", f"try{number}")
        for _ in range(3):
            say(drilled, ANN, f"passed {100 + number}")
    with pytest.raises(RefusedError, match="Too many"):
        say(drilled, ANN, "passed 7")
    say(drilled, ANN, "failed 100")
    say(drilled, BOB, "passed 8")
    drilled.follow(NOW_S)
    assert len(ledger.drilled.all()) == MOST_WAITING_OF_A_USER
    assert ("bob", "train") in drilled.programs and ("ann", "try0") not in drilled.programs
    say(drilled, ANN, "passed 7")


def test_pending_results_are_bounded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 1)
    drilled = DrilledPrograms(ledger)
    say(drilled, ANN, "passed 7")
    with pytest.raises(RefusedError, match="Too many"):
        say(drilled, BOB, "passed 8")
    say(drilled, ANN, "failed 7")


def test_results_that_the_ledger_could_not_store_are_stored_by_the_next_cycle(
    drilled: DrilledPrograms, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(drilled, ANN, "passed 7")
    with monkeypatch.context() as patch:
        patch.setattr(Rows, "put", Mock(side_effect=LedgerError("full", "Make room")))
        with pytest.raises(LedgerError):
            drilled.follow(NOW_S)
    assert ("ann", "train") not in drilled.programs
    drilled.follow(NOW_S + 1)
    for known in (drilled, DrilledPrograms(ledger)):
        assert ("ann", "train") in known.programs


def test_a_cycle_without_results_writes_nothing(
    drilled: DrilledPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(drilled, ANN, "passed 7")
    drilled.follow(NOW_S)
    monkeypatch.setattr(Rows, "put", Mock(side_effect=AssertionError("written")))
    drilled.follow(NOW_S + 1)


def test_only_a_users_own_oldest_are_dropped(drilled: DrilledPrograms, ledger: Ledger) -> None:
    say(drilled, BOB, "passed 8")
    for number in range(MOST_OF_A_USER + 3):
        remember(ledger, str(100 + number), "ann", f"try{number}")
        say(drilled, ANN, f"passed {100 + number}")
        drilled.follow(NOW_S + number)
    kept = ledger.drilled.all()
    assert len(kept) == MOST_OF_A_USER + 1
    assert ("ann", "try2") not in drilled.programs and ("ann", "try3") in drilled.programs
    assert ("bob", "train") in drilled.programs


def test_a_passed_drill_expires_after_ninety_days(drilled: DrilledPrograms, ledger: Ledger) -> None:
    say(drilled, ANN, "passed 7")
    drilled.follow(NOW_S)
    drilled.follow(NOW_S + DRILLED_FOR_S)
    assert ("ann", "train") in drilled.programs
    drilled.follow(NOW_S + DRILLED_FOR_S + 1)
    assert ("ann", "train") not in drilled.programs and ledger.drilled.all() == []


def test_a_drill_reaches_the_controller_by_its_socket(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Peer, "name", "ann")
    drilled = DrilledPrograms(ledger)
    with pytest.raises(NotRunningError, match="No such file"):
        say_how_it_ended(tmp_path, "7", passed=True)
    with serving(tmp_path, {REQUEST: drilled.service}):
        say_how_it_ended(tmp_path, "7", passed=True)
        with pytest.raises(RefusedError, match="no job 8 of this user"):
            say_how_it_ended(tmp_path, "8", passed=True)
    drilled.follow(NOW_S)
    assert ("ann", "train") in drilled.programs


@as_root
def test_the_kernel_identifies_the_user_and_garbage_is_harmless(ledger: Ledger) -> None:
    remember(ledger, "12", "nobody", "mine")
    drilled = DrilledPrograms(ledger)
    with tempfile.TemporaryDirectory() as name, serving(Path(name), {REQUEST: drilled.service}):
        Path(name).chmod(0o755)
        path = Path(name) / SOCKET_NAME
        ended = subprocess.run(
            [sys.executable, "-c", SAYS_ALL_KINDS_OF_THINGS, str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
    refused, noted = ended.stdout.count("refused"), ended.stdout.count("noted")
    assert (refused, noted) == (6, 1), ended.stdout
    drilled.follow(NOW_S)
    assert [(one.user, one.name) for one in ledger.drilled.all()] == [("nobody", "mine")]


programs = st.tuples(st.sampled_from(["ann", "bob", "eve"]), st.integers(0, 5).map(str))
cycles = st.lists(
    st.tuples(st.floats(0.0, 60 * 86_400.0), st.lists(st.tuples(programs, st.booleans()))),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(cycles=cycles)
def test_the_latest_unexpired_result_of_each_program_counts(
    cycles: list[tuple[float, list[tuple[tuple[str, str], bool]]]],
) -> None:
    most = 3
    uids = {"ann": ANN, "bob": BOB, "eve": EVE}
    with (
        tempfile.TemporaryDirectory() as name,
        closing(Ledger(Path(name) / FILE_NAME)) as ledger,
        patch.object(feature_module, "MOST_OF_A_USER", most),
    ):
        keys: dict[tuple[str, str], str] = {}
        for user in uids:
            for number in range(6):
                keys[user, str(number)] = key = str(len(keys) + 1)
                remember(ledger, key, user, str(number))
        drilled = DrilledPrograms(ledger)
        known: dict[tuple[str, str], float] = {}
        now_s = NOW_S
        for after_s, said in cycles:
            now_s += after_s
            for program, passed in said:
                say(
                    drilled, uids[program[0]], f"{'passed' if passed else 'failed'} {keys[program]}"
                )
            drilled.follow(now_s)
            last = dict(said)
            known = {p: s for p, s in known.items() if p not in last and now_s - s <= DRILLED_FOR_S}
            known |= {p: now_s for p, passed in last.items() if passed}
            for program in known:
                if program in drilled.programs:
                    continue
                later = [p for p in known if p[0] == program[0] and known[p] >= known[program]]
                assert len(later) > most, "only the latest of many are kept"
            known = {
                program: at_s for program, at_s in known.items() if program in drilled.programs
            }
            assert max(Counter(user for user, _ in known).values(), default=0) <= most
            kept = {(one.user, one.name): one.at_s for one in ledger.drilled.all()}
            assert kept == known
            drilled = DrilledPrograms(ledger)


def test_a_program_that_lost_all_work_since_its_drill_is_protected_like_others() -> None:
    config = PreemptionConfig(min_run_s=120.0, drilled_min_run_s=10.0)
    drilled = Drilled(lambda: {("ann", "train"): NOW_S})
    one = job("7", gpus(1), user="ann", name="train")
    for feature in (drilled, LostWork()):
        feature.follow(one, NOW_S)
    assert min_run_s(one, config) == 10.0
    one.program_costs = ProgramCosts(10.0, 10.0, lost_all_in_a_row=1)
    LostWork().follow(one, NOW_S)
    assert min_run_s(one, config) == 120.0


def test_jobs_of_a_program_are_judged_anew_when_it_passes_a_drill() -> None:
    passed: list[Mapping[tuple[str, str], float]] = [{}, {("ann", "train"): NOW_S}]
    drilled = Drilled(lambda: passed[0])
    one = job("7", gpus(1), user="ann", name="train")
    other = job("8", gpus(1), user="bob", name="train")
    for each in (one, other):
        drilled.follow(each, NOW_S)
    assert list(drilled.tick(NOW_S)) == []
    del passed[0]
    assert list(drilled.tick(NOW_S)) == [one]
    drilled.follow(one, NOW_S)
    assert (one.drilled, other.drilled) == (True, False)


def test_a_minimum_run_time_above_that_of_others_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"drilled_min_run_s = 300 is longer than"):
        parse({"preemption": {"drilled_min_run_s": 300}})
