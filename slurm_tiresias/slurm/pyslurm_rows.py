"""What pyslurm shows of jobs and nodes, and from that to what the commands would have told.

A job becomes the row that squeue prints of it, so that both drivers go on from the same and
nothing is worked out twice. What pyslurm does not show is taken from such a row (``NOT_SHOWN``):
it has no name for it, or cannot read the spelling that Slurm has had for GPUs since 24.11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from slurm_tiresias.model import Amount, Node
from slurm_tiresias.slurm import parse_nodes, text
from slurm_tiresias.slurm.job_details import JobDetails
from slurm_tiresias.slurm.job_rows import JobRow
from slurm_tiresias.slurm.protocol import Partition, Reservation


class SeenJob(NamedTuple):
    """One record of slurmctld's; the waiting tasks of an array are one. As pyslurm names it."""

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
    tres: str
    """Not pyslurm's own: what is allocated, else what is requested, as ``cpu=4,gres/gpu=2``."""


class SeenNode(NamedTuple):
    """One node, as pyslurm names it."""

    name: str
    state: str
    configured_gres: dict[str, int]
    effective_cpus: int
    total_cpus: int
    real_memory: int | None
    memory_reserved_for_system: int | None
    active_features: Sequence[str]


class SeenPartition(NamedTuple):
    """One partition, as pyslurm names it."""

    name: str
    nodes: str | None
    state: str
    priority_tier: int | None


class SeenReservation(NamedTuple):
    """One reservation, as pyslurm names it."""

    name: str
    nodes: str | None
    start_time: int | None
    end_time: int | None
    tres: dict[str, int | str]


NOT_SHOWN = (
    "user",
    "cpus_per_task",
    "tres_per_job",
    "tres_per_node",
    "tres_per_socket",
    "tres_per_task",
    "cpus_per_tres",
    "memory_per_tres",
)
"""The fields of a row that are squeue's own. None of them changes while nothing else does, where
Slurm counts GPUs (AccountingStorageTRES)."""

WRITTEN_BY_USERS = {
    "features": "constraints",
    "wckey": "wckey",
    "admin_comment": "admin_comment",
    "comment": "comment",
    "name": "name",
}
"""The fields that squeue is believed about where pyslurm has nothing: it takes the word None for
nothing, and cannot read what is not UTF-8."""

_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_NO_TIME = "N/A"


def asks_for(seen: SeenJob) -> tuple[object, ...]:
    """While this stays as it is, so does what squeue alone shows."""
    unread = tuple(name for name in WRITTEN_BY_USERS.values() if not getattr(seen, name))
    return (
        *(seen.tres, seen.cpus, seen.ntasks, seen.num_nodes, seen.max_nodes),
        *(seen.ntasks_per_node, seen.sockets_per_node, seen.memory_per_cpu),
        *(seen.memory_per_node, unread, seen.array_tasks_waiting is None, seen.array_task_id),
    )


def rows(seen: SeenJob, shown: JobRow) -> tuple[JobRow, ...]:
    """The rows of this record, one for each task; ``shown`` is what squeue said of it once."""
    row = JobRow(
        key=str(seen.id),
        raw_id=str(seen.id),
        array_id=str(seen.array_id or seen.id),
        state=seen.state,
        priority=str(seen.priority),
        restarts=str(seen.requeue_count),
        batch=str(int(seen.is_batch_job)),
        requeue=str(int(seen.is_requeueable)),
        het_id=str(seen.heterogeneous_id) if seen.heterogeneous_id else "N/A",
        submit=_time(seen.submit_time),
        eligible=_time(seen.eligible_time),
        start=_time(seen.start_time),
        end=_time(seen.end_time),
        time_used=_span(seen.run_time or 0),
        time_limit="UNLIMITED" if seen.time_limit is None else _span(60 * seen.time_limit),
        nodes=str(seen.num_nodes or 0),
        most_nodes=str(seen.max_nodes or 0),
        cpus=str(seen.cpus),
        cpus_per_node=str(seen.min_cpus_per_node or 0),
        tasks=str(seen.ntasks),
        cpus_per_task=shown.cpus_per_task,
        tasks_per_node=str(seen.ntasks_per_node or 0),
        sockets="*" if seen.sockets_per_node is None else str(seen.sockets_per_node),
        memory=f"{seen.memory_per_cpu or seen.memory_per_node or 0}M",
        over_subscribe="NO" if seen.resource_sharing == "NO" else "OK",
        required_nodes=seen.required_nodes or "",
        node_list=seen.allocated_nodes or "",
        tres_per_job=shown.tres_per_job,
        tres_per_node=shown.tres_per_node,
        tres_per_socket=shown.tres_per_socket,
        tres_per_task=shown.tres_per_task,
        cpus_per_tres=shown.cpus_per_tres,
        memory_per_tres=shown.memory_per_tres,
        tres=seen.tres,
        user=shown.user,
        account=seen.account or "",
        qos=seen.qos or "",
        partitions=seen.partition or "",
        reservation=seen.reservation or "",
        reason=seen.state_reason or "None",
        features=",".join(seen.constraints) if seen.constraints else shown.features,
        wckey=seen.wckey or shown.wckey,
        admin_comment=seen.admin_comment or shown.admin_comment,
        comment=seen.comment or shown.comment,
        name=seen.name or shown.name,
    )
    return tuple(row._replace(key=key) for key in keys(seen, shown))


def keys(seen: SeenJob, shown: JobRow) -> Iterator[str]:
    """How Slurm's commands call the jobs of this record.

    pyslurm shows the task's number 0 as None, and so it does no number at all, as of the record of
    an array whose waiting tasks were cancelled.
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
    """What squeue does not tell of a pending job; of a running one there is more to know."""
    least_nodes = seen.num_nodes or 1
    return JobDetails(
        least_nodes=min(least_nodes, seen.max_nodes) if seen.max_nodes else None,
        most_nodes=seen.max_nodes,
        excluded_nodes=frozenset(text.node_names(seen.excluded_nodes or "")),
        memory_per_cpu=seen.memory_per_cpu is not None,
        array_limit=seen.array_tasks_parallel,
    )


def partitions(seen: Iterable[SeenPartition]) -> tuple[Partition, ...]:
    """All partitions."""
    return tuple(
        Partition(
            name=one.name,
            nodes=frozenset(text.node_names(one.nodes or "")),
            up=one.state == "UP",
            priority_tier=one.priority_tier or 0,
        )
        for one in seen
    )


def nodes(
    seen: Iterable[SeenNode], partitions: Iterable[Partition], switches: parse_nodes.Switches
) -> tuple[Node, ...]:
    """All nodes, each with its switch and the partitions that would start a job on it now."""
    up = [partition for partition in partitions if partition.up]
    return tuple(
        parse_nodes.node(
            name=one.name,
            total=Amount(
                gpus=text.gpus(",".join(f"{kind}:{n}" for kind, n in one.configured_gres.items())),
                cpus=one.effective_cpus or one.total_cpus,
                memory_mb=max((one.real_memory or 0) - (one.memory_reserved_for_system or 0), 0),
            ),
            features=one.active_features,
            state=one.state,
            up=up,
            switches=switches,
        )
        for one in seen
    )


def reservations(seen: Iterable[SeenReservation], nodes: Iterable[Node]) -> tuple[Reservation, ...]:
    """The reservations of whole nodes; not those of some cores or of licences."""
    found = [
        (
            Reservation(
                name=one.name,
                nodes=frozenset(text.node_names(one.nodes or "")),
                start_s=float(one.start_time or 0),
                end_s=float(one.end_time or 0),
            ),
            int(one.tres.get("cpu", 0)),
        )
        for one in seen
    ]
    return parse_nodes.of_whole_nodes(found, nodes)


def _numbers(tasks: str) -> Iterator[int]:
    """The numbers in ``0-3,7`` or ``0-12:4``."""
    for part in tasks.split(","):
        match = _TASKS.fullmatch(part)
        if match is None:
            raise text.unreadable("a list of array tasks", tasks)
        first, last, step = match.groups()
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def _time(at_s: int | None) -> str:
    return _NO_TIME if at_s is None else str(at_s)


def _span(seconds: int) -> str:
    return f"{seconds // 60}:{seconds % 60:02}"
