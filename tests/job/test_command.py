"""``tiresias-job``, with programs like those that launchers start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_tiresias.job.channel import FILE_VARIABLE
from slurm_tiresias.job.record import RECORD_BYTES, decode
from slurm_tiresias.job.session import LEFT

COMMAND = (sys.executable, "-m", "slurm_tiresias.job.command")
TRAINING = """
import sys, time
from slurm_tiresias import job
saves = []
for step in job.steps(1000, saves.append):
    print("step", step, *saves, flush=True)
    time.sleep(0.02)
"""
LAUNCHER = """
import signal, subprocess, sys
# As torchrun does: a signal ends all.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(99))
sys.exit(subprocess.call([sys.executable, "-c", sys.argv[1]]))
"""


def started(*words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *words],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(*words: str, **environment: str) -> tuple[int, str]:
    process = started(*words, **environment)
    _, said = process.communicate(timeout=30)
    return process.returncode, said


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"it ended without {words!r}")


def test_sigterm_to_all_processes_ends_the_program_only_after_its_save() -> None:
    process = started("run", "--", sys.executable, "-c", LAUNCHER, TRAINING)
    wait_for(process, "step 3")
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) == LEFT


def test_sigusr1_makes_the_program_save_and_continue() -> None:
    process = started("run", "--", sys.executable, "-c", LAUNCHER, TRAINING)
    wait_for(process, "step 3\n")
    os.killpg(process.pid, signal.SIGUSR1)
    assert process.stdout is not None
    saved = next(line.split()[2:] for line in process.stdout if len(line.split()) > 2)
    assert len(saved) == 1
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) == LEFT


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -KILL $$"), 137),
        (("no-such-program",), 127),
        (("/etc/passwd",), 126),
    ],
)
def test_the_exit_code_is_the_programs(program: tuple[str, ...], code: int) -> None:
    assert ended("run", "--", *program)[0] == code


def test_a_program_that_cannot_be_run_is_a_one_line_error() -> None:
    assert ended("run", "no-such-program")[1].count("\n") == 1


@pytest.mark.parametrize(
    "words", [(), ("run",), ("run", "--"), ("report", "x"), ("report", "5/"), ("saved", "-1x")]
)
def test_wrong_usage_is_exit_code_2(words: tuple[str, ...]) -> None:
    code, said = ended(*words)
    assert code == 2 and "tiresias-job" in said


def test_a_shell_script_can_report_and_say_that_it_has_saved(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    file.write_bytes(bytes(RECORD_BYTES))
    for words in (("report", "10/200"), ("report", "20/200"), ("saved", "20")):
        assert ended(*words, **{FILE_VARIABLE: str(file)}) == (0, "")
    record = decode(file.read_bytes())
    assert (record.first_step, record.step, record.total, record.saved_step) == (10, 20, 200, 20)


@pytest.mark.parametrize("words", [("report", "10/200"), ("report", "5/0"), ("saved", "20")])
def test_outside_of_slurm_reports_go_nowhere(words: tuple[str, ...]) -> None:
    assert ended(*words, **{FILE_VARIABLE: ""}) == (0, "")


def test_a_total_of_zero_is_a_one_line_warning(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    file.write_bytes(bytes(RECORD_BYTES))
    code, said = ended("report", "5/0", **{FILE_VARIABLE: str(file)})
    assert (code, said.count("\n")) == (0, 1) and "a total of 0 steps is left out" in said
    assert decode(file.read_bytes()).total is None


@pytest.mark.parametrize("command", [(), ("run",), ("report",), ("saved",)])
def test_the_help_explains_each_subcommand_and_argument(command: tuple[str, ...]) -> None:
    process = started(*command, "--help")
    text, _ = process.communicate(timeout=30)
    paragraphs = text.split("\n\n")
    assert process.returncode == 0 and len(paragraphs) >= 4
    assert len(paragraphs[1].split()) > 15
