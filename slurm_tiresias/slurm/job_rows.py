"""Ask squeue for its jobs, and split its answer into one row per job.

Users write a job's name, comments, features and wckey, and can put newlines or whole fake records
there. So every field ends in a separator with a random token, and the last one in another: no text
without the token can shift a field or add a row. The token is new for each answer, and squeue gets
it in its environment, because every user of this host can read its command line.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple, get_type_hints

from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.release import Release


class JobRow(NamedTuple):
    """One job as squeue prints it, each field as text and annotated with squeue's name for it.

    Fields that users write come last, so that an odd text in one leaves those before it intact. The
    columns for ``over_subscribe`` and ``segment`` depend on the release.
    """

    key: Annotated[str, "JobArrayID"]
    raw_id: Annotated[str, "JobID"]
    array_id: Annotated[str, "ArrayJobID"]
    state: Annotated[str, "State"]
    priority: Annotated[str, "PriorityLong"]
    restarts: Annotated[str, "RestartCnt"]
    batch: Annotated[str, "BatchFlag"]
    requeue: Annotated[str, "Requeue"]
    het_id: Annotated[str, "HetJobID"]
    submit: Annotated[str, "SubmitTime"]
    eligible: Annotated[str, "EligibleTime"]
    start: Annotated[str, "StartTime"]
    end: Annotated[str, "EndTime"]
    time_used: Annotated[str, "TimeUsed"]
    time_limit: Annotated[str, "TimeLimit"]
    nodes: Annotated[str, "NumNodes"]
    most_nodes: Annotated[str, "MaxNodes"]
    cpus: Annotated[str, "NumCPUs"]
    cpus_per_node: Annotated[str, "MinCPUs"]
    tasks: Annotated[str, "NumTasks"]
    cpus_per_task: Annotated[str, "cpus-per-task"]
    tasks_per_node: Annotated[str, "NTPerNode"]
    sockets: Annotated[str, "Sockets"]
    memory: Annotated[str, "MinMemory"]
    over_subscribe: Annotated[str, "OverSubscribe"]
    required_nodes: Annotated[str, "ReqNodes"]
    node_list: Annotated[str, "NodeList"]
    tres_per_job: Annotated[str, "tres-per-job"]
    tres_per_node: Annotated[str, "tres-per-node"]
    tres_per_socket: Annotated[str, "tres-per-socket"]
    tres_per_task: Annotated[str, "tres-per-task"]
    cpus_per_tres: Annotated[str, "cpus-per-tres"]
    memory_per_tres: Annotated[str, "mem-per-tres"]
    tres: Annotated[str, "tres-alloc"]
    tasks_per_core: Annotated[str, "NTPerCore"]
    tasks_per_socket: Annotated[str, "NTPerSocket"]
    cores_per_socket: Annotated[str, "Cores"]
    threads_per_core: Annotated[str, "Threads"]
    specialised_cores: Annotated[str, "CoreSpec"]
    disk: Annotated[str, "MinTmpDisk"]
    contiguous: Annotated[str, "Contiguous"]
    switches: Annotated[str, "ReqSwitch"]
    segment: Annotated[str, "SegmentSize"]
    mcs_label: Annotated[str, "MCSLabel"]
    deadline: Annotated[str, "Deadline"]
    user: Annotated[str, "UserName"]
    account: Annotated[str, "Account"]
    qos: Annotated[str, "QOS"]
    partitions: Annotated[str, "Partition"]
    reservation: Annotated[str, "Reservation"]
    reason: Annotated[str, "Reason"]
    features: Annotated[str, "Feature"]
    wckey: Annotated[str, "WCKey"]
    admin_comment: Annotated[str, "admin_comment"]
    comment: Annotated[str, "Comment"]
    licenses: Annotated[str, "Licenses"]
    network: Annotated[str, "Network"]
    burst_buffer: Annotated[str, "BurstBuffer"]
    name: Annotated[str, "Name"]
    unreadable: str = ""
    """Why the fields after ``node_list`` are empty, in a few words; "" if all could be read."""


FIELDS: dict[str, str] = {
    name: kind.__metadata__[0]
    for name, kind in get_type_hints(JobRow, include_extras=True).items()
    if hasattr(kind, "__metadata__")
}
"""squeue's name of each field, by the name here."""

ARGUMENTS = ("--noheader", "--noconvert", "--all", "--states=all", "--array")
"""Every job and array task in slurmctld, in exact units."""

_SHARING = JobRow._fields.index("over_subscribe")
_SEGMENT = JobRow._fields.index("segment")
_INTACT = JobRow._fields.index("node_list") + 1
"""How many fields at the start of a row Slurm itself writes or checks."""


def new_separator() -> str:
    """Return an unguessable separator. squeue would read leading digits as a column width."""
    return f"\x1e{secrets.token_hex(8)}\x1e"


def columns(release: Release) -> Iterable[str]:
    """Return squeue's columns in the order of ``JobRow``."""
    # A release without segments prints something else in that column, which is not read.
    segment = release.segment_column or FIELDS["switches"]
    return {**FIELDS, "over_subscribe": release.exclusive_column, "segment": segment}.values()


def environment(columns: Iterable[str], separator: str) -> Mapping[str, str]:
    """Return the variable that makes squeue print these columns, each with its separator.

    It has no effect beside ``--Format``. Only the owner of a process can read its environment.
    """
    *others, last = columns
    named = [*(f"{column}:{separator}" for column in others), f"{last}:{_row_end(separator)}"]
    return {"SQUEUE_FORMAT2": ",".join(named)}


def split(answer: str, separator: str) -> Iterator[list[str]]:
    """Yield the fields of each row; raise ``SlurmAnswerError`` if the answer is cut off."""
    *found, rest = answer.split(_row_end(separator))
    if rest.strip("\n"):
        raise notation.unreadable("a truncated end", answer[-80:])
    for row in found:
        yield row.removeprefix("\n").split(separator)


def rows(answer: str, separator: str, release: Release) -> Iterator[JobRow]:
    """Yield the rows of squeue's answer; raise ``SlurmAnswerError`` if it is cut off.

    Of a row with too many or too few fields only the first are used, and ``unreadable`` is set. On
    every release ``over_subscribe`` is NO for an exclusive job, OK for a job that shares its nodes
    with any other, and Slurm's own word (USER, MCS, TOPO) if it shares them with some only.
    """
    for found in split(answer, separator):
        row = found
        if len(found) != len(FIELDS):
            row = [*found[:_INTACT], *[""] * (len(FIELDS) - len(found[:_INTACT]))]
            row.append(f"its row has {len(found)} fields instead of {len(FIELDS)}")
        row[_SHARING] = release.sharing(row[_SHARING])
        row[_SEGMENT] = row[_SEGMENT] if release.segment_column else ""
        yield JobRow(*row)


def _row_end(separator: str) -> str:
    return f"{separator[:-1]}\x1d"
