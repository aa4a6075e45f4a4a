"""Alibaba's PAI (2020): ``pai_task_table.csv``, alone or in a folder with ``pai_job_table.csv``.

A job consists of all tasks of one job name that request GPUs; parameter servers and evaluators
without GPUs are skipped. It runs from the first start to the last end of these tasks. PAI shares
GPUs and Slurm does not, so each instance of a task counts as ``plan_gpu`` (in percent) rounded up
to whole GPUs. The task table has start times only; the job table adds submission times and users.

The published files have no header; the column names are in separate files.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_tiresias.errors import TraceError
from slurm_tiresias.simulator.traces import reading, table
from slurm_tiresias.simulator.traces.reading import BadValueError, Harvest, NoJobError, TraceFile
from slurm_tiresias.simulator.traces.table import Row
from slurm_tiresias.simulator.workload import TraceJob, Workload

NAME = "alibaba2020"

TASK_TABLE = "pai_task_table.csv"
JOB_TABLE = "pai_job_table.csv"
TASK_COLUMNS = (
    "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
)
JOB_COLUMNS = "job_name,inst_id,user,status,start_time,end_time"
STATUSES = frozenset({"Running", "Terminated", "Failed", "Waiting"})

UNKNOWN_INSTANCES = "does not say how many instances it has"


@dataclass(slots=True)
class _Job:
    """The tasks of one job so far. ``dropped_because`` is empty while it can be simulated."""

    line: int
    start_s: float = math.inf
    end_s: float = -math.inf
    gpus: int = 0
    gpu_type: str = ""
    shares: bool = False
    dropped_because: str = ""


def fits(first_line: str) -> bool:
    fields = first_line.split(",")
    wide = len(TASK_COLUMNS.split(","))
    return first_line == TASK_COLUMNS or (len(fields) == wide and fields[3] in STATUSES)


def load(path: Path) -> Workload:
    if not path.is_dir():
        return _load(reading.open_trace(path), {})
    if missing := [name for name in (JOB_TABLE, TASK_TABLE) if not (path / name).exists()]:
        raise TraceError(
            f"{path} is a folder without {' and '.join(missing)}",
            "name a file, or the folder of the tables of Alibaba's trace of 2020",
        )
    jobs, tasks = (reading.open_trace(path / name) for name in (JOB_TABLE, TASK_TABLE))
    both = hashlib.sha256(f"{jobs.sha256} {tasks.sha256}".encode()).hexdigest()
    return _load(replace(tasks, sha256=both), _submissions(jobs))


def _load(file: TraceFile, submissions: Mapping[str, tuple[float | None, str]]) -> Workload:
    harvest = Harvest(file, NAME)
    jobs: dict[str, _Job] = {}
    harvest.each(
        _rows(file, TASK_COLUMNS),
        lambda line, row: _add_task(jobs.setdefault(row[0], _Job(line)), row),
    )

    def take(line: int, name: str) -> None:
        job = jobs[name]
        if job.dropped_because or not job.gpus:
            raise NoJobError(job.dropped_because or reading.NO_GPU)
        submitted_s, user = submissions.get(name, (None, ""))
        came_s = job.start_s if submitted_s is None else min(submitted_s, job.start_s)
        ran_s = job.end_s - job.start_s
        harvest.keep(
            line, TraceJob(name, came_s, job.gpus, ran_s, gpu_type=job.gpu_type, user=user)
        )

    harvest.each(((job.line, name) for name, job in jobs.items()), take)
    shared = sum(job.shares for job in jobs.values())
    if shared:
        harvest.notes.append(f"{shared:,} jobs asked for parts of GPUs and were given whole ones")
    if not submissions:
        harvest.notes.append("jobs count as submitted when they started: there is no job table")
    return harvest.workload()


def _add_task(job: _Job, row: Row) -> None:
    _, _, instances, status, start, end, _, _, share, gpu_type = row
    percent = reading.number(share or "0", "plan_gpu")
    if percent < 0.0:
        raise BadValueError(f"plan_gpu is negative: {reading.quoted(share)}")
    if percent == 0.0:
        return
    job.dropped_because = job.dropped_because or _why_dropped(instances, status, start, end)
    if job.dropped_because:
        return
    job.gpus += reading.whole(instances, "inst_num") * math.ceil(percent / 100.0)
    job.shares = job.shares or percent % 100.0 != 0.0
    job.start_s = min(job.start_s, reading.number(start, "start_time"))
    job.end_s = max(job.end_s, reading.number(end, "end_time"))
    job.gpu_type = job.gpu_type or gpu_type


def _why_dropped(instances: str, status: str, start: str, end: str) -> str:
    if not start:
        return reading.NEVER_RAN
    if not end or status in {"Running", "Waiting"}:
        return reading.NOT_OVER
    if reading.number(end, "end_time") < reading.number(start, "start_time"):
        return reading.ENDS_TOO_EARLY
    return "" if instances else UNKNOWN_INSTANCES


def _submissions(file: TraceFile) -> Mapping[str, tuple[float | None, str]]:
    """Return the submission time of each job (None if unknown) and its user."""
    found: dict[str, tuple[float | None, str]] = {}

    def take(_line: int, row: Row) -> None:
        name, _, user, _, start, _ = row
        found[name] = (reading.number(start, "start_time") if start else None, user)

    Harvest(file, NAME).each(_rows(file, JOB_COLUMNS), take)
    return found


def _rows(file: TraceFile, columns: str) -> Iterator[tuple[int, Row]]:
    names: Sequence[str] = columns.split(",")
    for line, row in table.rows(file):
        if len(row) != len(names):
            what = f"does not have the columns {columns}"
            raise file.refuse(line, what, "name a trace of this format, or another")
        if row != names:
            yield line, row
