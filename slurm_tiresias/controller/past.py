"""What the ledger has for a new controller's features of the last days."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm_tiresias.controller.drilled import DrilledPrograms
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.features import failed_runs
from slurm_tiresias.core.features.charge import EndedRun
from slurm_tiresias.core.features.drilled import Program
from slurm_tiresias.core.features.in_order import Past
from slurm_tiresias.core.features.interactive import WINDOW_S
from slurm_tiresias.core.features.max_slowdown import LOOKS_BACK_S, EarlierJob, counts
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.model import JobAccount, Lane, RunRecord
from slurm_tiresias.settings import Config
from slurm_tiresias.store.retention import charged_since_s


class LedgersPast(Past):
    """What the ledger has of the time before a snapshot, for its jobs."""

    def __init__(
        self, config: Config, snapshot: Snapshot, job_store: JobStore, drilled: DrilledPrograms
    ) -> None:
        super().__init__(job_store.lifecycles.costs.recent_losses(snapshot.now_s), snapshot.now_s)
        self._charge_by = config.policy.charge
        self._snapshot = snapshot
        self._runs = job_store.runs
        self._ledger = job_store.changes.ledger
        self._drilled = drilled
        self._nodes = job_store.nodes.all

    def ended_runs(self) -> Iterable[EndedRun]:
        since_s = charged_since_s(self._ledger, self.now_s)
        return self._ledger.runs.ended_since(since_s, self._charge_by)

    def runs_in_lane(self) -> Iterable[tuple[str, RunRecord]]:
        return self._ledger.runs.in_lane(Lane.INTERACTIVE, self.now_s - WINDOW_S)

    def recent_runs(self) -> Iterable[tuple[JobAccount, RunRecord]]:
        since_s = self.now_s - failed_runs.LOOKS_BACK_S
        jobs = {job.key: job for job in self._ledger.jobs.alive_since(since_s)}
        runs = self._ledger.runs.select("WHERE end_s > ? ORDER BY end_s", since_s)
        return [(jobs[run.key], run) for run in runs if run.key in jobs]

    def cleared_s(self) -> Mapping[str, float]:
        return {node.name: node.cleared_s for node in self._nodes.values()}

    def drilled(self) -> Mapping[Program, float]:
        return self._drilled.programs

    def earlier_jobs(self) -> Iterable[EarlierJob]:
        """Return the jobs of the snapshot that count, and the ended jobs that they may have had to
        share with."""
        now_s, found = self.now_s, []
        for job in filter(counts, self._snapshot.jobs):
            since_s = min(now_s, max(now_s - LOOKS_BACK_S, _may_start_since_s(job)))
            before_s = sum(
                max(0.0, min(run.elapsed_s, since_s - run.start_s))
                for run in self._runs.of(job.job_id)
            )
            found.append(EarlierJob(job.job_id, job.gpus_asked, since_s, before_s, job=job))
        if not found:
            return ()
        first_s = min(one.since_s for one in found)
        there = {one.job_id for one in found}
        runs_of = self._ledger.runs.since(first_s)
        for account in self._ledger.jobs.alive_since(first_s):
            ended = account.ended_s is not None and account.key not in there
            if ended and account.is_preemptible and account.key in runs_of:
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
