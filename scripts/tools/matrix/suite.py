"""Run the tests in a root, and read the results."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from scripts.testbed.cluster.packages import answer_of
from scripts.testbed.debian import namespaces
from scripts.tools.document import SLURM_RELEASES, called, markdown, write_section
from scripts.tools.matrix.root import RESULTS, SOURCE, VENVS, Root, clear_tmp, environment

IN_PARALLEL = ("-n", "6", "-p", "tests.distribution")

WHOLE = ("-m", "not long")
"""The first driver runs the whole of scripts/test, since the root's Python differs too."""

ON_A_CLUSTER = ("-m", "slurm and not long")
"""Other drivers run only the tests that use them."""

HEADER = ("Debian", "Python", "passed", "failed", "skipped", "s")

SHORT = (
    "tests/slurm/test_command_driver.py",
    "tests/slurm/test_contract.py",
    "tests/slurm/test_controller.py",
    "tests/slurm/test_placing_on_slurm.py",
    "tests/spank",
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the tests on one release with one driver."""

    slurm: str
    debian: str
    python: str
    driver: str
    seconds: float
    passed: int
    failed: tuple[str, ...]
    skipped: tuple[tuple[str, int], ...]
    """Reasons for skips, and the number of each."""
    said: str = ""
    """The output, if there were no results."""

    @property
    def is_good(self) -> bool:
        return not self.failed and not self.said and self.passed > 0


def run(root: Root, driver: str, tests: Sequence[str], patience_s: float) -> Run:
    """Run the tests, with their output on this program's output."""
    report = root / RESULTS / "junit.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    clear_tmp(root)
    pytest = [f"{VENVS[driver]}/bin/python", "-m", "pytest", "-q"]
    pytest.append(f"--junitxml={RESULTS}/junit.xml")
    began_s = time.monotonic()
    said = ""
    try:
        subprocess.run(
            namespaces.entering(root.path, [*pytest, *tests], str(SOURCE)),
            env={**environment(driver), "CI": "1"},
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=patience_s,
        )
    except subprocess.TimeoutExpired:
        said = f"not within {patience_s:.0f} s"
    passed, failed, skipped = read_report(report) if report.exists() else (0, (), ())
    if not report.exists():
        said = said or "pytest ended without a report"
    return Run(
        slurm=version_in(root, ["slurmctld", "-V"]),
        debian=root.release.debian,
        python=version_in(root, ["python3", "-V"]),
        driver=driver,
        seconds=time.monotonic() - began_s,
        passed=passed,
        failed=failed,
        skipped=skipped,
        said=said,
    )


def version_in(root: Root, command: Sequence[str]) -> str:
    """Return the version number at the end of a program's output."""
    _, said = answer_of(namespaces.entering(root.path, command), namespaces.ENVIRONMENT)
    return said.split()[-1] if said.strip() else "?"


def read_report(path: Path) -> tuple[int, tuple[str, ...], tuple[tuple[str, int], ...]]:
    """What passed (how many), failed (names) and was skipped (why, how many), by JUnit's file."""
    passed = 0
    failed: list[str] = []
    skipped: Counter[str] = Counter()
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif (skip := case.find("skipped")) is not None:
            skipped[skip.get("message", "")] += 1
        else:
            passed += 1
    return passed, tuple(dict.fromkeys(failed)), tuple(sorted(skipped.items()))


def record(run: Run) -> None:
    """Write the section of this release and driver: what failed, and what was skipped and why."""
    skipped = sum(count for _, count in run.skipped)
    counts = (run.passed, len(run.failed), skipped, round(run.seconds))
    lines = [f"- failed: `{name}`" for name in run.failed]
    lines += [f"- skipped, {count}: {' '.join(why.split())}" for why, count in run.skipped]
    lines += [f"- {run.said}"] if run.said else []
    table = markdown(HEADER, [(run.debian, run.python, *map(str, counts))])
    title = f"Slurm {run.slurm}, {run.driver}"
    write_section(title, called(), "\n\n".join([table, "\n".join(lines)]), SLURM_RELEASES)
