"""Jobs in Slurm: submitted as a user would, watched with squeue, told of by sacct."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.demo_lib.mix import STEP_S, Job
from scripts.demo_lib.place import ROOT, DemoError, Place

COMMAND_TIMEOUT_S = 300.0
POLL_S = 0.5
RUN_PATIENCE_S = 400.0
SAVE_EVERY_S = 5.0
REQUEUED = "REQUEUED"
COMPLETED = "COMPLETED"


@dataclass(frozen=True)
class Submitted:
    """A job of the mix and the number Slurm gave it."""

    job: Job
    job_id: str
    folder: Path


@dataclass(frozen=True)
class Counts:
    """How far a run has got."""

    submitted: int = 0
    finished: int = 0
    running: int = 0
    waiting: int = 0
    busy_gpus: int = 0
    preemptions: int = 0


@dataclass(frozen=True)
class AccountedRun:
    """One line of ``sacct --duplicates``: one job from one start to its end or its requeue."""

    job_id: str
    state: str
    submitted_s: int
    elapsed_s: int
    ended_s: int


def slurm(place: Place, *command: str) -> str:
    try:
        answer = subprocess.run(
            command,
            cwd=ROOT,
            env=place.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise DemoError(f"{command[0]} did not answer within {COMMAND_TIMEOUT_S:g} s") from error
    if answer.returncode != 0:
        raise DemoError(f"{command[0]} failed: {answer.stderr.strip()}")
    return answer.stdout


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
    """Submits each job when its time has come and returns when all have ended."""
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
    """What squeue shows now; ``preemptions`` remembers those of jobs that have left the queue."""
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


def accounted(place: Place, wanted: set[str]) -> list[AccountedRun]:
    """Every run of these jobs, once the accounting knows the end of them all."""
    deadline_s = time.monotonic() + COMMAND_TIMEOUT_S
    while time.monotonic() < deadline_s:
        rows = accounted_runs(place, wanted)
        if {row.job_id for row in rows if row.state != REQUEUED and row.ended_s} == wanted:
            return rows
        time.sleep(POLL_S)
    raise DemoError("the accounting does not know the end of every job")


def accounted_runs(place: Place, job_ids: set[str]) -> list[AccountedRun]:
    fields = "JobID,State,Submit,ElapsedRaw,End"
    wanted = ",".join(sorted(job_ids, key=int))
    text = slurm(
        place,
        *("env", "SLURM_TIME_FORMAT=%s", "sacct", "--duplicates", "-X", "-n", "-P"),
        *("-o", fields, "-j", wanted),
    )
    return [accounted_run(line.split("|")) for line in text.splitlines()]


def accounted_run(cells: Sequence[str]) -> AccountedRun:
    job_id, state, submitted, elapsed, ended = cells
    # "CANCELLED by 0" is CANCELLED; a time that is not known yet is "Unknown".
    end_s = int(ended) if ended.isdecimal() else 0
    return AccountedRun(job_id, state.split()[0], int(submitted), int(elapsed), end_s)


def proof(place: Place, one: Submitted) -> dict[str, Any]:
    """What ``train.py --verify`` says of this job's journal."""
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
