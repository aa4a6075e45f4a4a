"""Convert pyslurm's jobs into rows of squeue, so that both drivers read a job in the same way.

pyslurm's values are written as squeue prints them (``row``); ``parse_jobs.py`` then parses the row.
What pyslurm lacks, or cannot parse since Slurm 24.11 spells GPUs differently, comes from an earlier
row of squeue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.job_details import JobDetails
from slurm_tiresias.slurm.job_rows import JobRow


class SeenJob(NamedTuple):
    """One job record of slurmctld with pyslurm's names. An array's pending tasks share one."""

    id: int
    array_id: int | None
    array_task_id: int | None
    array_tasks_waiting: str | None
    array_tasks_parallel: int | None
    heterogeneous_id: int | None
    heterogeneous_offset: int | None
    state: str
    state_reason: str | None
    priority: int
    requeue_count: int
    is_batch_job: bool
    is_requeueable: bool
    submit_time: int | None
    eligible_time: int | None
    start_time: int | None
    end_time: int | None
    run_time: int | None
    time_limit: int | None
    num_nodes: int | None
    max_nodes: int | None
    cpus: int
    min_cpus_per_node: int | None
    ntasks: int
    ntasks_per_node: int | None
    sockets_per_node: int | None
    memory_per_cpu: int | None
    memory_per_node: int | None
    resource_sharing: str | None
    required_nodes: str | None
    excluded_nodes: str | None
    allocated_nodes: str | None
    account: str | None
    qos: str | None
    partition: str | None
    reservation: str | None
    constraints: Sequence[str] | None
    wckey: str | None
    admin_comment: str | None
    comment: str | None
    name: str | None
    tres_nodes: int | None
    """Not an attribute of pyslurm, like the next two: what is allocated, or else requested."""
    tres_memory_mb: int | None
    tres_gres: dict[str, int]
    """Like ``{"gpu": 4, "gpu:a100": 4}``: a total besides the counts by type."""


WRITTEN_BY_USERS = {
    "features": "constraints",
    "wckey": "wckey",
    "admin_comment": "admin_comment",
    "comment": "comment",
    "name": "name",
}
"""The fields taken from squeue if pyslurm shows nothing: it treats the word None as nothing, and
cannot read text that is not UTF-8."""

_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)


def asks_for(seen: SeenJob) -> tuple[object, ...]:
    """Return values that change whenever the fields that only squeue shows change."""
    unread = tuple(name for name in WRITTEN_BY_USERS.values() if not getattr(seen, name))
    return (
        *(seen.tres_nodes, seen.tres_memory_mb, seen.tres_gres),
        *(seen.cpus, seen.ntasks, seen.num_nodes, seen.max_nodes),
        *(seen.ntasks_per_node, seen.sockets_per_node, seen.memory_per_cpu),
        *(seen.memory_per_node, unread, seen.array_tasks_waiting is None, seen.array_task_id),
    )


def rows(seen: SeenJob, shown: JobRow) -> tuple[JobRow, ...]:
    """Return a row for each job of this record: for each task of an array.

    ``shown`` is an earlier row of squeue. Raises ``SlurmAnswerError`` if the list of tasks cannot
    be parsed.
    """
    first, *others = keys(seen, shown)
    of_first = row(first, seen, shown)
    return (of_first, *(of_first._replace(key=key) for key in others))


def row(key: str, seen: SeenJob, shown: JobRow) -> JobRow:
    """Return the row with pyslurm's values. A number that every job has is "None" if missing, which
    the parser refuses."""
    shares = "OK" if shown.over_subscribe == "NO" else shown.over_subscribe
    memory_mb = seen.memory_per_cpu or seen.memory_per_node or 0
    users = {field: getattr(seen, name) for field, name in WRITTEN_BY_USERS.items()}
    users["features"] = ",".join(seen.constraints or ())
    return shown._replace(
        key=key,
        raw_id=str(seen.id),
        array_id=str(seen.array_id or seen.id),
        state=seen.state,
        priority=str(seen.priority),
        restarts=str(seen.requeue_count),
        batch=str(int(seen.is_batch_job)),
        requeue=str(int(seen.is_requeueable)),
        het_id=str(seen.heterogeneous_id or ""),
        submit=str(seen.submit_time),
        eligible=_printed(seen.eligible_time, "N/A"),
        start=_printed(seen.start_time, "N/A"),
        end=_printed(seen.end_time, "N/A"),
        time_used=f"0:{seen.run_time or 0}",
        time_limit="UNLIMITED" if seen.time_limit is None else f"{seen.time_limit}:00",
        nodes=str(seen.num_nodes or 0),
        most_nodes=str(seen.max_nodes or 0),
        cpus=str(seen.cpus),
        cpus_per_node=str(seen.min_cpus_per_node or 0),
        tasks=str(seen.ntasks),
        tasks_per_node=str(seen.ntasks_per_node or 0),
        sockets=_printed(seen.sockets_per_node, "*"),
        memory=f"{memory_mb}M",
        over_subscribe="NO" if seen.resource_sharing == "NO" else shares,
        required_nodes=seen.required_nodes or "",
        node_list=seen.allocated_nodes or "",
        tres=",".join(_tres(seen)),
        account=seen.account or "",
        qos=seen.qos or "",
        partitions=seen.partition or "",
        reservation=seen.reservation or "",
        reason=seen.state_reason or "None",
        **{field: text for field, text in users.items() if text},
    )


def keys(seen: SeenJob, shown: JobRow) -> Iterator[str]:
    """Yield the ids that Slurm's commands use for the jobs of this record.

    pyslurm shows None both for task number 0 and for no number, as in the record of an array whose
    pending tasks were cancelled; squeue's key then decides.
    """
    if seen.array_tasks_waiting:
        for number in _numbers(seen.array_tasks_waiting):
            yield f"{seen.array_id}_{number}"
    elif seen.array_id:
        yield f"{seen.array_id}_{seen.array_task_id}" if seen.array_task_id else shown.key
    elif seen.heterogeneous_id:
        yield f"{seen.heterogeneous_id}+{seen.heterogeneous_offset or 0}"
    else:
        yield str(seen.id)


def details(seen: SeenJob) -> JobDetails:
    """Return the details of a pending job; those of a running one need its allocation too."""
    least_nodes = seen.num_nodes or 1
    return JobDetails(
        least_nodes=min(least_nodes, seen.max_nodes) if seen.max_nodes else None,
        most_nodes=seen.max_nodes,
        excluded_nodes=frozenset(notation.node_names(seen.excluded_nodes or "")),
        memory_per_cpu=seen.memory_per_cpu is not None,
        array_limit=seen.array_tasks_parallel or None,
    )


def _numbers(tasks: str) -> Iterator[int]:
    """Yield the numbers in ``0-3,7`` or ``0-12:4``."""
    for part in tasks.split(","):
        match = _TASKS.fullmatch(part)
        if match is None:
            raise notation.unreadable("a list of array tasks", tasks)
        first, last, step = (int(number or 0) for number in match.groups())
        if match[2] and last < first:
            raise notation.unreadable("a list of array tasks", tasks)
        yield from range(first, max(first, last) + 1, step or 1)


def _tres(seen: SeenJob) -> Iterator[str]:
    if seen.tres_nodes is not None:
        yield f"node={seen.tres_nodes}"
    if seen.tres_memory_mb is not None:
        yield f"mem={seen.tres_memory_mb}M"
    for name, count in seen.tres_gres.items():
        yield f"gres/{name}={count}"


def _printed(number: int | None, without: str) -> str:
    return without if number is None else str(number)
