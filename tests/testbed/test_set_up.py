"""What scripts/test installs before the checks."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from scripts.testbed.cluster import main, packages
from scripts.testbed.debian.machine import NEEDED
from scripts.tools.matrix import root

ROOT = Path(__file__).parents[2]


def installed_by_the_tests() -> set[str]:
    """What scripts/test installs besides Slurm."""
    text = (ROOT / "scripts" / "test").read_text()
    listed = re.search(r"^packages=\(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL)
    assert listed
    return set(re.sub(r"#.*", "", listed[1]).split())


def test_scripts_test_installs_what_the_matrix_has_and_what_makes_a_matrix() -> None:
    essential = {"apt", "util-linux"}
    assert {*root.BUILDING, *root.TESTS, "libslurm-dev", "python3-venv"} <= installed_by_the_tests()
    assert set(NEEDED.values()) - essential <= installed_by_the_tests()


def test_an_ordinary_user_sees_in_one_line_what_root_has_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(packages, "PACKAGES", {"no-such-daemon": "slurm-of-tomorrow"})
    monkeypatch.setattr("sys.argv", ["cluster", "install", "no-such-package", "bash"])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert main.main() == 2
    missing = "no-such-package, slurm-of-tomorrow"
    if shutil.which("apt-get") is None:
        expected = f"{missing} not found."
    else:
        expected = f"Run as root: apt-get install {missing.replace(',', '')}\n"
    said = capsys.readouterr().err
    assert expected in said and said.count("\n") == 1


def test_nothing_is_installed_if_everything_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "PACKAGES", {"sh": "dash"})
    monkeypatch.setattr(packages, "install", lambda packages: pytest.fail(f"{packages}"))
    assert main.dispatch(["install", "bash"]) == 0
