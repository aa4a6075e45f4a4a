"""The jobs of a fidelity run on a real Slurm, checked with their journals and accounting."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from scripts import ROOT
from scripts.testbed.real_cluster import COMPLETED, REQUEUED, RealCluster
from slurm_tiresias.simulator.workload import TraceJob
from slurm_tiresias.slurm.protocol import AccountedRun

SLEEPER = ROOT / "scripts" / "testbed" / "sleeper.sh"
Program = Callable[[TraceJob], Sequence[str]]
"""Returns the program that a job runs, to which its journal, its work and its load are added."""
POLL_S = 0.2
MICRO = 1_000_000
STARTED, ENDED = "started", "ended"
MOST_CLOCK_ERROR_S = 3.0
"""Slurm has whole seconds, and learns of an end a moment later."""
OWN_LIMIT_S = 3600.0
"""Time limit of jobs that set none: those of the calibration."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A journal line: the work done until ``at_s`` (since the epoch)."""

    what: str
    at_s: float
    done_s: float


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job and the id that Slurm gave it; ``at_s`` is just before the call of sbatch."""

    job: TraceJob
    job_id: str
    at_s: float
    journal: Path


@dataclass(frozen=True, slots=True)
class Ran:
    """The history of one job by its own clock, in seconds since the epoch."""

    job: TraceJob
    submitted_s: float
    runs: tuple[tuple[float, float], ...]
    """The first and the last journal line of each run."""

    @property
    def end_s(self) -> float:
        return self.runs[-1][1]

    @property
    def jct_s(self) -> float:
        """Job completion time: from submission to end."""
        return self.end_s - self.submitted_s

    @property
    def preemptions(self) -> int:
        return len(self.runs) - 1


Ask = Callable[[TraceJob], Sequence[str]]
"""Returns a job's options for sbatch."""


def time_limit(job: TraceJob) -> str:
    return f"--time={in_minutes(job.limit_s or OWN_LIMIT_S)}"


def in_minutes(limit_s: float) -> int:
    """Round a time limit up to whole minutes, as Slurm does."""
    return math.ceil(limit_s / 60)


def on_any_nodes(job: TraceJob) -> tuple[str, ...]:
    """Request a task per GPU, so that the job may use any nodes, as in the simulator."""
    return (f"--gpus={job.gpus}", f"--ntasks={job.gpus}", time_limit(job))


def sleeping(_job: TraceJob) -> Sequence[str]:
    return (str(SLEEPER),)


def journals_of(cluster: RealCluster) -> Path:
    return cluster.folder.parent / "jobs"


def submit(
    cluster: RealCluster,
    job: TraceJob,
    load_s: float,
    ask: Ask = on_any_nodes,
    program: Program = sleeping,
) -> Submitted:
    """Submit one ordinary job."""
    journal = journals_of(cluster) / f"{job.job_id}.journal"
    at_s = time.time()
    answer = cluster.run(
        *("sbatch", "--parsable", f"--job-name={job.job_id}", "--partition=gpu", "--requeue"),
        *(*ask(job), "--output=/dev/null"),
        *(*program(job), str(journal), str(micros(job.duration_s)), str(micros(load_s))),
    )
    return Submitted(job, answer.strip(), at_s, journal)


def micros(seconds: float) -> int:
    return round(seconds * MICRO)


def read_journal(path: Path) -> list[Entry]:
    """Return the lines written so far."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    words = (line.split() for line in lines)
    return [Entry(what, int(at) / MICRO, int(done) / MICRO) for what, at, done in words]


def has_ended(one: Submitted) -> bool:
    return any(entry.what == ENDED for entry in read_journal(one.journal))


def run(
    cluster: RealCluster,
    jobs: Sequence[TraceJob],
    load_s: float,
    patience_s: float,
    show: Callable[[int, int], None] = lambda _submitted, _ended: None,
    ask: Ask = on_any_nodes,
    program: Program = sleeping,
) -> list[Submitted]:
    """Submit each job at its time, and return when all have ended."""
    began_s = time.monotonic()
    submitted: list[Submitted] = []
    going: list[Submitted] = []
    while len(submitted) < len(jobs) or going:
        now_s = time.monotonic() - began_s
        while len(submitted) < len(jobs) and jobs[len(submitted)].submitted_s <= now_s:
            submitted.append(submit(cluster, jobs[len(submitted)], load_s, ask, program))
            going.append(submitted[-1])
            now_s = time.monotonic() - began_s
        going = [one for one in going if not has_ended(one)]
        show(len(submitted), len(submitted) - len(going))
        if now_s > patience_s:
            raise click.ClickException(f"after {patience_s:g} s not all jobs had ended")
        time.sleep(_until_next(jobs, len(submitted), time.monotonic() - began_s))
    return submitted


def _until_next(jobs: Sequence[TraceJob], submitted: int, now_s: float) -> float:
    if submitted == len(jobs):
        return POLL_S
    return min(POLL_S, max(0.0, jobs[submitted].submitted_s - now_s))


def ran(one: Submitted) -> Ran:
    """Return the runs of an ended job; a run without a last line was killed at its start."""
    runs: list[tuple[float, float]] = []
    began_s: float | None = None
    for entry in read_journal(one.journal):
        if entry.what == STARTED:
            if began_s is not None:
                runs.append((began_s, began_s))
            began_s = entry.at_s
        elif began_s is not None:
            runs.append((began_s, entry.at_s))
            began_s = None
    return Ran(one.job, one.at_s, tuple(runs))


def faults_of(one: Submitted, rows: Sequence[AccountedRun]) -> list[str]:
    """Return the errors of a job: in its journal, or between journal and accounting."""
    own = sorted((row for row in rows if row.key == one.job_id), key=_submitted_s)
    entries = read_journal(one.journal)
    name = f"job {one.job_id}"
    return [
        *(f"{name}: {what}" for what in _broken(entries, one.job.duration_s)),
        *(f"{name}: {what}" for what in _unlike(ran(one), own)),
    ]


def _submitted_s(row: AccountedRun) -> float:
    return row.submit_s or 0.0


def _broken(entries: Sequence[Entry], work_s: float) -> list[str]:
    """Return work lost, repeated or missing between runs."""
    found: list[str] = []
    done_s = 0.0
    for entry in entries:
        if entry.what == STARTED and entry.done_s != done_s:
            found.append(f"went on from {entry.done_s:.3f} s when {done_s:.3f} s were saved")
        elif entry.what != STARTED and entry.done_s < done_s:
            found.append(f"has less work done than before: {entry.done_s:.3f} s")
        done_s = entry.done_s
    if done_s < work_s - 1 / MICRO:
        found.append(f"did {done_s:.3f} s of its {work_s:.3f} s of work")
    return found


def _unlike(told: Ran, rows: Sequence[AccountedRun]) -> list[str]:
    states = [row.state for row in rows]
    if states != [*[REQUEUED] * told.preemptions, COMPLETED]:
        return [f"ran {len(told.runs)} times, and the accounting has {', '.join(states)}"]
    off_s = abs((rows[-1].end_s or 0.0) - told.end_s)
    if off_s > MOST_CLOCK_ERROR_S:
        return [f"its end is {off_s:.1f} s from the one in the accounting"]
    return []
