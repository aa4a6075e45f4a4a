"""The wheel of the library, installed by itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import slurm_tiresias.job as job
print(job.__file__)
list(job.steps(3, print))
"""


def test_the_wheel_has_all_that_the_library_needs(tmp_path: Path) -> None:
    """Built as scripts/package does."""
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(
        ROOT / "slurm_tiresias" / "job",
        source / "slurm_tiresias" / "job",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(ROOT / "LICENSE", source)
    settings = (ROOT / "scripts" / "job-wheel.cfg").read_text().replace("@VERSION@", "1.0")
    (source / "setup.cfg").write_text(settings)
    (source / "setup.py").write_text("from setuptools import setup; setup()")
    build = [sys.executable, "setup.py", "-q", "build", "--build-lib", str(site)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    isolated = [sys.executable, "-S", "-c", PROGRAM]
    ended = subprocess.run(
        isolated,
        env={"PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == f"{site}/slurm_tiresias/job/__init__.py\n3\n"
