"""The matrix of releases: what it reads, what it reports, and that it leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import click
import pytest

from scripts.testbed.debian import machine, namespaces
from scripts.testbed.debian.namespaces import Namespaces
from scripts.testbed.patience import wait_until
from scripts.tools.document import Document, write_section
from scripts.tools.matrix import root, suite, upgrade
from scripts.tools.matrix.main import matrix
from scripts.tools.matrix.releases import COMMANDS, PYSLURM, RELEASES, Release
from scripts.tools.matrix.root import Root
from scripts.tools.matrix.suite import Run
from scripts.tools.matrix.upgrade import Upgrade

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
<testcase classname="tests.test_a" name="test_good" time="1.0"/>
<testcase classname="tests.test_a" name="test_bad[n1]"><failure message="no">no</failure></testcase>
<testcase classname="tests.test_a" name="test_broken"><error message="no">no</error></testcase>
<testcase classname="tests.test_a" name="test_left"><skipped message="no cc"/></testcase>
<testcase classname="tests.test_b" name="test_left"><skipped message="no cc"/></testcase>
</testsuite></testsuites>
"""

GOOD = Run("26.05.5", "forky", "3.14.0", PYSLURM, 61.4, 240, (), ())
BAD = Run(
    *("22.05.8", "bookworm", "3.11.2", COMMANDS, 300.0, 2000),
    failed=("tests/slurm/test_a.py::test_bad",),
    skipped=(("no cc", 2),),
)


def test_a_result_has_passed_failed_and_skipped_tests_with_reasons(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(REPORT)
    bad = ("tests/test_a.py::test_bad[n1]", "tests/test_a.py::test_broken")
    assert suite.read_report(report) == (1, bad, (("no cc", 2),))


def test_the_page_names_failures_and_skips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Document(tmp_path / "releases.md", "# Releases\n")
    monkeypatch.setattr(suite, "SLURM_RELEASES", page)
    monkeypatch.setattr(upgrade, "SLURM_RELEASES", page)
    with click.Context(matrix, info_name="matrix"):
        for run in (BAD, GOOD, GOOD):
            suite.record(run)
        upgrade.record(Upgrade("24.11.5", "26.05.5", 90.0, True, ("5 jobs wait",)))
    lines = page.path.read_text().splitlines()
    assert lines.count("## Slurm 26.05.5, pyslurm") == 1
    assert "| bookworm | 3.11.2 | 2000 | 1 | 2 | 300 |" in lines
    assert "| forky | 3.14.0 | 240 | 0 | 0 | 61 |" in lines
    assert "- failed: `tests/slurm/test_a.py::test_bad`" in lines
    assert "- skipped, 2: no cc" in lines
    assert "## From Slurm 24.11.5 to 26.05.5 under load" in lines and "- 5 jobs wait" in lines


def test_a_measurement_replaces_only_its_own_section(tmp_path: Path) -> None:
    page = Document(tmp_path / "here.md", "# Here\n")
    for title in ("A cycle", "Latency", "Something else"):
        write_section(title, "bench", f"old of {title}", page)
    write_section("Latency", "bench", "new", page)
    told = page.path.read_text()
    assert "\nnew\n\n## Something else\n" in told and "old of Latency" not in told
    assert "old of A cycle" in told and told.endswith("old of Something else\n")


def test_a_run_without_any_test_fails() -> None:
    assert GOOD.is_good and not BAD.is_good
    assert not Run("26.05.5", "forky", "3.14.0", COMMANDS, 1.0, 0, (), ()).is_good


def test_a_layer_and_those_above_it_are_rebuilt_when_its_inputs_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    mirror = ""
    monkeypatch.setattr(root, "copy_of_checkout", lambda _: None)
    monkeypatch.setattr(root, "host_mirror", lambda: mirror)
    monkeypatch.setattr(root, "make_debian", lambda *_: made.append("debian"))
    monkeypatch.setattr(root, "make_venv", lambda *_: made.append("python"))
    one = Root(Release("1.0", "nowhere"), tmp_path)
    for named, expected in (("a", ["debian", "python"]), ("a", []), ("b", ["debian", "python"])):
        made.clear()
        mirror = named
        root.make(one, [COMMANDS])
        assert made == expected

    def fails(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(root, "make_venv", fails)
    mirror = "c"
    with pytest.raises(OSError):
        root.make(one, [COMMANDS])
    monkeypatch.setattr(root, "make_venv", lambda *_: made.append("python"))
    made.clear()
    root.make(one, [COMMANDS])
    assert made == ["python"], "what was cut short is made again, what was whole is not"


def test_every_release_has_the_commands() -> None:
    assert all(COMMANDS in release.drivers for release in RELEASES)


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.skipif(
    not all(map(shutil.which, machine.NEEDED)), reason="what makes a Debian is not installed"
)
def test_a_namespace_ends_with_its_processes_when_its_creator_does(tmp_path: Path) -> None:
    seconds = f"98765.{os.getpid()}"
    script = f"mount -t tmpfs none /mnt && touch /mnt/here; sleep {seconds} & wait"
    before = Path("/proc/self/mounts").read_text()
    command = Namespaces((Path("/"),)).command(["sh", "-c", script])
    with subprocess.Popen(command, env=namespaces.ENVIRONMENT) as maker:
        wait_until(lambda: is_running(seconds), "it is at work")
        maker.kill()
    wait_until(lambda: not is_running(seconds), "nothing of it runs any more")
    assert Path("/proc/self/mounts").read_text() == before
    assert not Path("/mnt/here").exists()


def is_running(word: str) -> bool:
    """Whether a process has this word in its command line."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                return True
    return False
