"""The plugin that decides which tests share a worker, and which start first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import distribution
from tests.distribution import APART, LONGEST, REPORTING, TOGETHER, in_order, unit_of

ROOT = Path(__file__).parents[1]


def test_every_path_named_for_distribution_exists() -> None:
    for path in (*APART, *LONGEST, *REPORTING, *TOGETHER):
        assert (ROOT / path).exists(), path


def test_a_unit_is_a_file_or_a_folder_that_shares_something_or_a_single_test() -> None:
    assert unit_of("tests/policy/test_tiers.py::test_a") == "tests/policy/test_tiers.py"
    assert unit_of("tests/spank/test_build.py::test_a[x::y]") == "tests/spank/"
    assert len({unit_of(f"{file}::test_a") for file in REPORTING}) == 1
    assert unit_of(f"{REPORTING[0]}::test_a") != "tests/spank/"
    apart = f"{APART[0]}::test_a[x::y]"
    assert unit_of(apart) == apart


def test_units_that_wait_and_units_that_compute_take_turns_the_longest_of_either_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distribution, "LONGEST", ("w9", "c8"))
    units = ["c1", "c2", "c8", "c3", "w1", "w9"]
    assert in_order(units, waiting={"w1", "w9"}) == ["c8", "w9", "c1", "c2", "w1", "c3"]


TESTS = """
import os
import pytest

@pytest.mark.parametrize("number", range(20))
def test_it(number, worker_id):
    with open(os.environ["SEEN"], "a") as seen:
        print(worker_id, __name__, file=seen)
"""


def test_each_unit_is_run_whole_by_one_worker(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / f"test_{name}.py").write_text(TESTS)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "tests.distribution")
    ended = subprocess.run(
        [*command, "-n", "2", "-c", "/dev/null", "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "SEEN": str(tmp_path / "seen"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    seen = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    assert len(seen) == 60
    assert len({(worker, unit) for worker, unit in seen}) == 3
    assert len({worker for worker, _ in seen}) == 2
