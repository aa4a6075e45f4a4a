"""The demo's jobs in Slurm: submitted like a user's, watched with squeue, and verified."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import ROOT
from scripts.testbed.jobs import POLL_S, slurm
from scripts.testbed.place import DemoError, Place
from scripts.tools.demo.mix import STEP_S, Job

RUN_PATIENCE_S = 400.0
SAVE_EVERY_S = 5.0


@dataclass(frozen=True)
class Submitted:
    """A job of the mix, and the id that Slurm gave it."""

    job: Job
    job_id: str
    folder: Path


@dataclass(frozen=True)
class Counts:
    """The progress of a run."""

    submitted: int = 0
    finished: int = 0
    running: int = 0
    waiting: int = 0
    busy_gpus: int = 0
    preemptions: int = 0


def submit(place: Place, job: Job, folder: Path) -> Submitted:
    answer = slurm(
        place,
        *("sbatch", "--parsable", f"--job-name={job.name}", f"--gpus={job.gpus}"),
        *(f"--nodes={job.nodes}", f"--ntasks={job.nodes}", f"--time={job.limit_min}"),
        *(f"--output={folder}.out", "examples/train.sbatch", f"--dir={folder}"),
        *(f"--steps={job.steps}", f"--step-seconds={STEP_S}", f"--save-every-s={SAVE_EVERY_S}"),
    )
    return Submitted(job, answer.strip(), folder)


def run(
    place: Place, name: str, jobs: Sequence[Job], show: Callable[[Counts], None]
) -> list[Submitted]:
    """Submit each job at its time, and return when all have ended."""
    began_s = time.monotonic()
    submitted: list[Submitted] = []
    preemptions: dict[str, int] = {}
    while True:
        now_s = time.monotonic() - began_s
        while len(submitted) < len(jobs) and jobs[len(submitted)].arrives_s <= now_s:
            job = jobs[len(submitted)]
            submitted.append(submit(place, job, place.jobs / f"{name}-{job.name}"))
        counts = look(place, submitted, preemptions)
        show(counts)
        if counts.finished == len(jobs):
            return submitted
        if now_s > RUN_PATIENCE_S:
            raise DemoError(f"after {RUN_PATIENCE_S:g} s not all jobs had ended")
        time.sleep(POLL_S)


def look(place: Place, submitted: Sequence[Submitted], preemptions: dict[str, int]) -> Counts:
    """Return what squeue shows; ``preemptions`` also keeps counts of jobs that left the queue."""
    rows = slurm(place, "squeue", "-h", "-O", "JobID:|,State:|,RestartCnt:|").splitlines()
    states: dict[str, str] = {}
    for row in rows:
        job_id, state, restarts = row.split("|")[:3]
        states[job_id] = state
        preemptions[job_id] = int(restarts)
    running = [one for one in submitted if states.get(one.job_id) == "RUNNING"]
    waiting = [one for one in submitted if states.get(one.job_id) == "PENDING"]
    return Counts(
        submitted=len(submitted),
        finished=sum(one.job_id not in states for one in submitted),
        running=len(running),
        waiting=len(waiting),
        busy_gpus=sum(one.job.gpus for one in running),
        preemptions=sum(preemptions.get(one.job_id, 0) for one in submitted),
    )


def proof(place: Place, one: Submitted) -> dict[str, Any]:
    """Return what ``train.py --verify`` says about this job's journal."""
    program = str(ROOT / "examples" / "train.py")
    command = ["python3", program, "--verify", f"--dir={one.folder}", f"--steps={one.job.steps}"]
    answer = subprocess.run(
        command, env=place.environment(), capture_output=True, text=True, check=False
    )
    try:
        said: dict[str, Any] = json.loads(answer.stdout)
    except ValueError:
        said = {"each_step_once": False, "problems": [answer.stderr.strip()], "steps_redone": 0}
    return said


def proofs(place: Place, submitted: Sequence[Submitted]) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(lambda one: proof(place, one), submitted))
