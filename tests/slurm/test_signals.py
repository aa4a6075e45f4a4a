"""Which jobs scancel reports as not signalled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm_tiresias.slurm import commands
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.protocol import Commands

ERROR = "scancel: error: Kill job error on job id"
DENIED = "Access/permission denied"


def answering(folder: Path, complaints: str, status: int) -> CommandSlurm:
    """A driver with a scancel that prints this, and logs its arguments."""
    (folder / "complaints").write_text(complaints)
    command = folder / "command"
    command.write_text(
        f'#!/bin/sh\n[ "$1" = ping ] && echo at x is UP && exit\necho "$@" >>{folder}/asked\n'
        f"cat {folder}/complaints >&2\nexit {status}\n"
    )
    command.chmod(0o755)
    return CommandSlurm(Commands(scontrol=str(command), scancel=str(command)))


@pytest.mark.parametrize(
    ("complaints", "refused"),
    [
        (f"{ERROR} 7: {DENIED}\n", {"7"}),
        (f"{ERROR} 8_3: {DENIED}\n{ERROR} 7: Invalid job id specified\n", {"8_3"}),
        (f"{ERROR} 7: Job/step already completing or completed\n", set()),
        ("Unknown job signal: USR9\n", {"7", "8_3"}),
        (f"{ERROR} 9: {DENIED}\n", set()),
    ],
)
def test_ended_jobs_are_distinguished_from_jobs_that_scancel_may_not_signal(
    tmp_path: Path, complaints: str, refused: set[str]
) -> None:
    found: Mapping[str, str] = answering(tmp_path, complaints, 1).signal(["7", "8_3"], "USR1")
    assert found.keys() == refused
    assert all(words in complaints for words in found.values())


def test_a_silent_scancel_has_signalled_all_jobs(tmp_path: Path) -> None:
    assert answering(tmp_path, "", 0).signal(["7"], "USR1") == {}


def test_a_scancel_that_fails_silently_has_signalled_no_job(tmp_path: Path) -> None:
    assert answering(tmp_path, "", 1).signal(["7"], "USR1").keys() == {"7"}


@pytest.mark.parametrize(
    ("signal", "sent"), [("WINCH", "28"), ("SIGUSR1", "10"), ("RTMIN+1", "RTMIN+1")]
)
def test_signals_go_by_number_not_by_name(tmp_path: Path, signal: str, sent: str) -> None:
    answering(tmp_path, "", 0).signal(["7"], signal)
    assert f"--signal={sent} " in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(("signal", "full"), [("URG", [True, False]), ("USR1", [True])])
def test_tasks_are_signalled_too_where_srun_passes_nothing_on(
    tmp_path: Path, signal: str, full: list[bool]
) -> None:
    answering(tmp_path, "", 0).signal(["7"], signal)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert ["--full" in line for line in asked] == full


@pytest.mark.parametrize("hangs", [r"--full", r"23\ --state"])
def test_a_scancel_that_hangs_on_a_requeued_job_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    monkeypatch.setattr(commands, "SCANCEL_LIMITS_S", (0.5, 20.0))
    slurm = answering(tmp_path, f"{ERROR} 8: {DENIED}\n", 1)
    command, hung = tmp_path / "command", tmp_path / "hung"
    first, rest = command.read_text().split("\n", 1)
    once = f'case "$*" in *{hangs}*) mkdir {hung} 2>/dev/null && exec sleep 100;; esac'
    command.write_text(f"{first}\n{once}\n{rest}")
    assert slurm.signal(["7", "8"], "URG").keys() == {"8"}
    assert hung.exists()
    asked = (tmp_path / "asked").read_text()
    assert asked.count("--full") == 1 and "23 --state" in asked
