"""A release: its notes, its bill of materials, its page, and builds that can be repeated."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts.tools import release
from scripts.tools.lock import LOCK
from slurm_tiresias import __version__

ROOT = Path(__file__).parents[1]
LOCKED = """\
# a comment
click==8.5.1 \\
    --hash=sha256:8bb5
num_py==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:9bbf
"""


def test_the_notes_of_a_release_are_those_of_its_version() -> None:
    log = "# Changelog\n\n## [0.2.0] - 2027-01-02\n\nnew\n\n## [0.1.0] - 2026-01-02\n\n- first\n"
    assert release.notes_of(log, "0.2.0") == "new"
    assert release.notes_of(log, "0.1.0") == "- first"


@pytest.mark.parametrize("head", ["## [0.1.0] - unreleased", "## [0.1.1] - 2026-01-02"])
def test_a_version_without_a_date_is_not_released(head: str) -> None:
    with pytest.raises(release.ReleaseError, match=r"no version 0\.1\.0 with a date"):
        release.notes_of(f"{head}\n\n- first\n", "0.1.0")


def test_the_changelog_has_this_version_and_only_what_it_adds() -> None:
    notes = release.notes_of((ROOT / "CHANGELOG.md").read_text(), __version__)
    assert [line for line in notes.splitlines() if line.startswith("### ")] == ["### Added"]


def test_the_bill_of_materials_lists_what_is_locked() -> None:
    found = release.sbom(LOCKED, "2026-01-02T00:00:00Z")
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    assert found["metadata"]["component"]["purl"] == f"pkg:pypi/slurm-tiresias@{__version__}"
    locked = ["pkg:pypi/click@8.5.1", "pkg:pypi/num-py@2.4.6"]
    assert [each["purl"] for each in found["components"]] == locked
    assert found["dependencies"][0]["dependsOn"] == locked


def test_the_bill_of_materials_has_every_locked_package() -> None:
    lock = LOCK.read_text()
    found = release.sbom(lock, "2026-01-02T00:00:00Z")["components"]
    assert len(found) == sum("==" in line and line[0] != "#" for line in lock.splitlines())
    assert len({each["bom-ref"] for each in found}) == len(found)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can install what the build needs")
def test_a_release_is_built_twice_alike_and_its_wheels_install(tmp_path: Path) -> None:
    """Fetches the locked requirements with pip."""
    ended = CliRunner().invoke(release.release, ["--into", str(tmp_path)])
    assert ended.exit_code == 0, ended.output
    check = ["sha256sum", "--check", "--quiet", release.CHECKSUMS]
    subprocess.run(check, cwd=tmp_path, check=True)
    names = {path.suffix for path in tmp_path.iterdir()}
    assert {".whl", ".deb", ".json", ".md", ".lock"} <= names
    assert json.loads((tmp_path / release.SBOM).read_text())["metadata"]["timestamp"].endswith("Z")
    assert (tmp_path / release.PAGE).read_text().count(".deb") == 4
