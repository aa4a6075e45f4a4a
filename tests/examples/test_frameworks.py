"""The examples for training frameworks lose no step; each runs if its framework is installed.

Needs PyTorch, Lightning with torchdata, Transformers with Accelerate, JAX with Orbax, or Keras with
PyTorch or JAX (any builds; no GPU).
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.testbed.ports import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 40
PREEMPTIONS = 5
PYTHON = (sys.executable,)
TORCHRUN = (
    *(sys.executable, "-m", "slurm_tiresias.job.command", "run", "--"),
    *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=PORT"),
)
STARTS = {
    "pytorch": (PYTHON, "pytorch_train.py", ("torch",)),
    "torchrun": (TORCHRUN, "pytorch_train.py", ("torch",)),
    "lightning": (PYTHON, "lightning_train.py", ("lightning", "torchdata")),
    "huggingface": (PYTHON, "huggingface_train.py", ("transformers", "accelerate")),
    "accelerate": (PYTHON, "accelerate_train.py", ("accelerate",)),
    "accelerate-torchrun": (TORCHRUN, "accelerate_train.py", ("accelerate",)),
    "jax": (PYTHON, "jax_train.py", ("jax", "orbax")),
    "keras-torch": (("env", "KERAS_BACKEND=torch", *PYTHON), "keras_train.py", ("keras", "torch")),
    "keras-jax": (("env", "KERAS_BACKEND=jax", *PYTHON), "keras_train.py", ("keras", "jax")),
}


def frameworks() -> list[object]:
    return [
        pytest.param(
            (*launcher, str(EXAMPLES / program)),
            id=name,
            marks=pytest.mark.skipif(
                any(importlib.util.find_spec(module) is None for module in needs),
                reason=f"{' or '.join(needs)} is not installed",
            ),
        )
        for name, (launcher, program, needs) in STARTS.items()
    ]


def steps_of_a_start(
    program: tuple[str, ...], folder: Path, leave_after: int = 0, steps_in_all: int = STEPS
) -> list[tuple[str, str]]:
    """Return each step with its loss; after ``kill_after`` steps, if given, all processes get
    SIGTERM and must exit cleanly."""
    folder.mkdir(exist_ok=True)
    words = [word.replace("PORT", str(free_port())) for word in program]
    process = subprocess.Popen(
        [*words, "--steps", str(steps_in_all), "--step-seconds", "0.05"],
        env={**os.environ, "CHECKPOINT_DIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    steps: list[tuple[str, str]] = []
    for line in process.stdout:
        if match := re.match(r"step (\d+) loss (\S+)", line):
            steps.append((match[1], match[2]))
            if len(steps) == leave_after:
                os.killpg(process.pid, signal.SIGTERM)
    assert process.wait() == (128 + signal.SIGTERM if leave_after else 0)
    return steps


@pytest.mark.long
@pytest.mark.parametrize("program", frameworks())
def test_a_training_preempted_at_random_does_the_same_steps_as_an_undisturbed_one(
    program: tuple[str, ...], tmp_path: Path
) -> None:
    undisturbed = steps_of_a_start(program, tmp_path / "undisturbed")
    chance = random.Random(19)
    steps: list[tuple[str, str]] = []
    for leave_after in [*(chance.randint(1, 5) for _ in range(PREEMPTIONS)), 0]:
        steps += steps_of_a_start(program, tmp_path / "run", leave_after)
    assert steps == undisturbed
    assert len(undisturbed) == STEPS


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_pytorch_with_two_workers_preempted_once_does_each_step_once(tmp_path: Path) -> None:
    """The shortest of these tests, which a build server runs: scripts/dev frameworks --short."""
    program = (*TORCHRUN, str(EXAMPLES / "pytorch_train.py"))
    undisturbed = steps_of_a_start(program, tmp_path / "undisturbed", steps_in_all=10)
    before = steps_of_a_start(program, tmp_path / "run", leave_after=3, steps_in_all=10)
    after = steps_of_a_start(program, tmp_path / "run", steps_in_all=10)
    assert before + after == undisturbed
    assert len(undisturbed) == 10 and 3 <= len(before) < 10
