"""The built monitor, and a traffic file for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.monitor.running import Monitor, make


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the libraries and their test programs."""
    if shutil.which("make") is None or shutil.which("cc") is None:
        pytest.skip("no make or no C compiler on this machine")
    folder = tmp_path_factory.mktemp("monitor")
    made = make(folder, "monitor-tests")
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def monitor(build: Path, tmp_path: Path) -> Monitor:
    """The monitor with an empty traffic file."""
    made = Monitor(build, tmp_path / "7.0.node1.traffic")
    made.empty_file()
    return made
