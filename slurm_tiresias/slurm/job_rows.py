"""Build squeue's arguments, and split its answer into one row per job.

Users write a job's name, comments, features and wckey, and can put separators, newlines or whole
fake records there. So every field ends in a separator with a random token drawn for this process,
and the answer is split on it: no user's text can shift a field or add a record.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Annotated, NamedTuple, get_type_hints

from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.release import Release


class JobRow(NamedTuple):
    """One job as squeue prints it, each field as text and annotated with squeue's name for it.

    Fields that users write come last. The column for ``over_subscribe`` depends on the release
    (``Release.exclusive_column``).
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


FIELDS: dict[str, str] = {
    name: kind.__metadata__[0] for name, kind in get_type_hints(JobRow, include_extras=True).items()
}
"""squeue's name of each field, by the name here."""

_SHARING = JobRow._fields.index("over_subscribe")


def new_separator() -> str:
    """Return an unguessable separator. squeue would read leading digits as a column width."""
    return f"\x1e{secrets.token_hex(8)}\x1e"


def arguments(separator: str, release: Release) -> list[str]:
    """Return squeue's arguments for every job and array task in slurmctld, in exact units."""
    names = {**FIELDS, "over_subscribe": release.exclusive_column}.values()
    columns = ",".join(f"{column}:{separator}" for column in names)
    return ["--noheader", "--noconvert", "--all", "--states=all", "--array", f"--Format={columns}"]


def rows(answer: str, separator: str, release: Release) -> Iterator[JobRow]:
    """Yield the rows of squeue's answer; raise ``SlurmAnswerError`` if it is cut off or malformed.

    On every release ``over_subscribe`` is NO for an exclusive job, OK for a job that shares its
    nodes with any other, and Slurm's own word (USER, MCS, TOPO) if it shares them with some only.
    """
    pieces = answer.split(separator)
    if pieces.pop().strip("\n"):
        raise notation.unreadable("a truncated end", answer[-80:])
    width = len(FIELDS)
    if len(pieces) % width:
        raise notation.unreadable("a truncated row", answer[-80:])
    for at in range(0, len(pieces), width):
        row = pieces[at : at + width]
        if at and not row[0].startswith("\n"):
            raise notation.unreadable("a row without a separate line", row[0])
        row[0] = row[0].removeprefix("\n")
        row[_SHARING] = release.sharing(row[_SHARING])
        yield JobRow._make(row)
