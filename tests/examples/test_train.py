"""The example training survives preemption, and its self-check can fail."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.patience import PATIENCE_S, wait_until

TRAIN = Path(__file__).parents[2] / "examples" / "train.py"

KILLS_ITSELF = """
import os, runpy, signal, sys
program, last_line = sys.argv[1], int(sys.argv[2])
sys.argv = [program, *sys.argv[3:]]
arithmetic = {"trained", "batch", "predicted", "descended", "<genexpr>", "<listcomp>"}
lines = 0

def count(frame, event, argument):
    global lines
    if frame.f_code.co_filename != program or frame.f_code.co_name in arithmetic:
        return None
    lines += event == "line"
    if lines == last_line:
        os.kill(os.getpid(), signal.SIGKILL)
    return count

sys.settrace(count)
runpy.run_path(program, run_name="__main__")
"""
"""Runs a program and kills it with SIGKILL before its n-th line, wherever that is."""


class Run:
    """A training in its own folder."""

    def __init__(self, folder: Path, steps: int, step_s: float = 0.0, save_every_s: float = 60.0):
        self.folder = folder
        self.steps = steps
        self.arguments = [
            *("--steps", str(steps), "--step-seconds", str(step_s)),
            *("--save-every-s", str(save_every_s), "--dir", str(folder)),
        ]
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *prefix: str) -> subprocess.Popen[str]:
        command = [sys.executable, *(prefix or (str(TRAIN),)), *self.arguments]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.started.append(process)
        return process

    def finish(self) -> dict[str, Any]:
        process = self.start()
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors + output
        return proof_in(output)

    def verify(self, *more: str) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, str(TRAIN), *self.arguments, "--verify", *more]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return answer.returncode, proof_in(answer.stdout)

    def journal(self) -> list[dict[str, Any]]:
        path = self.folder / "journal.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def count(self, event: str) -> int:
        return sum(entry["event"] == event for entry in self.journal())

    def wait_for_steps(self, number: int) -> None:
        wait_until(lambda: self.count("step") >= number)


def proof_in(output: str) -> dict[str, Any]:
    proof = json.loads(output.splitlines()[-1])
    assert isinstance(proof, dict)
    return proof


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def build(steps: int, **values: float) -> Run:
        runs.append(Run(tmp_path / f"run{len(runs)}", steps, **values))
        return runs[-1]

    yield build
    for process in [process for run in runs for process in run.started]:
        process.kill()
        process.communicate()


NewRun = Callable[..., Run]


def test_an_undisturbed_training_does_each_step_once(new_run: NewRun) -> None:
    proof = new_run(50).finish()
    assert proof["each_step_once"] is True
    assert (proof["steps"], proof["restarts"], proof["steps_redone"]) == (50, 0, 0)


def test_sigterm_saves_and_ends_within_a_fraction_of_a_step(new_run: NewRun) -> None:
    run = new_run(20, step_s=30.0)
    process = run.start()
    wait_until(lambda: run.count("start") == 1)
    began_s = time.monotonic()
    process.terminate()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert time.monotonic() - began_s < 20.0
    assert (run.folder / "checkpoint.json").exists()
    assert run.count("step") == 0


def test_no_step_is_lost_or_done_again_after_sigterm(new_run: NewRun) -> None:
    run = new_run(2000, step_s=0.002)
    for _ in range(2):
        # On a busy machine the run before may have done far more steps than were waited for.
        steps = run.count("step") + 100
        process = run.start()
        run.wait_for_steps(steps)
        process.terminate()
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    proof = run.finish()
    assert proof["each_step_once"] is True
    assert (proof["restarts"], proof["steps_redone"]) == (2, 0)


def test_sigusr1_saves_and_continues(new_run: NewRun) -> None:
    run = new_run(3000, step_s=0.001)
    process = run.start()
    run.wait_for_steps(20)
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: run.count("saved") == 1)
    saved = next(entry for entry in run.journal() if entry["event"] == "saved")
    assert saved["why"] == "SIGUSR1"
    assert json.loads((run.folder / "checkpoint.json").read_text())["step"] == saved["step"]
    run.wait_for_steps(saved["step"] + 20)
    assert process.poll() is None


def test_a_signal_that_the_caller_ignored_is_heard_all_the_same(new_run: NewRun) -> None:
    run = new_run(3000, step_s=0.01)
    command = ["bash", "-c", "trap '' USR1; exec \"$@\"", "bash", sys.executable, str(TRAIN)]
    process = subprocess.Popen([*command, *run.arguments], stdout=subprocess.DEVNULL, text=True)
    run.started.append(process)
    run.wait_for_steps(1)
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: run.count("saved") == 1)


def test_kill_9_at_random_moments_loses_no_step(new_run: NewRun) -> None:
    run = new_run(2500, step_s=0.001, save_every_s=0.02)
    moments = random.Random(1)
    for number in range(12):
        done = run.count("step")
        process = run.start()
        if number % 2:  # in the middle of it, however slowly it starts on this machine
            wait_until(lambda: run.count("step") > done)  # noqa: B023
        time.sleep(moments.uniform(0.0, 0.05 if number % 2 else 0.25))
        process.kill()
        process.wait()
    proof = run.finish()
    assert proof["each_step_once"] is True, proof
    assert proof["restarts"] >= 3


def test_kill_9_before_any_line_of_the_program_loses_no_step(new_run: NewRun) -> None:
    run = new_run(60, save_every_s=0.0)
    moments = random.Random(2)
    lines = [*moments.sample(range(1, 160), 12), *moments.sample(range(160, 600), 12)]
    for line in lines:
        process = run.start("-c", KILLS_ITSELF, str(TRAIN), str(line))
        process.wait(PATIENCE_S)
    proof = run.finish()
    assert proof["each_step_once"] is True, proof
    assert proof["restarts"] >= 10


def test_a_step_with_a_torn_journal_line_is_repeated(new_run: NewRun) -> None:
    run = new_run(30)
    run.finish()
    (run.folder / "checkpoint.json").unlink()
    journal = run.folder / "journal.jsonl"
    text = journal.read_bytes()
    journal.write_bytes(text[: text.rfind(b'"fingerprint"')])
    proof = run.finish()
    assert proof["each_step_once"] is True
    assert proof["steps_redone"] == 29


def test_a_second_instance_is_refused(new_run: NewRun) -> None:
    run = new_run(3000, step_s=0.01)
    first = run.start()
    run.wait_for_steps(1)
    second = run.start()
    _, errors = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 75
    assert "another instance" in errors
    assert errors.count("\n") == 1
    assert first.poll() is None
    assert run.count("start") == 1


def test_a_finished_training_started_again_does_nothing_more(new_run: NewRun) -> None:
    run = new_run(20)
    first = run.finish()
    second = run.finish()
    assert second["each_step_once"] is True
    assert second["fingerprint"] == first["fingerprint"]
    assert run.count("step") == 20


def test_an_interrupted_training_ends_with_the_model_of_a_whole_one(new_run: NewRun) -> None:
    pieces = new_run(200, step_s=0.002)
    process = pieces.start()
    pieces.wait_for_steps(10)
    process.terminate()
    process.wait()
    assert pieces.finish()["fingerprint"] == new_run(200).finish()["fingerprint"]


# The self-check can fail


def test_an_unfinished_training_fails_verification(new_run: NewRun) -> None:
    run = new_run(20)
    run.finish()
    status, proof = run.verify("--steps", "21")
    assert status == 1
    assert proof["each_step_once"] is False
    assert "20 of 21 steps were done" in proof["problems"]


def test_a_training_that_never_began_fails_verification(new_run: NewRun) -> None:
    status, proof = new_run(5).verify()
    assert (status, proof["each_step_once"]) == (1, False)


def without_step_7(lines: list[str]) -> list[str]:
    return [line for line in lines if '"step": 7,' not in line]


def with_step_7_twice(lines: list[str]) -> list[str]:
    return [again for line in lines for again in [line] * (1 + ('"step": 7,' in line))]


def with_another_model_after_step_7(lines: list[str]) -> list[str]:
    journal = [json.loads(line) for line in lines]
    for entry in journal:
        if entry["event"] == "step" and entry["step"] == 7:
            entry["fingerprint"] = "0" * 16
    return [json.dumps(entry) + "\n" for entry in journal]


def with_a_resume_beyond_what_was_done(lines: list[str]) -> list[str]:
    start = json.dumps({"event": "start", "step": 9}) + "\n"
    return [*lines[:6], start, *lines[10:]]


@pytest.mark.parametrize(
    "spoil",
    [
        without_step_7,
        with_step_7_twice,
        with_another_model_after_step_7,
        with_a_resume_beyond_what_was_done,
    ],
)
def test_a_journal_that_contradicts_the_run_fails_verification(
    new_run: NewRun, spoil: Callable[[list[str]], list[str]]
) -> None:
    run = new_run(12)
    run.finish()
    journal = run.folder / "journal.jsonl"
    journal.write_text("".join(spoil(journal.read_text().splitlines(keepends=True))))
    status, proof = run.verify()
    assert (status, proof["each_step_once"]) == (1, False)
    assert proof["problems"]


def test_a_step_applied_twice_to_the_model_fails_verification(new_run: NewRun) -> None:
    run = new_run(12)
    run.finish()
    checkpoint = run.folder / "checkpoint.json"
    raw = json.loads(checkpoint.read_text())
    raw["weights"][0] = (float.fromhex(raw["weights"][0]) + 1e-12).hex()
    checkpoint.write_text(json.dumps(raw))
    status, proof = run.verify()
    assert (status, proof["each_step_once"]) == (1, False)


def test_two_trainings_that_both_passed_the_lock_are_detected(new_run: NewRun) -> None:
    run = new_run(60, step_s=0.05)
    first = run.start()
    run.wait_for_steps(5)
    (run.folder / "lock").unlink()
    second = run.start()
    for process in (first, second):
        process.communicate(timeout=PATIENCE_S)
    assert run.verify()[0] == 1


# Bad input


@pytest.mark.parametrize(
    "arguments",
    [["--steps", "0"], ["--steps", "many"], ["--step-seconds", "-1"], ["--step-seconds", "nan"]],
)
def test_invalid_arguments_are_refused_and_explained(new_run: NewRun, arguments: list[str]) -> None:
    run = new_run(5)
    run.arguments += arguments
    process = run.start()
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "Traceback" not in errors


def test_a_checkpoint_of_another_seed_is_refused(new_run: NewRun) -> None:
    run = new_run(5)
    run.finish()
    run.arguments += ["--seed", "2"]
    process = run.start()
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "--seed 1" in errors


def test_a_damaged_checkpoint_is_refused(new_run: NewRun) -> None:
    run = new_run(5)
    run.finish()
    (run.folder / "checkpoint.json").write_text("{")
    process = run.start()
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "Remove it" in errors


def test_the_batch_script_is_a_script_that_bash_can_read() -> None:
    script = TRAIN.with_name("train.sbatch")
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert os.access(TRAIN, os.X_OK)
