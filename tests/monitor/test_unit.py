"""The unit tests in C, also under sanitizers and valgrind."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.monitor.running import Monitor, announced, make
from tests.monitor.test_sending import EXACT


@pytest.mark.parametrize("goal", ["test-monitor", "test-monitor-asan", "test-monitor-tsan"])
def test_the_unit_tests_pass(build: Path, goal: str) -> None:
    ended = make(build, goal)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("program", EXACT)
def test_the_hooks_are_clean_under_the_sanitizers(monitor: Monitor, program: str) -> None:
    built = make(monitor.build, str(monitor.build / "tests" / "senders_asan"))
    assert built.returncode == 0, built.stderr
    inside = replace(monitor, settings={"LD_PRELOAD": ""})
    ended = inside.run(monitor.program("senders_asan"), program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert monitor.messages().listed == announced(ended.stdout)


@pytest.mark.long
def test_the_unit_tests_pass_under_valgrind(build: Path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind on this machine")
    ended = make(build, "test-monitor-valgrind")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "program",
    [
        *("every_function", "interrupted"),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("partial", "forked")),
    ],
)
def test_a_program_with_the_monitor_is_clean_under_valgrind(monitor: Monitor, program: str) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind on this machine")
    options = ("--quiet", "--error-exitcode=99", "--trace-children=yes")
    ended = monitor.run("valgrind", *options, monitor.program("senders"), program)
    assert ended.returncode == 0, ended.stderr
