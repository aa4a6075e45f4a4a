"""The table of skipped tests at the end of scripts/test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TESTS = """
import pytest

@pytest.mark.skip(reason="no GPU")
@pytest.mark.parametrize("number", range(3))
def test_marked(number):
    pass

@pytest.fixture
def engine():
    pytest.skip("no engine:\\n  start one")

def test_by_its_fixture(engine):
    pass

def test_that_passes():
    pass
"""


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "parallel"])
def test_a_reason_is_a_line_with_count_and_a_test(tmp_path: Path, workers: tuple[str, ...]) -> None:
    _, _, table = run(tmp_path, TESTS, *workers).partition(" skipped ")
    assert table.splitlines()[1:4] == [
        "tests  reason                for example",
        "    3  no GPU                test_it.py::test_marked[0]",
        "    1  no engine: start one  test_it.py::test_by_its_fixture",
    ]


def test_without_skipped_tests_there_is_no_table(tmp_path: Path) -> None:
    assert "for example" not in run(tmp_path, "def test_that_passes(): pass\n")


def run(folder: Path, tests: str, *options: str) -> str:
    """Run pytest with the plugin, and no other except those of ``options``; return its output."""
    (folder / "test_it.py").write_text(tests)
    pytest_there = (sys.executable, "-m", "pytest", "-q", "-p", "tests.skipped", "-r", "fE")
    ended = subprocess.run(
        [*pytest_there, *options, "-c", "/dev/null", "--rootdir", folder, folder],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
