"""All access of the lifecycle tests to the memory of the controller and of the in-memory Slurm, in
case its layout changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from scripts.testbed.in_memory.driver import InMemorySlurm
from slurm_tiresias.controller.cycle import Cycles
from slurm_tiresias.core.lifecycle.preemption import Cause, Preemption


def preemption_of(cycles: Cycles, victim: str) -> Preemption | None:
    """The preemption of a job, also if it was called off and the job may still requeue itself."""
    return cycles.job_store.lifecycles.preemptions.get(victim)


def is_leaving(cycles: Cycles, victim: str) -> bool:
    """Whether a job has been signalled for a preemption that is under way."""
    preemption = preemption_of(cycles, victim)
    return preemption is not None and preemption.is_leaving


def has_signal(cycles: Cycles, victim: str) -> bool:
    """Whether a job may have got a signal on which it requeues itself; called off or not."""
    preemption = preemption_of(cycles, victim)
    return preemption is not None and preemption.signalled_s is not None


def is_redoing(cycles: Cycles, key: str) -> bool:
    """Whether a running job is still redoing work that an earlier run lost."""
    return cycles._feed.jobs[key].past_losses.redoing_until_s is not None


def victims_of(cycles: Cycles, preemptor: str) -> Collection[str]:
    """The jobs that are to make room for this one, and still hold their GPUs."""
    under_way = cycles.job_store.lifecycles.preemptions.values()
    return [one.key for one in under_way if one.preemptor == preemptor and one.makes_room]


def preempted_runs(cycles: Cycles) -> Sequence[tuple[tuple[str, float], Cause]]:
    """The run, by job and start time, and the cause of each preemption in the ledger."""
    query = "SELECT key, run_start_s, cause FROM preemptions"
    rows = cycles.job_store.changes.ledger._database.execute(query).fetchall()
    return [((key, start_s), Cause(cause)) for key, start_s, cause in rows]


def preemptions_since(cycles: Cycles, first: int) -> Sequence[tuple[str, str, float]]:
    """Victim, preemptor and time of the preemptions in the ledger, from this one on (from 0)."""
    query = (
        "SELECT key, for_job, at_s FROM preemptions WHERE for_job != '' ORDER BY rowid "
        "LIMIT -1 OFFSET ?"
    )
    return cycles.job_store.changes.ledger._database.execute(query, (first,)).fetchall()


def late_s(cycles: Cycles, victim: str) -> Sequence[float]:
    """By how much each preemption of a job took longer than the site's grace, by its own doing."""
    query = "SELECT late_s FROM preemptions WHERE key = ?"
    return [late for (late,) in cycles.job_store.changes.ledger._database.execute(query, (victim,))]


def nominations(cycles: Cycles) -> Mapping[str, Collection[str]]:
    """The nodes of each nomination, by job."""
    allocated = {
        key: one.allocated() for key, one in cycles.job_store.lifecycles.nominations.items()
    }
    return {key: allocation for key, allocation in allocated.items() if allocation}


def overdue_nominations(cycles: Cycles, now_s: float, longest_s: float) -> Iterator[str]:
    """Report jobs that stay nominated although their nodes have been in use for longer than this,
    or idle."""
    for key, one in cycles.job_store.lifecycles.nominations.items():
        since_s = one.nominated_s if one.free_s is None else one.free_s
        if since_s is not None and now_s - since_s > longest_s:
            yield f"job {key} has been nominated since {since_s:.0f}"


def lists_noted(cycles: Cycles, key: str) -> Collection[str]:
    """The node lists that the ledger records as written to a job, or about to be."""
    record = cycles.job_store.accounts.of(key)
    return record.written_nodes.split() if record else ()


def attained_gpu_s(cycles: Cycles, key: str) -> float:
    """The attained service of a job that the controller knows or knew, in GPU-seconds."""
    if key in cycles.job_store.accounts.all:
        return cycles.job_store.runs.attained_gpu_s(key)
    ledger = cycles.job_store.changes.ledger
    return sum(run.attained_gpu_s for run in ledger.runs.of(key))


def submitted_s(cycles: Cycles, key: str) -> float:
    """When a job that the controller knows or knew was first submitted."""
    record = cycles.job_store.accounts.of(key) or cycles.job_store.changes.ledger.jobs.one(key)
    assert record is not None
    return record.submitted_s


def is_known(cycles: Cycles, key: str) -> bool:
    """Whether the controller has the job in its ledger."""
    return (
        cycles.job_store.accounts.of(key) is not None
        or cycles.job_store.changes.ledger.jobs.one(key) is not None
    )


def awaits_accounting(cycles: Cycles, key: str) -> bool:
    """Whether a job's service is an estimate that accounting may still correct."""
    return key in cycles.job_store.accounts.all and cycles.job_store.accounts.is_doubtful(key)


def backed_off_since(cycles: Cycles, key: str, since_s: float) -> bool:
    """Whether the ledger records that a job backed off at that time or later."""
    events = cycles.job_store.changes.ledger.events.of_job(key, since_s)
    return any(event.kind == "backed-off" and event.job_id == key for event in events)


def grace_is_over(cycles: Cycles, victim: str, at_s: float) -> bool:
    """Whether the site's grace of a signalled victim is over at that time."""
    preemption = preemption_of(cycles, victim)
    signalled_s = preemption.signalled_s if preemption else None
    grace_s = cycles.job_store._config.preemption.grace_s
    return signalled_s is not None and at_s - signalled_s >= grace_s


def longest_run_s(sim: InMemorySlurm, key: str) -> float:
    ended = [
        run.end_s - run.start_s for run in sim.accounting.all_runs(key) if run.start_s and run.end_s
    ]
    return max(ended, default=0.0)


def accounted(sim: InMemorySlurm, key: str) -> frozenset[object]:
    """Submission and start of each run that accounting has of a job, also if that comes late."""
    return frozenset((run.submit_s, run.start_s) for run in sim.accounting.all_runs(key))
