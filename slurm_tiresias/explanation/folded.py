"""Fold the pending tasks of an array into one line, as squeue does with those never started."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from slurm_tiresias.model import JobState, Reason
from slurm_tiresias.status.published import PublishedJob

MOST_DIGITS = 10
"""Digits of a task number, which has 32 bits."""

LONGEST_LIST = 24
"""Length of a list of task numbers, in characters, after which ``...`` stands for the rest."""


def in_order(jobs: Iterable[PublishedJob]) -> list[PublishedJob]:
    """Sort jobs as the controller considers them, the others last and by id."""
    last = math.inf
    return sorted(
        jobs, key=lambda job: (last if job.rank is None else job.rank, numbers_in(job.job_id))
    )


def numbers_in(job_id: str) -> list[int]:
    """Return a job id's sort key: ``12_3`` comes after ``12_1`` and before ``100``."""
    words = job_id.replace("_", " ").replace("+", " ").split()
    return [int(word) for word in words if word.isdecimal()]


def array_of(job_id: str) -> str:
    """Return ``12`` for ``12_3``; "" for a job that is not an array task."""
    array, _, task = job_id.partition("_")
    return array if task.isdecimal() and len(task) <= MOST_DIGITS else ""


def folded(jobs: Sequence[PublishedJob]) -> list[tuple[PublishedJob, int]]:
    """Return the rows for these jobs in order, each with the number of jobs that it stands for.

    Tasks of an array that were never started and wait in the same tier for the same reason share a
    row with an id like ``12_[0-499]``, at the place of the first; its wait is the longest of
    theirs.
    """
    groups: dict[object, list[PublishedJob]] = {}
    for number, job in enumerate(jobs):
        groups.setdefault(_same_line(job) or number, []).append(job)
    rows = []
    for tasks in groups.values():
        row = tasks[0]
        if len(tasks) > 1:
            job_id = numbered([task.job_id for task in tasks])
            row = replace(row, job_id=job_id, waited_s=max(task.waited_s for task in tasks))
        rows.append((row, len(tasks)))
    return rows


def _same_line(job: PublishedJob) -> tuple[object, ...]:
    """Return a key that is equal for tasks that share a row; empty for a job with its own row."""
    never_started = job.state == JobState.PENDING.value and job.first_started_s is None
    if not (never_started and array_of(job.job_id)) or job.restarts:
        return ()
    return (array_of(job.job_id), job.slurm_state, job.tier, job.gpus, job.action, *why_alike(job))


def why_alike(job: PublishedJob) -> tuple[str, str, str]:
    """Return the reason, Slurm's reason if that keeps the job waiting, and what the controller
    would do if it acted."""
    by_slurm = job.would or job.reason == Reason.SLURM_WAITS.value
    return job.reason, job.slurm_reason if by_slurm else "", job.would


def numbered(job_ids: Sequence[str]) -> str:
    """Return ``12_[0-3,7]`` for these tasks of one array, ``12_7`` for a single task."""
    if len(job_ids) == 1:
        return job_ids[0]
    written = ""
    for piece in _ranges(sorted(int(job_id.partition("_")[2]) for job_id in job_ids)):
        if len(written) + len(piece) > LONGEST_LIST:
            written += ",..."
            break
        written += f",{piece}" if written else piece
    return f"{array_of(job_ids[0])}_[{written}]"


def _ranges(numbers: Sequence[int]) -> Iterator[str]:
    first = last = numbers[0]
    for number in (*numbers[1:], None):
        if number == last + 1:
            last = number
            continue
        yield f"{first}-{last}" if last > first else f"{first}"
        if number is not None:
            first = last = number
