"""Prometheus's own programs: installed, or put into build/ by scripts/prometheus."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAID_HERE = ROOT / "build" / "prometheus" / "usr" / "bin"


def program(name: str) -> str:
    """The path of a program; without it the test is skipped."""
    found = shutil.which(name, path=str(LAID_HERE)) or shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on this machine: run scripts/prometheus")
    return found
