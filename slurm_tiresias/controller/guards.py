"""What earlier runs of a job or program show about how long the job must be protected."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from typing import Final

from slurm_tiresias.controller.claims import SPEAKS_AGAIN_WITHIN_S
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.progress import ProgressTracker
from slurm_tiresias.core.features.lost_work import redoing_for_s, stuck_runs
from slurm_tiresias.model import (
    NOTHING_LEARNED,
    STUCK_RUNS,
    JobAccount,
    JobProgress,
    JobState,
    JobStatus,
    Learned,
    ProgramCosts,
)
from slurm_tiresias.slurm.protocol import Observation

NO_NET_PROGRESS: Final = "no-net-progress"

CostsOf = Callable[[str, str], ProgramCosts | None]
"""Maps a user and a job name to what a preemption of that program costs; None if unknown."""


class Guards:
    """Tracks from cycle to cycle what was learned about each managed job."""

    def __init__(
        self,
        job_store: JobStore,
        progress: ProgressTracker,
        costs_of: CostsOf,
        drilled: Container[tuple[str, str]] = (),
    ) -> None:
        """``drilled`` has the users and job names of programs that have passed a drill."""
        self._drilled = drilled
        self._job_store = job_store
        self._progress = progress
        self._costs_of = costs_of
        self._learned: dict[str, Learned] = {}
        self._told: dict[str, int] = {}
        """By job, the restarts of the run for which it was noted that it makes no net progress."""

    def of(self, key: str) -> Learned:
        """Return what was learned about a job."""
        return self._learned.get(key, NOTHING_LEARNED)

    def take(self, seen: Observation) -> None:
        """Take in a cycle's observation; the job store and the progress tracker have it already."""
        self._learned = {}
        for job in self._job_store.in_hand.each(seen.jobs):
            account = self._job_store.accounts.of(job.key)
            if job.state is None or account is None:
                continue
            costs = self._costs_of(account.user, account.name)
            program_lost = costs.lost_all_in_a_row if costs else 0
            stuck = self._stuck_runs(job, account) if account.preemptions else 0
            until_s = (
                self._redoing_until_s(job, account, seen.at_s) if account.preemptions else None
            )
            # Losing all its work contradicts what a drill has shown.
            drilled = not program_lost and not stuck
            drilled = drilled and (account.user, account.name) in self._drilled
            if program_lost or stuck or drilled or until_s is not None:
                self._learned[job.key] = Learned(program_lost, stuck, until_s, drilled)
            if stuck >= STUCK_RUNS:
                self._tell(job, stuck, seen.at_s)
        self._told = {key: run for key, run in self._told.items() if key in self._learned}

    def _stuck_runs(self, job: JobStatus, account: JobAccount) -> int:
        """Return how many runs in a row have kept nothing; 0 before the second preemption."""
        past = self._progress.past_runs(job.key)
        if account.preemptions < STUCK_RUNS or not past:
            return 0
        last = self._progress.of(job.key)
        starts = [began_at(run) for run in past]
        if last is not None and last.restarts > past[-1].restarts:
            starts.append(began_at(last))
        has_saved = last is not None and (last.saved_step or 0) > max(starts)
        return 0 if has_saved else stuck_runs(starts)

    def _redoing_until_s(self, job: JobStatus, account: JobAccount, now_s: float) -> float | None:
        """Return the latest time until which a job counts as redoing lost work; None if it is not.

        The time that it has spent on that is recorded with its run, for the bound of later runs.
        """
        runs = self._job_store.runs
        since_s, past = runs.running_since_s(job), self._progress.past_runs(job.key)
        earlier = [run for run in runs.of(job.key) if run.start_s != job.start_s]
        if since_s is None or not past or not earlier:
            return None
        furthest = max(run.step for run in past)
        if not self._is_behind(job, furthest, now_s):
            return None
        until_s = since_s + redoing_for_s((run.elapsed_s, run.redone_s) for run in earlier)
        if until_s <= now_s:
            return None
        this = None if job.start_s is None else runs.run(job.key, job.start_s)
        if this is not None:
            runs.keep(replace(this, redone_s=this.elapsed_s))
        return until_s

    def _is_behind(self, job: JobStatus, furthest: int, now_s: float) -> bool:
        """Whether a running job is still redoing steps: it has not passed its furthest step."""
        if job.state is not JobState.RUNNING:
            return False
        progress = self._progress.of(job.key)
        if progress is None or progress.restarts != job.restarts:
            return self._job_store.runs.ran_s(job) <= SPEAKS_AGAIN_WITHIN_S
        stands = progress.lost or progress.quiet_since_s(now_s) is not None
        return not stands and not progress.finished and progress.step <= furthest

    def _tell(self, job: JobStatus, stuck: int, now_s: float) -> None:
        """Record once for each run that its job makes no net progress."""
        if job.state is not JobState.RUNNING or self._told.get(job.key) == job.restarts:
            return
        self._told[job.key] = job.restarts
        text = f"its last {stuck} runs saved nothing, restart {job.restarts}"
        self._job_store.events.note_once(now_s, NO_NET_PROGRESS, job.key, text)


def began_at(progress: JobProgress) -> int:
    """Return the step at which a run began."""
    resumed = progress.resumed_step
    return progress.first_step if resumed is None else resumed
