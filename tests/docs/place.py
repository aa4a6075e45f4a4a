"""A folder, a cluster and a controller in which the commands of the pages can be typed."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shlex
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from click.testing import CliRunner

from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.cli.main import cli
from tests.docs.accounted import MAY_END_WITH

ROOT = Path(__file__).parents[2]
LINKED = ("docs", "etc", "examples", "scripts", "spank")

JOBS_CSV = """\
job_id,submit_time_s,num_gpus,duration_s,model,user
101,0,8,14400,vgg16,ada
102,600,1,900,resnet50,ben
103,900,4,1200,,ada
104,1500,2,0,resnet50,cy
105,4000,8,600,googlenet,ben
106,4100,64,600,,cy
"""

SMALLER: Mapping[str, str] = {
    r"philly-like:5000": "philly-like:100",
    r"philly-like:1000@": "philly-like:60@",
    r"^tiresias-slurm tune ": "tiresias-slurm tune --workers 1 ",
    r"--steps 600 ": "--steps 16 ",
    r"examples/train\.sbatch$": "examples/train.sbatch --steps 16 --step-seconds 0.5",
}
"""Parts of commands that take long here, and their quick replacements."""

TUTORIAL = "docs/tutorial/user.md"
"""The page that is followed by a test of its own, from its first command to its last."""

ENDED = 20
"""How many jobs have ended before the commands are typed."""

TRAINED = "examples/README.md"
"""The page whose first job is trained, requeued and verified; its id is 17 there."""


class Place:
    """Where commands are typed. ``job`` is one that the controller manages."""

    def __init__(self, folder: Path, controller: RealController, job: str) -> None:
        self.folder = folder
        self.cluster: RealCluster = controller.cluster
        self.job = job
        self.trained = ""
        self.environment = {
            **controller.environment,
            "TIRESIAS_CONFIG": str(controller.config_file),
            "PYTHONPATH": str(ROOT),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }
        self._furnish(controller.config_file)

    def _furnish(self, config: Path) -> None:
        for name in LINKED:
            (self.folder / name).symlink_to(ROOT / name)
        (self.folder / "bin").mkdir()
        program = self.folder / "bin" / "tiresias-slurm"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m slurm_tiresias.cli "$@"\n')
        program.chmod(0o755)
        (self.folder / "tiresias.toml").write_text(config.read_text())
        (self.folder / "cluster.toml").write_text("[[group]]\nnodes = 4\ngpus = 4\n")
        (self.folder / "jobs.csv").write_text(JOBS_CSV)
        (self.folder / "train.sh").write_text("#!/bin/sh\nsleep 60\n")
        for name in ("model", "part-1", "part-2"):
            (self.folder / f"{name}.safetensors").write_bytes(safetensors(f"{name}.weight"))

    def as_typed_here(self, text: str, page: str) -> str:
        """The command with this place's ids, dates and files in the place of the page's."""
        text = re.sub(r"\b(12345|JOBID)\b", self.job, text)
        text = text.replace("DATE", "2026-01-01")
        # A period and a user that have jobs here.
        text = text.replace("-S 2026-01-01 -E 2026-02-01", "-S now-1day")
        text = text.replace("-u alice", f"-u {getpass.getuser()}")
        text = text.replace("/etc/slurm-tiresias/tiresias.toml", "tiresias.toml")
        if page == TRAINED:
            text = re.sub(r"\b17\b", self.trained, text)
        for pattern, smaller in SMALLER.items():
            text = re.sub(pattern, smaller, text)
        return text

    def run(self, text: str, page: str) -> str:
        """Type it; what is wrong with how it went, if anything is."""
        self._make_ready_for(text, page)
        typed = self.as_typed_here(text, page)
        code, said = self._call(typed)
        if typed.startswith("sbatch"):
            self._has_submitted(said, page)
        right = {0}.union(*(codes for p, codes in MAY_END_WITH.items() if re.fullmatch(p, text)))
        if code in right and "Traceback" not in said:
            return ""
        return f"{typed!r} ended with {code}: {said[-1000:]}"

    def _call(self, typed: str) -> tuple[int, str]:
        if re.fullmatch(r"tiresias-slurm [^|<>$;'\"]*", typed):
            with contextlib.chdir(self.folder):
                # A start of Python each would take the most of the time.
                words = shlex.split(typed)[1:]
                result = CliRunner(env=self.environment).invoke(cli, words)
            if result.exception and not isinstance(result.exception, SystemExit):
                return -1, repr(result.exception)
            return result.exit_code, result.output
        ended = subprocess.run(
            ["bash", "-c", typed],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return ended.returncode, ended.stdout

    def _make_ready_for(self, text: str, page: str) -> None:
        if text.startswith("scontrol requeue") and page == TRAINED:
            self._wait(self._has_begun, "the first step of the training")
        if text.endswith("--verify"):
            self._wait(self._has_finished, "the end of the training")

    def _has_submitted(self, said: str, page: str) -> None:
        (job,) = re.findall(r"Submitted batch job (\d+)", said)
        if page == TRAINED and not self.trained:
            self.trained = job
        else:
            self.cluster.run("scancel", job)

    def _has_begun(self) -> bool:
        """The first of 16 steps is done; the others take more than seven seconds."""
        journal = self.folder / f"train-{self.trained}" / "journal.jsonl"
        return journal.exists() and "fingerprint" in journal.read_text()

    def _has_finished(self) -> bool:
        """Slurm would let it wait for two minutes more before it starts again."""
        state = self.cluster.squeue_field(self.trained, "State")
        if state == "PENDING":
            # It may have been started meanwhile, and is refused then.
            with contextlib.suppress(AssertionError):
                self.cluster.run("scontrol", "update", f"JobId={self.trained}", "StartTime=now")
        return state == "COMPLETED"

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        self.cluster.wait_until(condition, what)


def _accounted(cluster: RealCluster, array: str) -> bool:
    states = cluster.run("sacct", "-n", "-X", "-j", array, "-o", "State").split()
    return states == ["COMPLETED"] * ENDED


def safetensors(name: str) -> bytes:
    """A file with one tensor of 16 floats."""
    entry = {name: {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}
    head = json.dumps(entry).encode()
    return struct.pack("<Q", len(head)) + head + bytes(64)


@contextlib.contextmanager
def managed_place(folder: Path, controller: RealController) -> Iterator[Place]:
    """A place whose controller has looked on first, and acts now."""
    cluster = controller.cluster
    # As many as tune needs.
    over = cluster.sbatch("--partition=gpu", "--gpus=1", f"--array=1-{ENDED}", script="sleep 1")
    controller.wait_until(lambda: _accounted(cluster, over), "the end of jobs in accounting")
    in_the_way = cluster.sbatch("--partition=gpu", "--requeue", "--nodes=4", "--gpus-per-node=4")
    cluster.wait_for_state(in_the_way, "RUNNING")
    job = cluster.sbatch("--partition=gpu", "--requeue", "--gpus=1", "--job-name=train")
    controller.start("--shadow")
    # Slurm alone leaves the one where it is, and the other waiting.
    controller.wait_until(lambda: controller.events("would"), "a decision of shadow mode")
    controller.stop()
    cluster.run("scancel", in_the_way)
    cluster.wait_for_state(job, "RUNNING")
    controller.start()
    controller.wait_until(lambda: controller.job(job), "the job")
    try:
        yield Place(folder, controller, job)
    finally:
        controller.kill()
