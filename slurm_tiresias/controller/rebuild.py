"""A new ledger from what Slurm and its accounting still know, in the place of a lost one.

Attained service, submissions, first starts and tiers come back. What only the ledger knew is lost:
promotions, how often a job was preempted and for whom.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_tiresias.config import Config
from slurm_tiresias.controller import bands
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.reconcile import Reconciler
from slurm_tiresias.model import JobState
from slurm_tiresias.slurm.hostlist import refolded
from slurm_tiresias.slurm.protocol import Observation, Slurm
from slurm_tiresias.store.ledger import FIRST_LOOK, Ledger, check_cluster, put_in_place, value_in
from slurm_tiresias.store.terms import newest_ledger


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a new ledger holds of the jobs that have not ended, and where the old one lies."""

    ledger: str
    replaced: str
    """The file that was there before, under its new name; empty where there was none."""
    jobs: int
    incarnations: int
    attained_gpu_s: float
    paused: bool
    incomplete: tuple[str, ...]
    """Jobs of whose earlier runs accounting does not know all: it is asked again."""
    node_lists: tuple[str, ...]
    """Waiting jobs whose node list seems to be a nomination's: the next controller removes it."""


def rebuild(slurm: Slurm, config: Config, state_dir: Path) -> Rebuilt:
    """Write a ledger of all managed jobs that Slurm shows, and put it in place.

    Raises what the driver raises, accounting included, ``LedgerError``, and ``ConfigError`` where
    the old one is of another cluster; nothing has changed then. No controller may run.
    """
    path = newest_ledger(state_dir)
    draft = state_dir / f".{path.name}.rebuilt"
    for end in ("", "-wal", "-shm"):
        draft.with_name(draft.name + end).unlink(missing_ok=True)
    cluster, seen = slurm.cluster(), slurm.observe()
    check_cluster(path, cluster.name)
    # Whether the old ledger can still be read to say that the controller is not to act.
    paused = value_in(path, "paused") == "yes"
    with closing(Ledger(draft)) as ledger:
        ledger.bind(cluster.name)
        job_store = JobStore(ledger, config, cluster.accounting)
        job_store.observe(seen)
        Reconciler(job_store, slurm).ask_and_wait(seen.at_s)
        # The order inside a tier, which Slurm does not keep.
        records = job_store.records().values()
        started = [record for record in records if record.first_started_s is not None]
        for record in sorted(started, key=lambda record: record.first_started_s or 0.0):
            job_store.put(replace(record, start_number=ledger.next_number()))
        node_lists = _take_for_claims(job_store, seen, config.priority.write)
        # Once more, by the service that is known now: the tiers.
        job_store.observe(seen)
        job_store.commit()
        if paused:
            ledger.set_value("paused", "yes")
        # Unknown is the beginning of time: then no job is left out of reports.
        ledger.set_value(FIRST_LOOK, value_in(path, FIRST_LOOK) or "0")
    replaced = put_in_place(draft, path)
    alive = [record.key for record in job_store.records().values() if record.ended_s is None]
    return Rebuilt(
        ledger=str(path),
        replaced=str(replaced or ""),
        jobs=len(alive),
        incarnations=sum(len(job_store.runs.of(key)) for key in alive),
        attained_gpu_s=sum(job_store.runs.attained_gpu_s(key) for key in alive),
        paused=paused,
        incomplete=tuple(key for key in alive if job_store.is_doubtful(key)),
        node_lists=node_lists,
    )


def _take_for_claims(job_store: JobStore, seen: Observation, written_as: str) -> tuple[str, ...]:
    """Node lists that the controller whose ledger is lost has left on waiting jobs."""
    taken: list[str] = []
    for job in seen.jobs:
        record = job_store.record(job.key)
        waits_on_a_list = job.state is JobState.PENDING and job.spec.required_node_list
        if record is not None and waits_on_a_list and bands.is_nominated(job.priority, written_as):
            job_store.put(replace(record, written_nodes=refolded(job.spec.required_node_list)))
            taken.append(job.key)
    return tuple(taken)
