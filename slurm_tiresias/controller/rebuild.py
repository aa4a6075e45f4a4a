"""Rebuild a lost ledger from what Slurm and its accounting still know.

Attained service, submission times and first starts are recovered, and with them, in the first
cycle, tiers. What only the ledger has is copied as far as the old file can still be read, also if
it is of another version.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_tiresias.controller import bands
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.reconcile import Reconciler
from slurm_tiresias.model import JobState
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.hostlist import refolded
from slurm_tiresias.slurm.protocol import Observation, Slurm
from slurm_tiresias.store.ledger import FIRST_LOOK, Ledger, check_cluster, put_in_place, value_in
from slurm_tiresias.store.salvage import salvage
from slurm_tiresias.store.terms import newest_ledger


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The jobs that have not ended in the new ledger, and the location of the old file."""

    ledger: str
    replaced: str
    """The new path of the old file; "" if there was none."""
    jobs: int
    runs: int
    attained_gpu_s: float
    paused: bool
    incomplete: tuple[str, ...]
    """Jobs whose earlier runs accounting does not have completely yet: it is asked again."""
    node_lists: tuple[str, ...]
    """Waiting jobs with a node list of a lost nomination, which the next controller removes."""
    copied: int
    """How many rows of the old file could be copied."""
    lost: tuple[str, ...]
    """Of what rows or columns were lost, because they could not be read or are not known."""


def rebuild(slurm: Slurm, config: Config, state_dir: Path) -> Rebuilt:
    """Write a new ledger of all managed jobs that Slurm shows, and put it in place.

    No controller may run. Raises the errors of the driver, accounting included, ``LedgerError``,
    and ``ConfigError`` if the old ledger belongs to another cluster; nothing has changed then.
    """
    path = newest_ledger(state_dir)
    draft = state_dir / f".{path.name}.rebuilt"
    for end in ("", "-wal", "-shm"):
        draft.with_name(draft.name + end).unlink(missing_ok=True)
    cluster, seen = slurm.cluster(), slurm.observe()
    check_cluster(path, cluster.name)
    # Keep the controller paused if the old ledger can still be read and says so.
    paused = value_in(path, "paused") == "yes"
    with closing(Ledger(draft)) as ledger:
        ledger.bind(cluster.name)
        salvaged = salvage(path, ledger)
        job_store = JobStore(ledger, config, cluster.accounting)
        job_store.observe(seen)
        Reconciler(job_store, slurm).ask_and_wait(seen.at_s)
        # Slurm does not keep the order inside a tier: number the jobs by first start.
        records = job_store.accounts.all.values()
        started = [record for record in records if record.first_started_s is not None]
        for record in sorted(started, key=lambda record: record.first_started_s or 0.0):
            job_store.accounts.put(replace(record, start_number=ledger.next_number()))
        node_lists = _take_node_lists(job_store, seen, config.priority.write)
        job_store.commit()
        if paused:
            ledger.set_value("paused", "yes")
        # 0, the beginning of time, if it is unknown: then reports leave out no job.
        ledger.set_value(FIRST_LOOK, value_in(path, FIRST_LOOK) or "0")
    replaced = put_in_place(draft, path)
    alive = [record.key for record in job_store.accounts.all.values() if record.ended_s is None]
    return Rebuilt(
        ledger=str(path),
        replaced=str(replaced or ""),
        jobs=len(alive),
        runs=sum(len(job_store.runs.of(key)) for key in alive),
        attained_gpu_s=sum(job_store.runs.attained_gpu_s(key) for key in alive),
        paused=paused,
        incomplete=tuple(key for key in alive if job_store.accounts.is_doubtful(key)),
        node_lists=node_lists,
        copied=salvaged.rows,
        lost=salvaged.lost,
    )


def _take_node_lists(job_store: JobStore, seen: Observation, written_as: str) -> tuple[str, ...]:
    """Record the node lists that nominations of the lost ledger have left on waiting jobs."""
    taken: list[str] = []
    for job in seen.jobs:
        record = job_store.accounts.of(job.key)
        waits_on_a_list = job.state is JobState.PENDING and job.spec.required_node_list
        if record is not None and waits_on_a_list and bands.is_nominated(job.priority, written_as):
            job_store.accounts.put(
                replace(record, written_nodes=refolded(job.spec.required_node_list))
            )
            taken.append(job.key)
    return tuple(taken)
