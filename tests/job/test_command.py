"""``tiresias-job``, with programs like those that launchers start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
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
    _, said = process.communicate(timeout=PATIENCE_S)
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
    assert process.wait(PATIENCE_S) == LEFT


def test_sigusr1_makes_the_program_save_and_continue() -> None:
    process = started("run", "--", sys.executable, "-c", LAUNCHER, TRAINING)
    wait_for(process, "step 3\n")
    os.killpg(process.pid, signal.SIGUSR1)
    assert process.stdout is not None
    saved = next(line.split()[2:] for line in process.stdout if len(line.split()) > 2)
    assert len(saved) == 1
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(PATIENCE_S) == LEFT


CGROUP = "ProctrackType           = proctrack/cgroup"
PLACES = {
    "outside of Slurm": None,
    "cgroups": f"echo '{CGROUP}'",
    "cgroups, every process signalled": f"echo '{CGROUP}\nSignalChildrenProcesses = yes'",
    "no cgroups": "echo 'ProctrackType           = proctrack/linuxproc'",
    "an unknown cluster": "exit 1",
}
SPARING = ("outside of Slurm", "cgroups")
"""Where Slurm does not signal the processes that a program starts."""


def environment_of(place: str, folder: Path) -> dict[str, str]:
    """That of a job whose scontrol shows such a configuration."""
    scontrol = PLACES[place]
    if scontrol is None:
        return {"SLURM_JOB_ID": ""}
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\n{scontrol}\n")
    program.chmod(0o755)
    return {"SLURM_JOB_ID": "7", "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("place", PLACES)
def test_no_launcher_is_ended_by_what_slurm_sends(place: str, tmp_path: Path) -> None:
    process = started(
        *("run", "--", sys.executable, "-c", LAUNCHER, TRAINING), **environment_of(place, tmp_path)
    )
    wait_for(process, "step 3")
    if place in SPARING:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        for one in (process.pid, *descendants(process.pid)):
            os.kill(one, signal.SIGTERM)
    assert process.wait(PATIENCE_S) == LEFT


def descendants(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    children = [int(word) for word in text.split()]
    return [*children, *(below for child in children for below in descendants(child))]


ENDS_A_COMMAND = """
import subprocess
command = subprocess.Popen(["sleep", "60"])
command.terminate()
print(command.wait(10))
"""
ENDS_A_COMMAND_IN_A_TRAINING = (
    """
from slurm_tiresias import job
for _ in job.steps(1, print):
    pass
"""
    + ENDS_A_COMMAND
)


@pytest.mark.parametrize("place", SPARING)
@pytest.mark.parametrize(
    "program",
    [
        ("timeout", "0.2", "sleep", "60"),
        ("sh", "-c", "sleep 60 & kill $!; wait $!"),
        (sys.executable, "-c", ENDS_A_COMMAND),
    ],
    ids=["timeout", "a shell", "a Python program"],
)
def test_children_end_on_its_signals(program: tuple[str, ...], place: str, tmp_path: Path) -> None:
    process = started("run", "--", *program, **environment_of(place, tmp_path))
    assert process.wait(PATIENCE_S) == {"timeout": 124, "sh": 143}.get(program[0], 0)


@pytest.mark.parametrize("place", PLACES)
def test_what_a_training_starts_ends_on_its_signals(place: str, tmp_path: Path) -> None:
    process = started(
        *("run", "--", sys.executable, "-c", ENDS_A_COMMAND_IN_A_TRAINING),
        **environment_of(place, tmp_path),
    )
    said, complaints = process.communicate(timeout=PATIENCE_S)
    assert said.splitlines()[-1] == "-15", complaints


def test_ctrl_c_reaches_the_program() -> None:
    process = started("run", "--", "sh", "-c", "trap 'exit 9' INT; echo up; sleep 60 & wait")
    wait_for(process, "up")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 9


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_full_disk_does_not_keep_a_request_from_the_program(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path], check=True)
    try:
        process = started(
            *("run", "--", sys.executable, "-c", LAUNCHER, TRAINING), TMPDIR=str(tmp_path)
        )
        wait_for(process, "step 3")
        assert list(tmp_path.glob("tiresias-job-*"))
        with pytest.raises(OSError, match="No space"):
            (tmp_path / "fill").write_bytes(bytes(1 << 20))
        process.send_signal(signal.SIGURG)
        assert process.stdout is not None
        assert any(len(line.split()) > 2 for line in process.stdout), "it has saved"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == LEFT
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


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
    "words",
    [
        *((), ("run",), ("run", "--")),
        *(
            ("report", word)
            for word in ("x", "5/", "5/0", "5/3", "-1", "1/-2", "1.5", f"{10**15 + 1}")
        ),
        *(("saved", word) for word in ("-1x", "-1", "1e3", "", f"{10**15 + 1}", "9" * 400)),
    ],
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


@pytest.mark.parametrize("words", [("report", "10/200"), ("report", "5"), ("saved", "20")])
def test_outside_of_slurm_reports_go_nowhere(words: tuple[str, ...]) -> None:
    assert ended(*words, **{FILE_VARIABLE: ""}) == (0, "")


@pytest.mark.parametrize("command", [(), ("run",), ("report",), ("saved",)])
def test_the_help_explains_each_subcommand_and_argument(command: tuple[str, ...]) -> None:
    process = started(*command, "--help")
    text, _ = process.communicate(timeout=PATIENCE_S)
    paragraphs = text.split("\n\n")
    assert process.returncode == 0 and len(paragraphs) >= 4
    assert len(paragraphs[1].split()) > 15
