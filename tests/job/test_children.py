"""Processes that a program forks end when it says so, and outlive Slurm's SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S

BEGINS = """
import multiprocessing as mp, os, signal, subprocess, sys, threading, time
from slurm_tiresias import job
from slurm_tiresias.job import children
fork = mp.get_context("fork")

def works():
    while True:
        time.sleep(0.01)

def echoes(pipe):
    while True:
        pipe.send(pipe.recv())

def save(step):
    print("save", step, flush=True)
"""


def started(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BEGINS + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """How the program and all of its children ended: the pipe closes after the last."""
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate(timeout=PATIENCE_S)
        raise AssertionError(f"a process never ends: {said}") from None
    return process.returncode, said


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert any(said == f"{line}\n" for said in process.stdout), f"it ended without {line!r}"


WORKERS = {
    "a daemon": "worker = fork.Process(target=works, daemon=True); worker.start()",
    "a daemon of a thread": """
def begin():
    fork.Process(target=works, daemon=True).start()
thread = threading.Thread(target=begin)
thread.start()
thread.join()
""",
    "a daemon of a worker": """
def nests():
    inner = fork.Process(target=works, daemon=True)
    inner.start()
    inner.terminate()
    inner.join()
    print("inner", inner.exitcode, flush=True)
worker = fork.Process(target=nests)
worker.start()
worker.join()
""",
    "a pool": "pool = fork.Pool(2); pool.map(abs, range(9))",
    "a command": """
command = subprocess.Popen(["sleep", "60"])
command.terminate()
assert command.wait() == -signal.SIGTERM
""",
    "a command of a worker": """
def commands():
    command = subprocess.Popen(["sleep", "60"])
    command.terminate()
    sys.exit(0 if command.wait() == -signal.SIGTERM else 1)
worker = fork.Process(target=commands)
worker.start()
worker.join()
assert worker.exitcode == 0
""",
}

LOOP = """
for step in job.steps(int(sys.argv[-1]) if sys.argv[1:] else {steps}, save):
    if step == 0:
        exec(workers)
    print("step", step, flush=True)
    time.sleep(0.01)
print("finished", flush=True)
"""


def program(workers: str, steps: int) -> str:
    return f"workers = {workers!r}" + LOOP.format(steps=steps)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_program_with_workers_ends(workers: str) -> None:
    code, said = ended(started(program(WORKERS[workers], 3)))
    assert (code, said.splitlines()[-1]) == (0, "finished"), said


@pytest.mark.parametrize("to_all", [True, False], ids=["to all processes", "to the program"])
@pytest.mark.parametrize("workers", WORKERS)
def test_a_preempted_program_with_workers_saves_and_ends(workers: str, to_all: bool) -> None:
    process = started(program(WORKERS[workers], 100_000))
    wait_for(process, "step 3")
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGTERM)
    code, said = ended(process)
    assert code == 143 and "save" in said, said


ECHO_LOOP = """
here, there = fork.Pipe()
for step in job.steps(100_000, save):
    if step == 0:
        worker = fork.Process(target=echoes, args=(there,), daemon=True)
        worker.start()
    print("step", step, flush=True)
    for number in range(100):
        here.send(number)
        assert here.recv() == number
        time.sleep(0.001)
"""
"""Steps that need their worker to the end."""

DATA_LOADER = """
import types
package = "torch.utils.data._utils.signal_handling"
for name in ("torch", "torch.distributed", package):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch"].distributed = sys.modules["torch.distributed"]
handling = sys.modules[package]
handling._set_worker_signal_handlers = lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL)
import slurm_tiresias.job.torch

def echoes(pipe, forever=echoes):
    handling._set_worker_signal_handlers()
    forever(pipe)
"""
"""A stand-in for PyTorch, whose workers set handlers of their own."""


@pytest.mark.parametrize("workers", ["", DATA_LOADER], ids=["multiprocessing", "data loader"])
def test_a_worker_survives_sigterm_to_all_processes_until_the_save(workers: str) -> None:
    process = started(workers + ECHO_LOOP)
    wait_for(process, "step 3")
    os.killpg(process.pid, signal.SIGTERM)
    code, said = ended(process)
    assert code == 143 and "save" in said, said


def test_a_pool_of_each_step_ends_although_the_job_is_told_to_leave() -> None:
    process = started("""
for step in job.steps(100_000, save):
    print("step", step, flush=True)
    time.sleep(0.2)
    with fork.Pool(2) as pool:
        pool.map(abs, range(9))
""")
    wait_for(process, "step 1")
    os.kill(process.pid, signal.SIGTERM)
    code, said = ended(process)
    assert code == 143 and "save" in said, said


def test_a_terminated_worker_ends_at_once_and_of_the_signal() -> None:
    code, said = ended(
        started("""
children.GRACE_S = 3600.0
list(job.steps(1, save))
worker = fork.Process(target=works)
worker.start()
worker.terminate()
worker.join()
print(worker.exitcode)
""")
    )
    assert (code, said) == (0, "save 1\n-15\n")


def test_a_child_that_its_parent_ends_by_os_kill_ends_a_while_later() -> None:
    code, said = ended(
        started("""
children.GRACE_S = 0.5
list(job.steps(1, save))
worker = fork.Process(target=works)
worker.start()
os.kill(worker.pid, signal.SIGTERM)
worker.join()
print(worker.exitcode)
""")
    )
    assert (code, said) == (0, "save 1\n-15\n")


def test_workers_inherit_the_handlers_that_the_program_had_before() -> None:
    code, said = ended(
        started("""
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
job.listen()
here, there = fork.Pipe()
worker = fork.Process(target=echoes, args=(there,))
worker.start()
here.send(1)
here.recv()
worker.terminate()
worker.join()
print(worker.exitcode)
""")
    )
    assert (code, said) == (0, "7\n")


def test_a_training_in_a_worker_saves_and_ends_when_told() -> None:
    process = started("""
job.listen()
def trains():
    for step in job.steps(100_000, save):
        print("step", step, flush=True)
        time.sleep(0.01)
worker = fork.Process(target=trains)
worker.start()
worker.join()
print("it ended with", worker.exitcode)
""")
    wait_for(process, "step 3")
    os.killpg(process.pid, signal.SIGTERM)
    code, said = ended(process)
    assert code == 0 and "save" in said and "it ended with 143" in said, said
    assert "no longer handles" not in said


def test_sigusr1_to_all_processes_ends_no_worker() -> None:
    process = started(program(WORKERS["a daemon"], 100_000) + "\n")
    wait_for(process, "step 3")
    os.killpg(process.pid, signal.SIGUSR1)
    assert process.stdout is not None
    assert any(line.startswith("save") for line in process.stdout)
    (worker,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    time.sleep(0.1)
    assert Path(f"/proc/{worker}/stat").read_text().split()[2] != "Z"
    os.killpg(process.pid, signal.SIGTERM)
    assert ended(process)[0] == 143
