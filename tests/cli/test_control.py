"""Commands to the controller, and what they do if none runs."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from slurm_tiresias.errors import AlreadyRunningError
from slurm_tiresias.status.ask import SOCKET_NAME
from tests.cli.running import Site, error_of
from tests.cli.test_main import FakeRun, fake_run

__all__ = ["fake_run"]


def answering(folder: Path, answer: bytes) -> list[str]:
    """Listen once on the socket; received commands are added to the returned list."""
    heard: list[str] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / SOCKET_NAME))
    listener.listen()

    def serve() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw", encoding="utf-8") as stream:
                heard.append(stream.readline().strip())
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return heard


def line(**answer: Any) -> bytes:
    return json.dumps({"schema": 1, **answer}).encode() + b"\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pause"], "Paused: "),
        (["resume"], "Resumed: "),
        (["resume", "12"], "Job 12 is managed again."),
        (["hand-back"], "Handed back: "),
        (["hand-back", "12_3"], "Job 12_3 is Slurm's own until: tiresias-slurm resume 12_3"),
        (["nudge"], "A cycle was run."),
    ],
)
def test_each_command_sends_the_controller_a_line(site: Site, words: list[str], said: str) -> None:
    heard = answering(site.folder, line(mode="enforce"))
    result = site.run(*words)
    assert result.exit_code == 0 and heard == [" ".join(words)]
    assert result.stdout.startswith(said) and result.stdout.count("\n") == 1


def test_the_controllers_answer_is_printed(site: Site) -> None:
    answering(site.folder, line(text="handed back 12 jobs\x1b[2J"))
    assert site.run("hand-back").stdout == "handed back 12 jobs?[2J\n"


@pytest.mark.parametrize(("named", "code"), [(1, 1), (5, 5), (99, 1), ("x", 1)])
def test_a_refusal_has_the_exit_code_it_names(site: Site, named: object, code: int) -> None:
    answering(site.folder, line(refused=["slurmctld is away\x1b[2J", "Start it", named]))
    result = site.run("hand-back")
    assert result.exit_code == code
    assert error_of(result) == "slurmctld is away?[2J. Start it."


def test_in_shadow_mode_nothing_is_handed_back(site: Site) -> None:
    answering(site.folder, line(mode="shadow"))
    result = site.run("hand-back")
    assert result.exit_code == 1
    assert error_of(result).startswith(
        "Nothing was handed back: the controller runs in shadow mode"
    )


@pytest.mark.parametrize(
    ("word", "then"), [("pause", "acts no more until it is resumed"), ("resume", "acts")]
)
def test_commands_of_shadow_mode_take_effect_once_it_ends(site: Site, word: str, then: str) -> None:
    answering(site.folder, line(mode="shadow"))
    assert site.run(word).stdout == (
        f"The controller runs in shadow mode and does nothing; once in enforce mode, it {then}.\n"
    )


@pytest.mark.parametrize("word", ["pause", "resume", "hand-back"])
def test_nothing_is_done_past_a_busy_controller(site: Site, fake_run: FakeRun, word: str) -> None:
    fake_run.error = AlreadyRunningError("Another controller works in /x", "Stop it first")
    answering(site.folder, b"")
    result = site.run(word)
    assert result.exit_code == 9
    assert error_of(result) == "Another controller works in /x. Stop it first."
    assert result.stdout == ""


@pytest.mark.parametrize("answer", [b"", b"[]\n", b"\xff\n", b"{"])
def test_an_invalid_answer_counts_as_no_controller(site: Site, answer: bytes) -> None:
    answering(site.folder, answer)
    result = site.run("nudge")
    assert result.exit_code == 3
    assert error_of(result).startswith(("No controller answers in ", "What answers at "))


def test_without_a_controller_jobs_are_handed_back_too(site: Site, fake_run: FakeRun) -> None:
    result = site.run("hand-back")
    assert result.exit_code == 0 and fake_run.asked == [("hand_back", str(site.folder))]
    assert result.stdout == (
        "No controller runs; every managed job was handed back to Slurm by this command "
        "(12 changes), and the next one starts paused.\n"
    )


def test_without_a_controller_pause_and_resume_are_stored(site: Site, fake_run: FakeRun) -> None:
    assert site.run("pause").stdout == "No controller runs; the next one starts paused.\n"
    assert site.run("resume").stdout == "No controller runs; the next one acts from its start.\n"
    assert fake_run.asked == [("set_paused", True), ("set_paused", False)]


def test_without_a_controller_there_is_nothing_to_nudge(site: Site) -> None:
    result = site.run("nudge")
    assert result.exit_code == 3
    assert error_of(result).startswith("No controller answers in ")
