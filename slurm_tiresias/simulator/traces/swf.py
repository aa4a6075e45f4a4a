"""The Standard Workload Format of the Parallel Workloads Archive, version 2.2: ``.swf``.

Each line has eighteen numbers, with -1 for unknown values; comments begin with a semicolon. The
format has processors but no GPUs, so each processor counts as a GPU.
"""

from __future__ import annotations

from pathlib import Path

from slurm_tiresias.simulator.traces import reading
from slurm_tiresias.simulator.traces.reading import BadValueError, Harvest, NoJobError
from slurm_tiresias.simulator.workload import TraceJob, Workload

NAME = "swf"

FIELDS = 18
JOB, SUBMIT, RUN, ALLOCATED, REQUESTED, LIMIT, STATUS = 0, 1, 3, 4, 7, 8, 10
USER, QUEUE = 11, 14
PARTS = (2.0, 3.0, 4.0)
"""Status codes of lines for a part of a job; the whole job has a separate line."""

UNKNOWN = -1.0
PART_OF_A_JOB = "is one stretch of a job that has a line for the whole of it"
UNKNOWN_TIMES = "does not say when it was submitted or how long it ran"
UNKNOWN_WIDTH = "does not say how many processors it had"


def fits(first_line: str) -> bool:
    if first_line.startswith(";"):
        return True
    fields = first_line.split()
    return len(fields) == FIELDS and all(_is_number(field) for field in fields)


def _is_number(text: str) -> bool:
    try:
        reading.number(text, "")
    except BadValueError:
        return False
    return True


def load(path: Path) -> Workload:
    file = reading.open_trace(path)
    harvest = Harvest(file, NAME)
    lines = ((line, text.partition(";")[0].split()) for line, text in file.lines())
    rows = ((line, fields) for line, fields in lines if fields)
    harvest.each(rows, lambda line, fields: harvest.keep(line, _job(fields)))
    harvest.notes.append("each processor counts as a GPU")
    return harvest.workload()


def _job(fields: list[str]) -> TraceJob:
    if len(fields) != FIELDS:
        raise BadValueError(f"has {len(fields)} fields, and the format {FIELDS}")
    values = [reading.number(field, f"field {at}") for at, field in enumerate(fields, start=1)]
    if values[STATUS] in PARTS:
        raise NoJobError(PART_OF_A_JOB)
    if UNKNOWN in (values[SUBMIT], values[RUN]):
        raise NoJobError(UNKNOWN_TIMES)
    if values[ALLOCATED] <= 0.0 and values[REQUESTED] <= 0.0:
        raise NoJobError(UNKNOWN_WIDTH)
    allocated = values[ALLOCATED] > 0.0
    return TraceJob(
        fields[JOB],
        values[SUBMIT],
        reading.whole(fields[ALLOCATED if allocated else REQUESTED], "processors"),
        reading.duration(fields[RUN]),
        user=_known(fields[USER]),
        group=_known(fields[QUEUE]),
        limit_s=values[LIMIT] if values[LIMIT] > 0.0 else None,
    )


def _known(field: str) -> str:
    return "" if field == "-1" else field
