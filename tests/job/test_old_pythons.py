"""The job library runs with the Pythons of old clusters."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import slurm_tiresias.job

LIBRARY = Path(slurm_tiresias.job.__file__).parent
OLDEST = (3, 9)


@pytest.mark.parametrize("file", sorted(LIBRARY.glob("*.py")), ids=lambda file: str(file.name))
def test_the_library_uses_only_the_syntax_of_python_3_9(file: Path) -> None:
    ast.parse(file.read_text(), feature_version=OLDEST)


def test_the_library_runs_with_python_3_9() -> None:
    program = shutil.which("python3.9")
    works = program and subprocess.run([program, "--version"], capture_output=True, check=False)
    if not works or works.returncode != 0:
        pytest.skip("no Python 3.9 on this machine")
    code = "from slurm_tiresias import job\nfor _ in job.steps(3, print): pass"
    ended = subprocess.run(
        [str(program), "-c", code],
        env={**os.environ, "PYTHONPATH": str(LIBRARY.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "")


def test_an_older_python_is_refused_in_one_sentence() -> None:
    code = """
import sys
sys.version_info = (3, 8, 18)
from slurm_tiresias import job
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stderr.splitlines()[-1] == (
        "ImportError: slurm_tiresias.job needs Python 3.9 or later."
    )
