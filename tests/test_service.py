"""The systemd units: sandboxed as docs/explanation/security.md says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_tiresias.doctor import run_folder
from slurm_tiresias.doctor.checks.plugins import RUN_OPTIONS, RUN_UNIT

ROOT = Path(__file__).parents[1]
UNITS = ("tiresias-slurm.service", "tiresias-slurm-sampler.service")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_sandboxed_as_documented(unit: str) -> None:
    page = (ROOT / "docs" / "explanation" / "security.md").read_text()
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


@pytest.mark.parametrize("unit", UNITS)
def test_a_units_memory_and_tasks_are_limited(unit: str) -> None:
    text = (ROOT / "etc" / unit).read_text()
    assert re.search(r"^MemoryMax=[1-9]\d*[MG]$", text, re.MULTILINE)
    assert re.search(r"^TasksMax=[1-9]\d*$", text, re.MULTILINE)


def test_the_mount_is_for_the_folder_that_the_plugin_uses() -> None:
    unit = (ROOT / "etc" / "slurm-tiresias.mount").read_text()
    assert f"Where={run_folder.DEFAULT}\n" in unit
    assert f"Options={RUN_OPTIONS}\n" in unit
    assert f'.run = "{run_folder.DEFAULT}"' in (ROOT / "spank" / "arguments.c").read_text()
    sampler = (ROOT / "etc" / "tiresias-slurm-sampler.service").read_text()
    assert re.search(rf"^After=.* {re.escape(RUN_UNIT)}$", sampler, re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="no systemd-escape")
def test_the_mount_unit_has_the_name_that_systemd_requires() -> None:
    command = ["systemd-escape", "--path", "--suffix=mount", run_folder.DEFAULT]
    named = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert named == RUN_UNIT
    rules = (ROOT / "debian" / "rules").read_text()
    assert f"RUN_MOUNT = {named.removesuffix('.mount')}\n" in rules


def test_the_controller_does_not_run_as_root() -> None:
    unit = (ROOT / "etc" / "tiresias-slurm.service").read_text()
    assert re.search(r"^User=slurm$", unit, re.MULTILINE)
    assert re.search(r"^CapabilityBoundingSet=$", unit, re.MULTILINE)
