"""Convert pyslurm's jobs and nodes into the drivers' common fields and nodes.

pyslurm's numbers are used as they are. The fields in ``NOT_SHOWN`` come from squeue's row, because
pyslurm lacks them or cannot parse how Slurm spells GPUs since 24.11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from slurm_tiresias.errors import SlurmAnswerError
from slurm_tiresias.model import Amount, GpuCounts, Node
from slurm_tiresias.slurm import notation, parse_nodes
from slurm_tiresias.slurm.job_details import JobDetails
from slurm_tiresias.slurm.job_fields import COMPLETING, NO_NUMBER, STATES, JobFields, Options
from slurm_tiresias.slurm.job_rows import JobRow
from slurm_tiresias.slurm.protocol import Partition, Reservation


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


class SeenNode(NamedTuple):
    """One node with pyslurm's names."""

    name: str
    state: str
    configured_gres: dict[str, int]
    effective_cpus: int
    total_cpus: int
    real_memory: int | None
    memory_reserved_for_system: int | None
    active_features: Sequence[str]


class SeenPartition(NamedTuple):
    """One partition with pyslurm's names."""

    name: str
    nodes: str | None
    state: str
    priority_tier: int | None
    max_nodes: int | str | None
    """A string if there is no bound, like the next two."""
    max_time: int | str | None
    max_cpus_per_node: int | str | None
    allowed_accounts: Sequence[str]
    denied_accounts: Sequence[str]
    """ALL if it denies none."""
    allowed_qos: Sequence[str]
    denied_qos: Sequence[str]


class SeenReservation(NamedTuple):
    """One reservation with pyslurm's names."""

    name: str
    nodes: str | None
    start_time: int | None
    end_time: int | None
    tres: dict[str, int | str]
    magnetic: bool
    """Not an attribute of pyslurm, but one of its flags."""


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
"""The fields that only squeue shows. If Slurm counts GPUs (AccountingStorageTRES), they change only
together with a field that pyslurm shows."""

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
_NEEDED = attrgetter("priority", "requeue_count", "submit_time", "cpus", "ntasks")
"""Values that every valid record has."""


def asks_for(seen: SeenJob) -> tuple[object, ...]:
    """Return values that change whenever the fields that only squeue shows change."""
    unread = tuple(name for name in WRITTEN_BY_USERS.values() if not getattr(seen, name))
    return (
        *(seen.tres_nodes, seen.tres_memory_mb, seen.tres_gres),
        *(seen.cpus, seen.ntasks, seen.num_nodes, seen.max_nodes),
        *(seen.ntasks_per_node, seen.sockets_per_node, seen.memory_per_cpu),
        *(seen.memory_per_node, unread, seen.array_tasks_waiting is None, seen.array_task_id),
    )


def fields(seen: SeenJob, shown: JobRow, options: Options) -> tuple[JobFields, ...]:
    """Return the fields of each job of this record, one for each task of an array.

    ``shown`` is an earlier row of squeue, ``options`` are those parsed from it. Raises
    ``SlurmAnswerError`` if the list of tasks cannot be parsed.
    """
    first, *others = keys(seen, shown)
    of_first = _fields(first, seen, shown, options)
    return (of_first, *(of_first._replace(key=key) for key in others))


def _fields(key: str, seen: SeenJob, shown: JobRow, options: Options) -> JobFields:
    odd = shown.unreadable or _odd(seen) or options.unreadable
    required, odd_required = _node_names(seen.required_nodes)
    allocated, odd_allocated = _node_names(seen.allocated_nodes)
    gpus, odd_gpus = _gpus(tuple(seen.tres_gres.items()))
    name = seen.name or shown.name
    time_limit_s = None if seen.time_limit is None else 60.0 * seen.time_limit
    return JobFields(
        key=key,
        raw_id=seen.id,
        array_id=(seen.array_id or seen.id) if "_" in key else None,
        state=STATES.get(seen.state, COMPLETING),
        slurm_state=seen.state,
        priority=seen.priority or 0,
        restarts=seen.requeue_count or 0,
        batch=seen.is_batch_job,
        requeue=seen.is_requeueable,
        het=bool(seen.heterogeneous_id),
        submit_s=float(seen.submit_time or 0),
        eligible_s=_time_s(seen.eligible_time),
        start_s=_time_s(seen.start_time),
        end_s=_time_s(seen.end_time),
        elapsed_s=float(seen.run_time or 0),
        time_limit_s=time_limit_s,
        nodes=_number(seen.num_nodes, 0, 1),
        most_nodes=_number(seen.max_nodes, 0, 0),
        cpus=_number(seen.cpus, 0, 1),
        cpus_per_node=_number(seen.min_cpus_per_node, 0, 0),
        tasks=_number(seen.ntasks, 0, 1),
        tasks_per_node=_number(seen.ntasks_per_node, 0, 0),
        sockets_per_node=_number(seen.sockets_per_node, 1, 1),
        memory_mb=seen.memory_per_cpu or seen.memory_per_node or 0,
        exclusive=seen.resource_sharing == "NO",
        required_node_list=seen.required_nodes or "",
        required_nodes=required,
        allocated_nodes=allocated,
        options=options,
        tres_nodes=seen.tres_nodes,
        tres_memory_mb=seen.tres_memory_mb,
        tres_gpus=gpus,
        user=shown.user,
        account=seen.account or "",
        qos=seen.qos or "",
        partitions=_partitions(seen.partition or ""),
        reservation=seen.reservation or "",
        reason=seen.state_reason or "None",
        features=notation.present(
            ",".join(seen.constraints) if seen.constraints else shown.features
        ),
        wckey=notation.present(seen.wckey or shown.wckey),
        admin_comment=notation.present(seen.admin_comment or shown.admin_comment),
        comment=notation.present(seen.comment or shown.comment),
        name=notation.present(name),
        printed_name=name,
        unreadable=odd or odd_required or odd_allocated or odd_gpus,
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


def partitions(
    seen: Iterable[SeenPartition], complain: parse_nodes.Complain = parse_nodes.ignore
) -> tuple[Partition, ...]:
    """Return all partitions. An unreadable one starts no jobs."""

    def read(one: SeenPartition) -> Partition:
        minutes = _bound(one.max_time)
        return Partition(
            name=one.name,
            nodes=frozenset(notation.node_names(one.nodes or "")),
            up=one.state in parse_nodes.STARTS_QUEUED_JOBS,
            priority_tier=one.priority_tier or 0,
            most_nodes=_bound(one.max_nodes),
            longest_s=None if minutes is None else 60.0 * minutes,
            most_cpus_per_node=_bound(one.max_cpus_per_node),
            accounts=parse_nodes.allowed(one.allowed_accounts),
            denied_accounts=frozenset(one.denied_accounts) - {"ALL"},
            qos=parse_nodes.allowed(one.allowed_qos),
            denied_qos=frozenset(one.denied_qos) - {"ALL"},
        )

    return tuple(
        parse_nodes.readable(
            seen, read, complain, lambda one: parse_nodes.unreadable_partition(one.name)
        )
    )


def nodes(
    seen: Iterable[SeenNode],
    partitions: Iterable[Partition],
    switches: parse_nodes.Switches,
    complain: parse_nodes.Complain = parse_nodes.ignore,
) -> tuple[Node, ...]:
    """Return all nodes, each with its switch and the partitions that start jobs on it now.

    An unreadable node starts no jobs.
    """
    up = [partition for partition in partitions if partition.up]

    def read(one: SeenNode) -> Node:
        return parse_nodes.node(
            name=one.name,
            total=Amount(
                gpus=notation.gpus_by_type(
                    dict(_kinds(one.configured_gres.items())), totals_stand_beside=False
                ),
                cpus=one.effective_cpus or one.total_cpus,
                memory_mb=max((one.real_memory or 0) - (one.memory_reserved_for_system or 0), 0),
            ),
            features=one.active_features,
            state=one.state,
            up=up,
            switches=switches,
        )

    return tuple(
        parse_nodes.readable(
            seen, read, complain, lambda one: parse_nodes.unreadable_node(one.name)
        )
    )


def reservations(
    seen: Iterable[SeenReservation],
    nodes: Iterable[Node],
    complain: parse_nodes.Complain = parse_nodes.ignore,
) -> tuple[Reservation, ...]:
    """Return reservations of whole nodes, and magnetic ones; not other partial reservations."""

    def read(one: SeenReservation) -> tuple[Reservation, int]:
        kept = Reservation(
            name=one.name,
            nodes=frozenset(notation.node_names(one.nodes or "")),
            start_s=float(one.start_time or 0),
            end_s=float(one.end_time or 0),
            magnetic=one.magnetic,
        )
        cpus = one.tres.get("cpu", 0)
        if not isinstance(cpus, int):
            raise notation.unreadable("a number", cpus)
        return kept, cpus

    return parse_nodes.of_whole_nodes(list(parse_nodes.readable(seen, read, complain)), nodes)


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


def _odd(seen: SeenJob) -> str:
    """Return what is invalid in the record, or ""."""
    if seen.state not in STATES:
        return notation.unreadable("a job state", seen.state).what
    if None in _NEEDED(seen):
        return notation.unreadable("a job without a number that all have", str(seen.id)).what
    return ""


def _node_names(hostlist: str | None) -> tuple[tuple[str, ...], str]:
    """Return the names, and "" or why they cannot be parsed."""
    try:
        return notation.node_names(hostlist or ""), ""
    except SlurmAnswerError as error:
        return (), error.what


@lru_cache(maxsize=4096)
def _partitions(names: str) -> tuple[str, ...]:
    return tuple(names.split(","))


@lru_cache(maxsize=4096)
def _gpus(gres: tuple[tuple[str, int], ...]) -> tuple[GpuCounts | None, str]:
    """Return the GPUs by type (None if not counted), and "" or why they cannot be parsed."""
    try:
        found = dict(_kinds(gres))
    except SlurmAnswerError as error:
        return None, error.what
    return (notation.gpus_by_type(found, totals_stand_beside=True) if found else None), ""


def _kinds(gres: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield type and count of the GPUs in ``("gpu:a100", 4), ("tmpdisk", 1)``."""
    for name, count in gres:
        word, _, kind = name.partition(":")
        if word == "gpu":
            is_count = isinstance(count, int) and 0 <= count <= notation.MOST_GPUS
            if kind.startswith("-") or not is_count:
                raise notation.unreadable("a GPU count", f"{name}:{count}")
            yield kind, count


def _bound(value: int | str | None) -> int | None:
    return value if isinstance(value, int) else None


def _number(value: int | None, without: int, where_no_number: int) -> int:
    """Return the value; ``without`` for None, ``where_no_number`` for Slurm's NO_VAL."""
    if value is None:
        return without
    return where_no_number if value == NO_NUMBER else value


def _time_s(at_s: int | None) -> float | None:
    return None if at_s is None else float(at_s)
