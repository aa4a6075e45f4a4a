"""``squeue``: what is asked of it, and its answer cut into one row a job.

Users write a job's name, comments, features and wckey, and may write there whatever looks like the
rest of the answer: separators, newlines, whole records. So every field ends in a separator that
carries a random token drawn for this process, and the whole answer is cut on it: nothing a user
wrote can move a field or add a record.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Annotated, NamedTuple, get_type_hints

from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.release import Release


class JobRow(NamedTuple):
    """One job as squeue prints it, each field as text; beside it squeue's name for it.

    Those that users write stand last. What tells of exclusive jobs is another column on some
    releases (``Release.exclusive_column``).
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
"""Our name of each field, and Slurm's."""

_SHARING = JobRow._fields.index("over_subscribe")


def new_separator() -> str:
    """A separator that no one can guess. squeue takes digits at its start for a width."""
    return f"\x1e{secrets.token_hex(8)}\x1e"


def arguments(separator: str, release: Release) -> list[str]:
    """squeue's arguments: every job and array task that slurmctld remembers, in exact units."""
    names = {**FIELDS, "over_subscribe": release.exclusive_column}.values()
    columns = ",".join(f"{column}:{separator}" for column in names)
    return ["--noheader", "--noconvert", "--all", "--states=all", "--array", f"--Format={columns}"]


def rows(answer: str, separator: str, release: Release) -> Iterator[JobRow]:
    """The rows of squeue's answer; ``SlurmAnswerError`` where it is cut off or anything is odd.

    ``over_subscribe`` is NO for a job that has its nodes for itself, on every release; OK for a
    job that shares them with any other; and Slurm's own word (USER, MCS, TOPO) where it shares
    them with some jobs only.
    """
    pieces = answer.split(separator)
    if pieces.pop().strip("\n"):
        raise notation.unreadable("an end that is cut off", answer[-80:])
    width = len(FIELDS)
    if len(pieces) % width:
        raise notation.unreadable("a row that is cut off", answer[-80:])
    for at in range(0, len(pieces), width):
        row = pieces[at : at + width]
        if at and not row[0].startswith("\n"):
            raise notation.unreadable("a row without its own line", row[0])
        row[0] = row[0].removeprefix("\n")
        row[_SHARING] = release.sharing(row[_SHARING])
        yield JobRow._make(row)
