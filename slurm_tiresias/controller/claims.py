"""Turns the progress reports of jobs into the claims by which they are ranked."""

from __future__ import annotations

from dataclasses import replace

from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.progress import ProgressTracker
from slurm_tiresias.core.features.claims import SPEAKS_AGAIN_WITHIN_S, AcceptedReports
from slurm_tiresias.model import JobProgress, JobState, JobStatus, weighed_gpus
from slurm_tiresias.slurm.protocol import Observation


class Claims:
    """Keeps the claim of every job in the job store."""

    def __init__(self, job_store: JobStore, progress: ProgressTracker) -> None:
        self._accepted = AcceptedReports()
        self._job_store = job_store
        self._progress = progress

    def take(self, seen: Observation) -> None:
        """Take the reports that are due; the job store has the running times of this cycle."""
        job_store = self._job_store
        runs, records = job_store.runs, job_store.accounts.all
        for job in job_store.in_hand.each(seen.jobs):
            key = job.key
            if job.state is not JobState.RUNNING or key not in records:
                continue
            executed_s = runs.executed_s(key)
            due = self._accepted.due_in_s(key, executed_s, runs.ran_s(job)) <= 0.0
            remaining_s = self._remaining_s(job, seen.at_s) if due else None
            if remaining_s is None:
                continue
            account, attained_gpu_s = records[key], runs.attained_gpu_s(key)
            width = weighed_gpus(job.allocation, runs.gpu_weights)
            total_gpu_s, promised_gpu_s = self._accepted.accept(
                key, account.claim, remaining_s * width, attained_gpu_s, executed_s, width
            )
            job_store.accounts.put(
                replace(account, claimed_gpu_s=total_gpu_s, promised_gpu_s=promised_gpu_s)
            )
        self._accepted.forget_all_but(records)

    def why_stopped(self, job: JobStatus, now_s: float) -> str:
        """Return why a job's last report does not count now; "" if it does."""
        if job.state is not JobState.RUNNING:
            return ""
        progress = self._of_this_run(job)
        if progress is None:
            ran_s = self._job_store.runs.ran_s(job)
            return "it has not reported in this run" if ran_s > SPEAKS_AGAIN_WITHIN_S else ""
        if progress.lost:
            return "its node has told nothing for minutes"
        if progress.quiet_since_s(now_s) is not None:
            return "it has made no step for unusually long"
        if progress.printed_its_end:
            return "what it printed has reached its end, and it goes on"
        return ""

    def _of_this_run(self, job: JobStatus) -> JobProgress | None:
        progress = self._progress.of(job.key)
        return progress if progress and progress.restarts == job.restarts else None

    def _remaining_s(self, job: JobStatus, now_s: float) -> float | None:
        progress = self._of_this_run(job)
        if progress is None:
            return None
        # After its last step a job may evaluate or save for long, which no report predicts: its
        # last promise stands, so that its claim still counts at its very end.
        if progress.finished or self.why_stopped(job, now_s):
            return None
        remaining = progress.remaining(progress.step)
        if remaining is None:
            return None
        return max(0.0, remaining.likely_s - max(0.0, now_s - progress.reported_s))
