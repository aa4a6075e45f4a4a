"""The policy and the feature that CONTRIBUTING.md adds work as the page says, with its steps."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from scripts import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILE = re.compile(r"```python\n# (slurm_tiresias/\S+)\n(.*?)```", re.DOTALL)
DIFF = re.compile(r"```diff\n(.*?)```", re.DOTALL)

COLUMNS = ("job_id", "submit_time_s", "num_gpus", "duration_s", "user")
JOBS = (
    # id, submission, GPUs, duration
    ("running", 0, 4, 100),
    ("wide", 10, 4, 100),
    ("middle", 20, 3, 100),
    ("narrow", 30, 2, 100),
)


OF_USERS = (
    # id, submission, GPUs, duration, user
    ("ann has", 0, 2, 1000, "ann"),
    ("ben has", 0, 2, 1000, "ben"),
    ("ann waits", 10, 2, 100, "ann"),
    ("eve waits", 20, 2, 100, "eve"),
)


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """The package with the policy and the feature of the page in it."""
    package = tmp_path / "slurm_tiresias"
    shutil.copytree(ROOT / package.name, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, code in FILE.findall(PAGE):
        (tmp_path / name).write_text(code)
    for diff in DIFF.findall(PAGE):
        apply(diff, tmp_path)
    yield tmp_path


def apply(diff: str, folder: Path) -> None:
    """Replace the lines that a diff removes or keeps by those that it adds or keeps."""
    name, *hunks = re.split(r"^@@.*\n", diff, flags=re.MULTILINE)
    path = folder / re.findall(r"\+\+\+ b/(\S+)", name)[0]
    text = path.read_text()
    for hunk in hunks:
        lines = hunk.splitlines()
        before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
        after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
        assert text.count(before) == 1, f"CONTRIBUTING.md: {path.name} has no\n{before}"
        text = text.replace(before, after)
    path.write_text(text)


def simulate(
    folder: Path, policy: str, *options: str, jobs: Sequence[tuple[object, ...]] = JOBS
) -> dict[str, float]:
    """Return the simulated start of each job on four GPUs."""
    trace, outcome = folder / "jobs.csv", folder / f"{policy}.csv"
    rows = [",".join(map(str, row)) for row in jobs]
    trace.write_text("\n".join([",".join(COLUMNS[: len(jobs[0])]), *rows, ""]))
    command = ("-m", "slurm_tiresias.cli", "simulate", "--policy", policy, "--trace", str(trace))
    subprocess.run(
        [sys.executable, *command, "--cluster", "1x4", "--csv", str(outcome), *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        check=True,
    )
    with outcome.open() as lines:
        return {row["job_id"]: float(row["first_start_s"]) for row in csv.DictReader(lines)}


def test_the_policy_of_the_page_starts_narrow_jobs_first(copy: Path) -> None:
    starts_s = simulate(copy, "narrowest-first")
    assert sorted(starts_s, key=starts_s.__getitem__) == ["running", "narrow", "middle", "wide"]
    first_in_first_out = simulate(copy, "tiresias-l")
    assert first_in_first_out["wide"] < first_in_first_out["middle"]


def test_a_site_can_configure_the_policy_of_the_page(copy: Path) -> None:
    site = copy / "tiresias.toml"
    site.write_text('[policy]\nname = "narrowest-first"\n')
    starts_s = simulate(copy, "narrowest-first", "--config", str(site))
    assert starts_s["narrow"] < starts_s["wide"]


def test_the_feature_of_the_page_lets_the_first_job_of_another_user_go_ahead(copy: Path) -> None:
    site = copy / "tiresias.toml"
    site.write_text("[policy]\nthresholds_gpu_s = [100]\n[preemption]\nmin_run_s = 0\n")
    options = ("--config", str(site))
    starts_s = simulate(copy, "tiresias-l", *options, jobs=OF_USERS)
    assert starts_s["eve waits"] < starts_s["ann waits"]
    shutil.rmtree(copy / "slurm_tiresias")
    shutil.copytree(ROOT / "slurm_tiresias", copy / "slurm_tiresias")
    starts_s = simulate(copy, "tiresias-l", *options, jobs=OF_USERS)
    assert starts_s["ann waits"] <= starts_s["eve waits"]
