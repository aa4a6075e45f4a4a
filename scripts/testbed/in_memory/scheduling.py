"""One pass of Slurm's scheduler: jobs by partition tier and priority, and their pending reasons.

The first job of a partition that only lacks room blocks the partition for all later jobs, unless it
requires nodes: then only those are kept for it (``schedule()`` in src/slurmctld/job_scheduler.c).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scripts.testbed.in_memory.placing import place
from scripts.testbed.in_memory.records import (
    BAD_CONSTRAINTS,
    HELD_BY_ADMIN,
    HOLDS,
    NO_REASON,
    Condition,
    JobRecord,
)
from slurm_tiresias.slurm.hostlist import folded

if TYPE_CHECKING:
    from scripts.testbed.in_memory.slurmctld import Slurmctld

NODES_ELSEWHERE = (
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
)
"""The reason of a job with several partitions, one of which lacks a required node: not held."""

WAITS_FOR_CONDITIONS = frozenset({"Dependency", "BeginTime", "JobArrayTaskLimit"})
"""Reasons that disappear with their cause; any other stays until the job is tried again."""

YEAR_S = 365 * 86400.0
"""The duration that Slurm assumes for a job without a time limit."""


@dataclass(slots=True)
class _Pass:
    """The state of a pass: closed partitions, nodes kept for jobs that require them, and, for
    backfilling, the nodes planned for each closed partition's first job."""

    out: frozenset[str]
    """Nodes that are not in service."""
    completing: frozenset[str]
    """Nodes that start no job until their epilogs have finished."""
    closed: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    planned: set[str] = field(default_factory=set)


def run(ctld: Slurmctld) -> None:
    """Start all jobs that can start; set the reason of every other pending job."""
    queue = [
        (record, partition)
        for record in list(ctld.pending())
        if _is_due(ctld, record)
        for partition in record.spec.partitions
    ]

    def rank(entry: tuple[JobRecord, str]) -> tuple[int, int, float, int]:
        record, partition = entry
        tier = ctld.partitions[partition].priority_tier
        return -tier, -record.priority, record.spec.submit_s, record.raw_id

    queue.sort(key=rank)
    out = frozenset(name for name, one in ctld.nodes.items() if not one.node.available)
    state = _Pass(out, frozenset(ctld.completing_nodes()))
    for record, partition in queue:
        while record.is_pending and record.tasks and _try(ctld, record, partition, state):
            if _is_at_array_limit(ctld, record):
                _give_reason(record, "JobArrayTaskLimit")
                break


def _give_reason(record: JobRecord, reason: str) -> None:
    if record.reason != reason:
        record.reason = reason
        record.changed()


def _is_due(ctld: Slurmctld, record: JobRecord) -> bool:
    """Whether a pending job may be tried; set its reason if not."""
    if reason := _why_not_due(ctld, record):
        _give_reason(record, reason)
        return False
    if record.begin_s is None:
        record.begin_s = ctld.now_s
        record.changed()
    if record.reason in WAITS_FOR_CONDITIONS:
        _give_reason(record, NO_REASON)
    return True


def _why_not_due(ctld: Slurmctld, record: JobRecord) -> str:
    if record.priority == 0:
        return record.reason if record.reason in HOLDS else HELD_BY_ADMIN
    met = {one: False if one.failed else _is_met(ctld, one) for one in record.conditions}
    record.conditions = tuple(
        replace(one, failed=met[one] is False) for one in record.conditions if not met[one]
    )
    if any(condition.failed for condition in record.conditions):
        return "DependencyNeverSatisfied"
    if record.conditions:
        return "Dependency"
    if record.begin_s is not None and record.begin_s > ctld.now_s:
        return "BeginTime"
    return "JobArrayTaskLimit" if _is_at_array_limit(ctld, record) else ""


def _is_at_array_limit(ctld: Slurmctld, record: JobRecord) -> bool:
    limit = record.spec.array_limit
    if record.spec.array_id is None or limit is None:
        return False
    return sum(one.runs for one in ctld.of_array(record.spec.array_id)) >= limit


def _is_met(ctld: Slurmctld, condition: Condition) -> bool | None:
    """Whether a dependency is satisfied; None while that is open. A job that slurmctld has
    forgotten counts as completed."""
    records = [r for r in ctld.records.values() if condition.job_id in (r.raw_id, r.spec.array_id)]
    if condition.kind == "after":
        return all(record.start_s is not None or record.has_ended for record in records) or None
    if any(not record.has_ended or record.completing for record in records):
        return None
    succeeded = all(record.state == "COMPLETED" for record in records)
    return {"afterany": True, "afterok": succeeded}.get(condition.kind, not succeeded)


def _try(ctld: Slurmctld, record: JobRecord, partition: str, state: _Pass) -> bool:
    """Try to start a job, or one task of a pending record, in a partition; return if it started."""
    closed = partition in state.closed
    if closed and not ctld.settings.backfill:
        return _wait_behind(record)
    usable = ctld.partitions[partition].nodes - state.kept - state.out
    usable -= _reserved_nodes(ctld, record)
    reason = _why_impossible(ctld, record, partition, usable)
    if reason:
        _give_reason(record, reason)
        return False
    ready = usable - state.completing - (state.planned if closed else set())
    found = ctld.place(record, frozenset(ready))
    if found is not None:
        ctld.start(record, found)
        return True
    if closed:
        return _wait_behind(record)
    _give_reason(record, "Resources")
    required = record.spec.request.required_nodes
    if required and len(required) >= record.spec.request.min_nodes:
        state.kept |= required
    else:
        state.closed.add(partition)
        if ctld.settings.backfill:
            state.planned |= _planned_nodes(ctld, record, usable)
    return False


def _wait_behind(record: JobRecord) -> bool:
    """Let the job wait for others; a reason that Slurm found earlier stays."""
    if record.reason in (NO_REASON, "Resources"):
        _give_reason(record, "Priority")
    return False


def _why_impossible(
    ctld: Slurmctld, record: JobRecord, partition: str, usable: frozenset[str]
) -> str:
    """Return why a job could not start in a partition even if no job ran there; "" if it could.

    A job that the partition can never satisfy is held.
    """
    if not ctld.partitions[partition].up:
        return "PartitionDown"
    if record.obstacle:
        return record.obstacle
    if any(limit.is_reached for limit in ctld.limits_of(record.spec)):
        return "Licenses" if record.spec.licenses else "QOSMaxJobsPerUserLimit"
    if ctld.partitions[partition].why_refused(record.spec):
        return "PartitionTimeLimit"
    mine, request = ctld.partitions[partition].nodes, record.spec.request
    required, most_nodes = request.required_nodes, request.max_nodes
    if not required <= mine and len(record.spec.partitions) > 1:
        return NODES_ELSEWHERE
    too_long = most_nodes is not None and len(required) > most_nodes
    if too_long or not ctld.could_ever_serve(record, mine):
        record.priority, record.pinned = 0, False
        return BAD_CONSTRAINTS
    if required & _reserved_nodes(ctld, record):
        return "ReqNodeNotAvail, May be reserved for other job"
    gone = mine - usable
    if required & gone or not ctld.could_ever_serve(record, usable):
        return f"ReqNodeNotAvail, UnavailableNodes:{folded(required & gone or gone)}"
    return ""


def _reserved_nodes(ctld: Slurmctld, record: JobRecord) -> frozenset[str]:
    """Return nodes the job cannot use, because a reservation begins before it could end."""
    limit_s = record.spec.time_limit_s
    until_s = ctld.now_s + (YEAR_S if limit_s is None else limit_s)
    return frozenset(
        name
        for reservation in ctld.reservations.values()
        if reservation.start_s < until_s and reservation.end_s > ctld.now_s
        if reservation.name != record.spec.reservation
        for name in reservation.nodes
    )


def _planned_nodes(ctld: Slurmctld, record: JobRecord, usable: Collection[str]) -> set[str]:
    """Return the nodes where a job that lacks room could start soonest if every running job used
    its whole time limit; backfilling does not use these."""
    freed = {name: replace(one, gpus=dict(one.gpus)) for name, one in ctld.nodes.items()}
    freed = {name: one for name, one in freed.items() if name in usable}
    running = [one for one in ctld.records.values() if one.runs]
    running.sort(key=lambda one: (one.start_s or 0.0) + (one.spec.time_limit_s or YEAR_S))
    for leaving in running:
        for name, amount in leaving.allocation.items():
            if name in freed:
                freed[name].add(amount, +1)
        found = place(record.spec.request, freed.values())
        if found is not None:
            return set(found)
    return set()
