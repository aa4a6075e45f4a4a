"""Changes of jobs through ``scontrol``, and Slurm's messages if it refuses them.

The parts of one request are carried out in Slurm's order: node list, priority, start time, site
factor. The first refused part ends the request, and earlier parts stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from scripts.testbed.in_memory.records import (
    BAD_CONSTRAINTS,
    HELD_BY_ADMIN,
    NO_REASON,
    JobRecord,
)
from scripts.testbed.in_memory.slurmctld import Slurmctld
from slurm_tiresias.slurm.hostlist import array_tasks, folded
from slurm_tiresias.slurm.notation import node_names
from slurm_tiresias.slurm.protocol import Requeue, Restart, SetNode, Unpin, Update, Write

INVALID_ID = "Invalid job id specified"
FINISHED = "Job has already finished"
NOT_PENDING = "Job is no longer pending execution"
IS_PENDING = "Job is pending execution"
HELD = "Job is in held state, pending scheduler release"
INVALID_NODE = "Invalid node name specified"
INVALID_PARTITION = "Invalid partition name specified"
DISABLED = "Requested operation is presently disabled"
BATCH_ONLY = "Only batch jobs are accepted or processed"
DENIED = "Access/permission denied"
NOT_PERSISTENT = "Changes to job priority are not persistent, change nice instead"
NOT_SUSPENDED = "Job is not suspended"

Change = Callable[[JobRecord], str]
"""Changes one record; returns Slurm's message if refused, else ""."""


def apply(ctld: Slurmctld, write: Write) -> str:
    """Carry out one write of the controller; return Slurm's message, or "" if all was done."""
    match write:
        case Requeue(key, allow):

            def requeue_if_it_runs(record: JobRecord) -> str:
                """``scontrol requeue incomplete``: a job that does not run is left alone."""
                if allow and not record.has_ended:
                    ctld.ask(record, requeue=True)
                return requeue(ctld, record) if record.runs else ""

            return each(ctld, key, requeue_if_it_runs)
        case SetNode(node, _, int(weight)):
            one = ctld.nodes[node]
            one.node = replace(one.node, weight=weight)
            return ""
        case SetNode(node, drain):
            ctld.set_node(node, "DRAIN" if drain else "IDLE", available=not drain)
            return ""
        case Restart(key):
            return each(ctld, key, lambda record: requeue(ctld, record))
        case Unpin(key):
            words = each(ctld, key, lambda record: release(ctld, record))
            # scontrol then tries to resume it as a suspended job.
            again = words.partition(" for job ")[0]
            return f"{words}; slurm_suspend error: {again}" if words and "_" not in key else words
        case Update():
            # Slurm accepts a node list for single tasks only.
            singly = write.node_list is not None and write.key.endswith("]")
            keys = node_names(write.key) if singly else [write.key]
            answers = (each(ctld, key, lambda record: update(ctld, record, write)) for key in keys)
            return "; ".join(filter(None, answers))


def each(ctld: Slurmctld, key: str, change: Change) -> str:
    """Change each record of a key, after splitting off tasks from a pending record if the key names
    only some of them. Return Slurm's messages, which name the refused tasks."""
    job_id, _, tasks = key.partition("_")
    number = int(job_id)
    records = [ctld.records[number]] if number in ctld.records else []
    if not tasks and not (records and records[0].spec.array_id is not None):
        words = change(records[0]) if records else INVALID_ID
        return f"{words} for job {key}" if words else ""
    records = ctld.of_array(number)
    if tasks:
        names = node_names(key) if key.endswith("]") else [key]
        wanted = [int(name.partition("_")[2]) for name in names]
    else:
        wanted = [task for one in records for task in one.tasks]
    refused: dict[str, list[str]] = {}
    for record in list(records):
        for part in _parts(ctld, record, wanted):
            if words := change(part):
                refused.setdefault(words, []).extend(part.keys)
    known = {task for one in ctld.of_array(number) for task in one.tasks}
    if unknown := [f"{number}_{task}" for task in wanted if task not in known]:
        refused.setdefault(INVALID_ID, []).extend(unknown)
    # ``73_1,5-9``, as Slurm names tasks in its answers.
    named = {words: re.sub(r"[\[\]]", "", array_tasks(keys)) for words, keys in refused.items()}
    return "; ".join(f"{tasks}: {words}" for words, tasks in named.items())


def _parts(ctld: Slurmctld, record: JobRecord, wanted: Sequence[int]) -> Iterable[JobRecord]:
    """Return the record if all of its tasks are wanted, else the wanted tasks split off."""
    mine = [task for task in record.tasks if task in wanted]
    if len(mine) == len(record.tasks):
        return [record]
    return [ctld.split_off(record, task) for task in mine]


def update(ctld: Slurmctld, record: JobRecord, write: Update) -> str:
    """Apply an update to one record."""
    if record.has_ended:
        return FINISHED
    words = _change(ctld, record, write)
    if words:
        ctld.touch(record)  # part of it may have been done
    else:
        updated(ctld, record, priority_written=write.priority is not None)
    return words


def _change(ctld: Slurmctld, record: JobRecord, write: Update) -> str:
    if write.node_list is not None:
        if not record.is_pending:
            return NOT_PENDING
        if words := set_node_list(ctld, record, write.node_list):
            return words
    if write.priority is not None:
        if record.priority == 0:
            return HELD
        if write.priority != record.priority:
            record.priority, record.pinned, record.nice = write.priority, True, 0
    if write.start_in_s is not None:
        if not record.is_pending:
            return NOT_PENDING
        record.begin_s = ctld.now_s + max(write.start_in_s, 0)
    if write.excluded is not None:
        if not record.is_pending:
            return NOT_PENDING
        record.excluded = frozenset(node_names(write.excluded))
        ctld.ask(record)
    if write.site_factor is not None:
        record.site_factor = write.site_factor
        if record.priority and not record.pinned:
            record.priority = record.computed_priority
    return ""


def updated(ctld: Slurmctld, record: JobRecord, *, priority_written: bool = False) -> None:
    """Reset the reason of an updated job until Slurm tries it again, and release it if it was held
    for unsatisfiable constraints."""
    if record.reason == BAD_CONSTRAINTS and not priority_written:
        record.priority, record.pinned = record.computed_priority, False
    if record.is_pending and record.priority:
        record.reason = NO_REASON
    ctld.touch(record)


def set_node_list(ctld: Slurmctld, record: JobRecord, node_list: str) -> str:
    """Set ``ReqNodeList``; "" removes it."""
    names = node_names(node_list)
    if any(name not in ctld.nodes for name in names):
        return INVALID_NODE
    ctld.ask(record, required_node_list=folded(names))
    return ""


def release(ctld: Slurmctld, record: JobRecord) -> str:
    """``scontrol release`` by an operator."""
    if record.has_ended:
        return FINISHED
    ctld.unpin(record)
    return ""


def release_by_owner(ctld: Slurmctld, record: JobRecord) -> str:
    """``scontrol release`` by a user, who cannot undo an operator's hold."""
    return DENIED if record.reason == HELD_BY_ADMIN else release(ctld, record)


def hold(ctld: Slurmctld, record: JobRecord, *, by_admin: bool) -> str:
    """``scontrol hold`` by an operator, or by the job's owner."""
    if record.has_ended:
        return FINISHED
    if by_admin or record.reason != HELD_BY_ADMIN:
        ctld.hold(record, by_admin=by_admin)
    return ""


def requeue(ctld: Slurmctld, record: JobRecord) -> str:
    """A plain ``scontrol requeue``, which runs an ended job again."""
    if not record.spec.requeue:
        return DISABLED
    if not record.spec.batch:
        return BATCH_ONLY
    if record.is_pending:
        return IS_PENDING
    ctld.requeue(record)
    return ""


def edit(ctld: Slurmctld, field: str, value: Any, record: JobRecord) -> str:
    """``scontrol update`` of one field by the job's owner: priority, nice, requeue, node_list,
    partitions or array_limit (0 removes the limit)."""
    if record.has_ended and field != "array_limit":
        return FINISHED
    match field:
        case "priority":
            if record.priority == 0:
                return HELD
            if value > record.priority:
                return DENIED
            # A user may lower the priority; Slurm does so and prints a warning.
            record.priority = value
            updated(ctld, record, priority_written=True)
            return NOT_PERSISTENT
        case "nice":
            # Nice does not change a pinned priority.
            if record.priority and not record.pinned:
                record.nice = value
                record.priority = record.computed_priority
        case "requeue":
            ctld.ask(record, requeue=value)
        case "array_limit":
            record.spec = replace(record.spec, array_limit=value or None)
        case _ if not record.is_pending:
            # The node list would shrink a running job: ``disable_job_shrink`` refuses that.
            return NOT_PENDING
        case "partitions":
            if any(name not in ctld.partitions for name in value):
                return INVALID_PARTITION
            ctld.ask(record, partitions=value)
        case "node_list":
            if words := set_node_list(ctld, record, value):
                return words
    updated(ctld, record)
    return ""
