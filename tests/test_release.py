"""A release: its notes, its bill of materials, its page, and builds that can be repeated."""

from __future__ import annotations

import json
import os
import subprocess
from importlib import metadata
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
    --hash=sha256:8bb5 \\
    --hash=sha256:4c1d
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
    licences = {"pkg:pypi/click@8.5.1": [{"expression": "BSD-3-Clause"}]}
    found = release.sbom(LOCKED, "2026-01-02T00:00:00Z", licences)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    assert found["metadata"]["component"]["purl"] == f"pkg:pypi/slurm-tiresias@{__version__}"
    locked = ["pkg:pypi/click@8.5.1", "pkg:pypi/num-py@2.4.6"]
    assert [each["purl"] for each in found["components"]] == locked
    assert found["dependencies"][0]["dependsOn"] == locked
    assert [each.get("licenses") for each in found["components"]] == [*licences.values(), None]
    files = [each["externalReferences"][0]["hashes"] for each in found["components"]]
    hashes = [["8bb5", "4c1d"], ["9bbf"]]
    assert [[one["content"] for one in each] for each in files] == hashes


@pytest.mark.parametrize(
    ("fields", "licences"),
    [
        (("License-Expression: MIT OR 0BSD", "License: no"), [{"expression": "MIT OR 0BSD"}]),
        (("License: LGPLv2+", "Classifier: License :: x"), [{"license": {"name": "LGPLv2+"}}]),
        (
            ("License: Copyright", "  me", "Classifier: License :: OSI Approved :: BSD License"),
            [{"license": {"name": "BSD License"}}],
        ),
        (("Classifier: Framework :: IPython",), []),
    ],
)
def test_licences_are_read_from_what_is_installed(
    fields: tuple[str, ...], licences: release.Licences, tmp_path: Path
) -> None:
    (tmp_path / "METADATA").write_text("\n".join(("Name: a", *fields, "")))
    assert release.licences_of(metadata.PathDistribution(tmp_path).metadata) == licences


def test_the_page_names_its_commit_or_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "ada")
        monkeypatch.setenv(f"{name}_EMAIL", "ada@localhost")
    release.git("init", "--quiet")
    release.git("commit", "--quiet", "--allow-empty", "-m", "first")
    commit = release.git("rev-parse", "HEAD")
    assert f"Two builds of commit {commit} by" in release.page("", "", release.source())
    release.git("tag", "v0.1")
    assert "Two builds of tag v0.1 by" in release.page("", "", release.source())


def test_the_bill_of_materials_has_every_locked_package() -> None:
    lock = LOCK.read_text()
    found = release.sbom(lock, "2026-01-02T00:00:00Z", {})["components"]
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
    bill = json.loads((tmp_path / release.SBOM).read_text())
    assert bill["metadata"]["timestamp"].endswith("Z")
    assert all("licenses" in one for one in bill["components"] if one["name"] == "click")
    assert (tmp_path / release.PAGE).read_text().count(".deb") == 4
