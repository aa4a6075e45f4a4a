"""The examples for what people train with lose no step, where it is installed.

Needs PyTorch, Lightning with torchdata, or JAX with Orbax (any builds; no GPU).
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 30
NEEDS = {
    "pytorch_train.py": ("torch",),
    "lightning_train.py": ("lightning", "torchdata"),
    "jax_train.py": ("jax", "orbax"),
}


def frameworks() -> list[object]:
    return [
        pytest.param(
            program,
            marks=pytest.mark.skipif(
                any(importlib.util.find_spec(name) is None for name in needs),
                reason=f"{' or '.join(needs)} is not installed",
            ),
        )
        for program, needs in NEEDS.items()
    ]


def steps_of_a_start(program: str, folder: Path, leave_after: int = 0) -> list[tuple[str, str]]:
    """Each step with its loss; SIGTERM after so many, if any, must end it by its own will."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, EXAMPLES / program, "--steps", str(STEPS), "--step-seconds", "0.05"],
        env={**os.environ, "CHECKPOINT_DIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    steps: list[tuple[str, str]] = []
    for line in process.stdout:
        if match := re.match(r"step (\d+) loss (\S+)", line):
            steps.append((match[1], match[2]))
            if len(steps) == leave_after:
                process.send_signal(signal.SIGTERM)
    assert process.wait() == (128 + signal.SIGTERM if leave_after else 0)
    return steps


@pytest.mark.long
@pytest.mark.parametrize("program", frameworks())
def test_a_training_that_leaves_twice_does_the_same_steps_as_one_that_stays(
    program: str, tmp_path: Path
) -> None:
    undisturbed = steps_of_a_start(program, tmp_path / "undisturbed")
    parts = [steps_of_a_start(program, tmp_path / "run", leave_after) for leave_after in (5, 8, 0)]
    assert [step for part in parts for step in part] == undisturbed
    assert len(undisturbed) == STEPS
