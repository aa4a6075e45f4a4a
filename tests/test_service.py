"""The systemd units: as tightly closed as docs/security.md says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UNITS = ("tiresias-slurm.service", "tiresias-slurm-sampler.service")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_as_closed_as_the_page_says(unit: str) -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    said = re.search(rf"etc/{re.escape(unit)} +(\d\.\d)", page)
    ended = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", ROOT / "etc" / unit],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d)", ended.stdout)
    assert found and said, ended.stderr
    assert float(found[1]) <= float(said[1])


def test_the_controller_does_not_run_as_root() -> None:
    unit = (ROOT / "etc" / "tiresias-slurm.service").read_text()
    assert re.search(r"^User=slurm$", unit, re.MULTILINE)
    assert re.search(r"^CapabilityBoundingSet=$", unit, re.MULTILINE)
