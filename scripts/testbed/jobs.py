"""Run Slurm's commands on a testbed's cluster, and read its jobs' runs from accounting."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from scripts import ROOT
from scripts.testbed.place import DemoError, Place

COMMAND_TIMEOUT_S = 300.0
POLL_S = 0.5
REQUEUED = "REQUEUED"
COMPLETED = "COMPLETED"


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


def accounted(place: Place, wanted: set[str]) -> list[AccountedRun]:
    """Return all runs of these jobs, after waiting until accounting has the end of each job."""
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
