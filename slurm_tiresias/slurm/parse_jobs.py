"""Parse squeue's rows into the fields of jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple, TypeVar

from slurm_tiresias.errors import SlurmAnswerError
from slurm_tiresias.model import GpuCounts, JobState
from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.job_fields import (
    COMPLETING,
    NO_GPUS,
    NO_NUMBER,
    STATES,
    JobFields,
    Options,
)
from slurm_tiresias.slurm.job_rows import JobRow
from slurm_tiresias.warn_once import WarnOnce

_NO_NUMBER = notation.NOTHING | {"*", str(NO_NUMBER)}

_NOT_ASKED_FOR = _NO_NUMBER | {"0"}

_NOT_MODELLED = {
    "contiguous": "--contiguous",
    "disk": "--tmp",
    "specialised_cores": "--core-spec",
    "cores_per_socket": "--cores-per-socket",
    "threads_per_core": "--threads-per-core or --hint",
    "tasks_per_core": "--ntasks-per-core",
    "tasks_per_socket": "--ntasks-per-socket",
    "mcs_label": "--mcs-label",
    "network": "--network",
    "burst_buffer": "--bb",
}
"""Fields of a row that are empty for most jobs, and the options that set them. ``--core-spec=0``
and ``--thread-spec`` show as a number and a word."""

_OF_OPTIONS = attrgetter(
    *("cpus_per_task", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task"),
    *("cpus_per_tres", "memory_per_tres", "segment", "switches", "over_subscribe"),
    *("licenses", "deadline"),
)

_KEY = re.compile(r"\d{1,18}(?:_\d{1,18}|\+\d{1,18})?", re.ASCII)
"""Matches the id of a job, of a task of an array, and of a part of a heterogeneous job."""

_RAW_ID = re.compile(r"\d{1,18}", re.ASCII)

_SHOWN_JOB = re.compile(r"(?:show job \S+)?\s*JobId=(\d{1,18}) ", re.ASCII)
"""Matches the start of an answer; scontrol may echo the question."""

_SHOWN_STATE = re.compile(r" JobState=(\w+) ", re.ASCII)

MOST_NAMED = 5
"""How many rows that cannot be read a warning names."""

Value = TypeVar("Value")
Other = TypeVar("Other")


class RowReader:
    """Parses squeue's rows; an unchanged row yields the same object as before."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[JobRow, JobFields]] = {}
        self._warning = WarnOnce("a row of squeue's list is passed over")
        self.passed_over = 0
        """How many rows of the last list belong to no known job, because their job id cannot be
        read."""

    def read(self, rows: Iterable[JobRow]) -> tuple[JobFields, ...]:
        """Return the fields of each row. If not even its job id can be read, they are the job's
        previous fields, if any."""
        now_read: dict[str, tuple[JobRow, JobFields]] = {}
        found: list[JobFields] = []
        odd: list[str] = []
        self.passed_over = 0
        for row in rows:
            known = self._read.get(row.key)
            if known is None or known[0] != row:
                try:
                    known = row, fields(row)
                except SlurmAnswerError as error:
                    odd.append(error.what)
                    self.passed_over += known is None
            if row.unreadable:
                odd.append(f"job {row.key}: {row.unreadable}")
            if known is not None:
                now_read[row.key] = known
                found.append(known[1])
        self._read = now_read
        if odd:
            self._warning.warn("; ".join(odd[:MOST_NAMED]))
        else:
            self._warning.clear()
        return tuple(found)


def fields(row: JobRow) -> JobFields:
    """Parse the fields of a row one by one; unreadable ones get an empty value.

    Raises ``SlurmAnswerError`` without a job id, by which commands could address the job.
    """
    if not has_id(row):
        raise notation.unreadable("a job id", f"{row.key} {row.raw_id}")
    raw_id = int(row.raw_id)
    read = _Attempts()
    sums = _sums(row.tres)
    return JobFields(
        key=row.key,
        raw_id=raw_id,
        array_id=read(notation.whole, row.array_id, raw_id) if "_" in row.key else None,
        state=read(_state, row.state, COMPLETING),
        slurm_state=row.state,
        priority=read(notation.whole, row.priority, 0),
        restarts=read(notation.whole, row.restarts, 0),
        batch=row.batch == "1",
        requeue=row.requeue == "1",
        het=notation.present(row.het_id) != "",
        submit_s=read(notation.known_epoch, row.submit, 0.0),
        eligible_s=read(notation.epoch, row.eligible, None),
        start_s=read(notation.epoch, row.start, None),
        end_s=read(notation.epoch, row.end, None),
        elapsed_s=read(notation.span, row.time_used, None) or 0.0,
        time_limit_s=read(notation.span, row.time_limit, None),
        nodes=read(_number_or_1, row.nodes, 1),
        most_nodes=_Attempts()(_number_or_0, row.most_nodes, 0),
        cpus=read(_number_or_1, row.cpus, 0),
        cpus_per_node=read(_number_or_0, row.cpus_per_node, 0),
        tasks=read(_number_or_1, row.tasks, 1),
        tasks_per_node=read(_number_or_0, row.tasks_per_node, 0),
        sockets_per_node=read(_number_or_1, row.sockets, 1),
        memory_mb=read(notation.mebibytes, row.memory, 0),
        exclusive=row.over_subscribe == "NO",
        required_node_list=notation.present(row.required_nodes),
        required_nodes=read(notation.node_names, row.required_nodes, ()),
        allocated_nodes=read(notation.node_names, row.node_list, ()),
        options=(asked := options(row)),
        tres_nodes=sums.nodes,
        tres_memory_mb=sums.memory_mb,
        tres_gpus=sums.gpus,
        user=row.user,
        account=notation.present(row.account),
        qos=notation.present(row.qos),
        partitions=_partitions(row.partitions),
        reservation=notation.present(row.reservation),
        reason=row.reason,
        features=notation.present(row.features),
        wckey=notation.present(row.wckey),
        admin_comment=notation.present(row.admin_comment),
        comment=notation.present(row.comment),
        name=notation.present(row.name),
        printed_name=row.name,
        unreadable=row.unreadable or read.why or sums.unreadable or asked.unreadable,
        unreadable_sum=sums.unreadable_memory,
    )


def has_id(row: JobRow) -> bool:
    """Whether the ids in the row can be read, by which commands address the job."""
    return bool(_KEY.fullmatch(row.key) and _RAW_ID.fullmatch(row.raw_id))


def options(row: JobRow) -> Options:
    """Return the requested options that only squeue shows; equal rows share one object."""
    return _options(_OF_OPTIONS(row), not_modelled(row))


def not_modelled(row: JobRow) -> tuple[str, ...]:
    """Return the sbatch options in the row that placement does not model."""
    per_any = (row.tres_per_job, row.tres_per_node, row.tres_per_socket, row.tres_per_task)
    shares_with_some = row.over_subscribe not in ("NO", "OK", "TOPO")
    others = {
        f"--exclusive={row.over_subscribe.lower()}": shares_with_some,
        "--gres of another kind than gpu": any(map(notation.has_other_gres, per_any)),
        "--gpus of several types": notation.has_several_types(row.tres_per_job),
    }
    asked = (
        option
        for field, option in _NOT_MODELLED.items()
        if getattr(row, field) not in _NOT_ASKED_FOR
    )
    return (*asked, *(option for option, applies in others.items() if applies))


@lru_cache(maxsize=4096)
def _partitions(printed: str) -> tuple[str, ...]:
    return tuple(notation.present(printed).split(","))


@lru_cache(maxsize=4096)
def _options(asked: tuple[str, ...], not_modelled: tuple[str, ...]) -> Options:
    cpus_per_task, per_job, per_node, per_socket, per_task, *others = asked
    cpus_per_tres, memory_per_tres, segment, switches, sharing, licenses, deadline = others
    read = _Attempts()
    return Options(
        cpus_per_task=read(_number_or_1, cpus_per_task, 1),
        gpus_per_job=read(notation.requested_gpus, per_job, NO_GPUS),
        gpus_per_node=read(notation.requested_gpus, per_node, NO_GPUS),
        gpus_per_socket=read(notation.requested_gpus, per_socket, NO_GPUS),
        gpus_per_task=read(notation.requested_gpus, per_task, NO_GPUS),
        cpus_per_gpu=sum(read(notation.gpus, cpus_per_tres, NO_GPUS).values()),
        memory_per_gpu_mb=read(_memory_per_gpu_mb, memory_per_tres, 0),
        segment=read(_number_or_0, segment, 0),
        most_switches=read(_number_or_0, switches, 0),
        whole_blocks=sharing == "TOPO",
        not_modelled=not_modelled,
        licenses=notation.present(licenses),
        deadline_s=read(notation.epoch, deadline, None),
        unreadable=read.why,
    )


class _Sums(NamedTuple):
    """Slurm's totals of what the job holds or requests."""

    nodes: int | None
    memory_mb: int | None
    gpus: GpuCounts | None
    unreadable: str
    unreadable_memory: str


@lru_cache(maxsize=4096)
def _sums(tres: str) -> _Sums:
    read, read_memory = _Attempts(), _Attempts()
    listed = notation.tres(tres)
    nodes = read(notation.whole, listed["node"], None) if "node" in listed else None
    memory_mb = read_memory(notation.mebibytes, listed["mem"], None) if "mem" in listed else None
    gpus = read(notation.gpus, tres, None)
    return _Sums(
        nodes=nodes,
        memory_mb=memory_mb,
        gpus=gpus if gpus or "gres/gpu" in tres else None,
        unreadable=read.why,
        unreadable_memory=read_memory.why,
    )


class _Attempts:
    """Parses values one by one, and keeps the reason of the first failure."""

    def __init__(self) -> None:
        self.why = ""

    def __call__(self, read: Callable[[str], Value], value: str, otherwise: Other) -> Value | Other:
        try:
            return read(value)
        except SlurmAnswerError as error:
            self.why = self.why or error.what
            return otherwise


def live_job_in(answer: str) -> str:
    """Return the raw id of the first job in the answer to ``show job ID``; "" if it has ended.

    A user's text can fake another state, but only for that user's own job.
    """
    record, state = _SHOWN_JOB.match(answer), _SHOWN_STATE.search(answer)
    if record is None or state is None or STATES.get(state[1]) is None:
        return ""
    return record[1]


def _state(word: str) -> JobState | None:
    if word not in STATES:
        raise notation.unreadable("a job state", word)
    return STATES[word]


def _number_or_0(printed: str) -> int:
    """Parse a number; 0 if Slurm prints ``*`` or a word for "none"."""
    return 0 if printed in _NO_NUMBER else notation.whole(printed)


def _number_or_1(printed: str) -> int:
    """Parse a number; 1 if Slurm prints ``*`` or a word for "none"."""
    return 1 if printed in _NO_NUMBER else notation.whole(printed)


def _memory_per_gpu_mb(memory_per_tres: str) -> int:
    """Parse ``gres:gpu:200``, in MiB unless it has a unit."""
    amount = notation.present(memory_per_tres).rpartition("gpu")[2].lstrip(":=")
    return notation.mebibytes(amount) if amount else 0
