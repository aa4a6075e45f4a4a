"""A real cluster that loads the plugin, for tests: set it up, run a job, read the results."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.testbed.real_cluster import RealCluster

ROOT = Path(__file__).parents[2]
SPANK = ROOT / "spank"
LUA = ROOT / "etc" / "job_submit.lua"

NOBODY = 65534

WAITING_STEP = re.compile(r"^srun: (Job \d+ s|S)tep crea(ted|tion).*\n", re.MULTILINE)
"""srun's message while slurmctld is still busy with the previous step; it is not the job's."""

TRAFFIC_FILE_BYTES = 86016
TRAFFIC_MAGIC = b"TIRESTRF"


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``make`` in the plugin's folder."""
    command = ["make", "-C", str(SPANK), *arguments]
    # A make that runs these tests must not pass its own options on.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended and what it wrote."""

    job: str
    status: str
    output: str


class PluginCluster:
    """A cluster whose steps and epilogs read ``plugstack.conf`` each time, so that tests can change
    it."""

    def __init__(self, cluster: RealCluster, folder: Path, build: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.library = build / "spank_tiresias.so"
        self.run_folder = folder / "run"
        self.collect_folder = folder / "collect"
        self.progress_folder = self.collect_folder / "progress"
        self.work = folder / "work"

    def reset(self) -> None:
        """Use empty folders, and set up the plugin with just their paths."""
        for path in (self.run_folder, self.collect_folder, self.work):
            shutil.rmtree(path, ignore_errors=True)
        self.collect_folder.mkdir()
        self.work.mkdir()
        self.work.chmod(0o777)  # jobs run as another user
        self.set_up()

    def set_up(self, *arguments: str, library: Path | None = None) -> None:
        """Write ``plugstack.conf``; of two arguments with the same name the later counts."""
        line = ["optional", str(library or self.library)]
        line += [f"run={self.run_folder}", f"collect={self.collect_folder}", *arguments]
        conf = self.cluster.folder / "etc" / "plugstack.conf"
        draft = conf.with_suffix(".new")
        draft.write_text(" ".join(line) + "\n")
        # Atomically: a slurmd that has just started may be reading it, and with an empty file it
        # would never run the plugin's prolog.
        draft.replace(conf)

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch script as user nobody, with its own output file; return the job's id."""
        file = self.work / "script"
        file.write_text(f"#!/bin/bash\n{script}\n")
        user = [f"--uid={NOBODY}", f"--gid={NOBODY}"] if os.geteuid() == 0 else []
        output = self.work / "%j.out"
        command = ["sbatch", "--parsable", *user, f"--chdir={self.work}", f"--output={output}"]
        return self.cluster.run(*command, *options, str(file)).strip()

    def wait(self, job: str) -> Ended:
        """Wait until the job has ended and its nodes have finished with it."""
        self.cluster.wait_until(lambda: self._has_ended(job), f"job {job} has ended")
        shown = self._show(job)
        output = (self.work / f"{job}.out").read_text()
        return Ended(job, shown["ExitCode"], WAITING_STEP.sub("", output))

    def finish(self, script: str, *options: str) -> Ended:
        """Submit a job, and wait until it has ended."""
        return self.wait(self.submit(script, *options))

    def requeue(self, job: str) -> None:
        """Requeue a running job and let it start again at once."""
        self.cluster.run("scontrol", "requeue", job)
        self.cluster.wait_until(
            lambda: self._show(job)["JobState"] == "PENDING", f"job {job} has left its nodes"
        )
        self.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")

    def restarts(self, job: str) -> int:
        """Return how often the job was restarted."""
        return int(self._show(job)["Restarts"])

    def collected(self) -> Sequence[str]:
        """Return the names of the collected files, without the controller's own."""
        return sorted(
            path.name
            for path in self.collect_folder.iterdir()
            if path.name not in ("known", "progress", "gpu-use")
        )

    def reported(self) -> Sequence[str]:
        """Return the names of the files with the progress of jobs."""
        return sorted(path.name for path in self.progress_folder.iterdir())

    def left(self) -> Sequence[str]:
        """Return the contents of the nodes' run folder."""
        return sorted(path.name for path in self.run_folder.iterdir())

    def traffic(self, name: str) -> bytes:
        """Return the content of a collected file."""
        return (self.collect_folder / name).read_bytes()

    def _has_ended(self, job: str) -> bool:
        ended = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")
        if self._show(job)["JobState"] not in ended:
            return False
        return not self.cluster.run("squeue", "-h", "-j", job, "-t", "COMPLETING").strip()

    def _show(self, job: str) -> dict[str, str]:
        answer = self.cluster.run("scontrol", "-o", "show", "job", job)
        fields = (word.partition("=") for word in answer.split())
        return {key: value for key, _, value in fields}
