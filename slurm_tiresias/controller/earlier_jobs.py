"""The jobs of the last days, from which a new controller reckons fair shares."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_tiresias.controller.runs import Runs
from slurm_tiresias.core.features.max_slowdown import LOOKS_BACK_S, EarlierJob, counts
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import Lane
from slurm_tiresias.store.ledger import Ledger


def earlier_jobs(jobs: Iterable[Job], runs: Runs, ledger: Ledger, now_s: float) -> list[EarlierJob]:
    """Return those of ``jobs`` that count, and the ended jobs that they may have had to share
    with."""
    least_s, found = now_s - LOOKS_BACK_S, []
    for job in jobs:
        if counts(job):
            since_s = min(now_s, max(least_s, _may_start_since_s(job)))
            before_s = sum(
                max(0.0, min(run.elapsed_s, since_s - run.start_s)) for run in runs.of(job.job_id)
            )
            found.append(EarlierJob(job.job_id, job.gpus_asked, since_s, before_s, job=job))
    first_s = min((one.since_s for one in found), default=now_s)
    there = {one.job_id for one in found}
    runs_of = ledger.runs.since(first_s) if found else {}
    for account in ledger.jobs.alive_since(first_s) if found else ():
        ended = account.ended_s is not None and account.key not in there
        if ended and account.lane is Lane.PREEMPTIBLE and account.key in runs_of:
            mine = runs_of[account.key]
            since_s = max(first_s, account.submitted_s)
            run_s = sum(run.elapsed_s for run in mine)
            found.append(
                EarlierJob(account.key, mine[-1].gpus, since_s, run_s, account.preemptions)
            )
    return found


def _may_start_since_s(job: Job) -> float:
    """Return since when Slurm might have started a job; its submission once it has been requeued,
    because that time is not Slurm's own then."""
    eligible_s = job.status.eligible_s
    if eligible_s is None or job.status.restarts:
        return job.submitted_s
    return max(job.submitted_s, eligible_s)
