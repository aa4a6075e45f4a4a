"""A site on which commands run, and a clock that stands still."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import Site
from tests.cli.states import NOW_S


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr("time.time", lambda: NOW_S)
    monkeypatch.setenv("TZ", "UTC")
    return Site(tmp_path)


@pytest.fixture
def live_site(tmp_path: Path) -> Site:
    """A site for separate processes, which read the real clock."""
    return Site(tmp_path)
