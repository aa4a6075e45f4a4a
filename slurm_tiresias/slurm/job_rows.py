"""``squeue``: what is asked of it, and its answer cut into one row a job.

Users write a job's name, comments, features and wckey, and may write there whatever looks like the
rest of the answer: separators, newlines, whole records. So every field ends in a separator that
carries a random token drawn for this process, and the whole answer is cut on it: nothing a user
wrote can move a field or add a record.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import NamedTuple

from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.release import Release

FIELDS = {
    "key": "JobArrayID",
    "raw_id": "JobID",
    "array_id": "ArrayJobID",
    "state": "State",
    "priority": "PriorityLong",
    "restarts": "RestartCnt",
    "batch": "BatchFlag",
    "requeue": "Requeue",
    "het_id": "HetJobID",
    "submit": "SubmitTime",
    "eligible": "EligibleTime",
    "start": "StartTime",
    "end": "EndTime",
    "time_used": "TimeUsed",
    "time_limit": "TimeLimit",
    "nodes": "NumNodes",
    "most_nodes": "MaxNodes",
    "cpus": "NumCPUs",
    "cpus_per_node": "MinCPUs",
    "tasks": "NumTasks",
    "cpus_per_task": "cpus-per-task",
    "tasks_per_node": "NTPerNode",
    "sockets": "Sockets",
    "memory": "MinMemory",
    "over_subscribe": "OverSubscribe",
    "required_nodes": "ReqNodes",
    "node_list": "NodeList",
    "tres_per_job": "tres-per-job",
    "tres_per_node": "tres-per-node",
    "tres_per_socket": "tres-per-socket",
    "tres_per_task": "tres-per-task",
    "cpus_per_tres": "cpus-per-tres",
    "memory_per_tres": "mem-per-tres",
    "tres": "tres-alloc",
    "tasks_per_core": "NTPerCore",
    "tasks_per_socket": "NTPerSocket",
    "cores_per_socket": "Cores",
    "threads_per_core": "Threads",
    "specialised_cores": "CoreSpec",
    "disk": "MinTmpDisk",
    "contiguous": "Contiguous",
    "switches": "ReqSwitch",
    "mcs_label": "MCSLabel",
    "deadline": "Deadline",
    "user": "UserName",
    "account": "Account",
    "qos": "QOS",
    "partitions": "Partition",
    "reservation": "Reservation",
    "reason": "Reason",
    "features": "Feature",
    "wckey": "WCKey",
    "admin_comment": "admin_comment",
    "comment": "Comment",
    "licenses": "Licenses",
    "network": "Network",
    "burst_buffer": "BurstBuffer",
    "name": "Name",
}
"""Our name of each field, and Slurm's; those that users write stand last.

What tells of exclusive jobs is another column on some releases (``Release.exclusive_column``).
"""


class JobRow(NamedTuple):
    """One job as squeue prints it, each field as text."""

    key: str
    raw_id: str
    array_id: str
    state: str
    priority: str
    restarts: str
    batch: str
    requeue: str
    het_id: str
    submit: str
    eligible: str
    start: str
    end: str
    time_used: str
    time_limit: str
    nodes: str
    most_nodes: str
    cpus: str
    cpus_per_node: str
    tasks: str
    cpus_per_task: str
    tasks_per_node: str
    sockets: str
    memory: str
    over_subscribe: str
    required_nodes: str
    node_list: str
    tres_per_job: str
    tres_per_node: str
    tres_per_socket: str
    tres_per_task: str
    cpus_per_tres: str
    memory_per_tres: str
    tres: str
    tasks_per_core: str
    tasks_per_socket: str
    cores_per_socket: str
    threads_per_core: str
    specialised_cores: str
    disk: str
    contiguous: str
    switches: str
    mcs_label: str
    deadline: str
    user: str
    account: str
    qos: str
    partitions: str
    reservation: str
    reason: str
    features: str
    wckey: str
    admin_comment: str
    comment: str
    licenses: str
    network: str
    burst_buffer: str
    name: str


assert tuple(FIELDS) == JobRow._fields, "FIELDS and JobRow agree"


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
