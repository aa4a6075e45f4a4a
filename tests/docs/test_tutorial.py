"""The users' tutorial is followed as a reader would: its files are saved, its commands typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scripts import ROOT
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from scripts.tools.docs.commands import commands
from scripts.tools.docs.pages import page
from tests.docs.place import TUTORIAL

JOB_OF_THE_PAGE = "17"


def files_of_the_page() -> Iterator[tuple[str, str]]:
    """Yield the name and content of each file that the page tells its reader to save."""
    name = ""
    text: dict[str, list[str]] = {}
    for line in page(TUTORIAL).lines:
        if not line.block and line.text.strip():
            saved = re.search(r"save this as `([\w.]+)`:$", line.text, re.IGNORECASE)
            name = saved[1] if saved else ""
        elif line.block and name:
            text.setdefault(name, []).append(line.text + "\n")
    for name, lines in text.items():
        yield name, "".join(lines)


class Reader:
    """Follows the page in a folder of its own."""

    def __init__(self, folder: Path, controller: RealController) -> None:
        self.folder = folder
        self.cluster = controller.cluster
        self.controller = controller
        self.job = ""
        self.environment: Mapping[str, str] = {
            **controller.environment,
            "TIRESIAS_CONFIG": str(controller.config_file),
            "PYTHONPATH": str(ROOT),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }
        (folder / "bin").mkdir()
        program = folder / "bin" / "tiresias-slurm"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m slurm_tiresias.cli "$@"\n')
        program.chmod(0o755)
        for name, text in files_of_the_page():
            (folder / name).write_text(text)

    def type(self, text: str) -> str:
        """Type a command of the page once its job is so far; return what it prints."""
        self._wait_before(text)
        typed = re.sub(rf"\b{JOB_OF_THE_PAGE}\b", self.job, text)
        ended = subprocess.run(
            ["bash", "-c", typed],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{typed}: {ended.stdout}{ended.stderr}"
        if text.startswith("sbatch "):
            (self.job,) = re.findall(r"Submitted batch job (\d+)", ended.stdout)
        return ended.stdout

    def _wait_before(self, text: str) -> None:
        if text.startswith("tiresias-slurm explain"):
            self.controller.wait_until(lambda: self.controller.job(self.job), "the job")
        elif text.startswith("scontrol requeue"):
            self.cluster.wait_until(lambda: self._starts() == 1, "the first start")
        elif text.startswith("scontrol update"):
            self.cluster.wait_for_state(self.job, "PENDING")
        elif text.startswith("cat "):
            self.cluster.wait_until(lambda: self._starts() == 2, "the second start")

    def _starts(self) -> int:
        output = self.folder / f"slurm-{self.job}.out"
        return output.read_text().count("resumed at step") if output.exists() else 0


@pytest.mark.slurm
def test_the_users_tutorial_works_as_typed(clean_cluster: RealCluster, tmp_path: Path) -> None:
    (tmp_path / "controller").mkdir()
    (tmp_path / "home").mkdir()
    controller = RealController(clean_cluster, tmp_path / "controller").start()
    try:
        reader = Reader(tmp_path / "home", controller)
        said = {
            one.text: reader.type(one.text) for one in commands(page(TUTORIAL)) if not one.in_prose
        }
    finally:
        controller.stop()
        clean_cluster.run("scancel", "--me")
    drilled = said["tiresias-slurm drill train.sbatch"]
    assert re.search(r"4 trials: ([12] not tested, )?[234] passed\.", drilled)
    steps = re.findall(r"(?:saved|resumed at) step (\d+)", said[f"cat slurm-{JOB_OF_THE_PAGE}.out"])
    first, *saved, resumed = map(int, steps)
    assert (first, resumed) == (0, saved[-1])
    assert "requeued" in said[f"tiresias-slurm history {JOB_OF_THE_PAGE}"]
