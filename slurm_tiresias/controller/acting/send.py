"""Send writes to Slurm in parts, and record its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurm_tiresias.controller.acting.under_way import UnderWay
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.lifecycle.preemption import RequeueRefused
from slurm_tiresias.slurm.hostlist import task_keys
from slurm_tiresias.slurm.protocol import (
    Requeue,
    Restart,
    SetNode,
    UnfinishedWriteError,
    Unpin,
    Update,
    Write,
    WriteFailure,
)

MOST_WRITES_AT_ONCE = 500
"""About half a second of writes. Each part has its own time limit, and must end with the lease."""

MOST_FAILURES_NOTED = 10
"""How many failures are recorded per write: an array of thousands of tasks may be refused."""


def send(under_way: UnderWay, writes: Sequence[Write]) -> tuple[WriteFailure, ...]:
    """Commit the intents, send writes in parts, and record each part once Slurm has answered.

    After an error the next attempt goes on where this one stopped, however slow slurmctld is.
    """
    job_store, now_s = under_way.job_store, under_way.now_s
    job_store.commit()
    failures: list[WriteFailure] = []
    for at in range(0, len(writes), MOST_WRITES_AT_ONCE):
        part = writes[at : at + MOST_WRITES_AT_ONCE]
        try:
            refused = under_way.slurm.write(part)
        except UnfinishedWriteError as error:
            _answered(job_store, part[: error.answered], error.refused, now_s)
            raise
        _answered(job_store, part, refused, now_s)
        failures += refused
    return tuple(failures)


def _answered(
    job_store: JobStore, writes: Sequence[Write], failures: Sequence[WriteFailure], now_s: float
) -> None:
    refused = {id(failure.write) for failure in failures}
    for write in writes:
        if id(write) not in refused:
            _written(job_store, write)
    for failure in failures:
        if not failure.has_ended:
            is_of_node = isinstance(failure.write, SetNode)
            job_store.nodes.may_not_be_set |= is_of_node
            keys = [""] if is_of_node else task_keys(failure.write.key)[:MOST_FAILURES_NOTED]
            for key in keys:
                job_store.events.note(now_s, "failed", key, failure.message)
        if isinstance(failure.write, Requeue):
            job_store.lifecycles.preemption_event(failure.write.key, RequeueRefused())
        account = job_store.accounts.of(failure.write.key)
        if isinstance(failure.write, Restart) and account is not None:
            job_store.accounts.put(replace(account, is_restarted=False))
    job_store.commit()


def _written(job_store: JobStore, write: Write) -> None:
    for key in () if isinstance(write, SetNode) else task_keys(write.key):
        record = job_store.accounts.of(key)
        if record is None:
            continue
        if isinstance(write, Unpin):
            job_store.accounts.put(replace(record, written_priority=None))
        elif isinstance(write, Update) and write.priority is not None:
            job_store.accounts.put(replace(record, written_priority=write.priority))
        elif isinstance(write, Update) and write.site_factor is not None:
            job_store.accounts.put(replace(record, written_site_factor=write.site_factor))


def keys_of(failures: Sequence[WriteFailure]) -> set[str]:
    """Return the jobs whose writes were refused."""
    refused = (failure.write for failure in failures)
    return {key for one in refused if not isinstance(one, SetNode) for key in task_keys(one.key)}
