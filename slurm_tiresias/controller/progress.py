"""The progress of each job: reports of nodes and comments, joined with what Slurm shows of the
job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.job.comment import MARK, split
from slurm_tiresias.job.comment import decode as decode_word
from slurm_tiresias.job.record import Record, RecordError
from slurm_tiresias.model import (
    Estimate,
    JobAccount,
    JobProgress,
    JobState,
    JobStatus,
    ProgramHabit,
    ProgressSource,
)
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.progress.folder import CLOCK_WANDERS_S, Latest, ProgressFolder
from slurm_tiresias.progress.reported_run import LEAST_QUIET_S, ReportedRun
from slurm_tiresias.slurm.protocol import Observation
from slurm_tiresias.store.records import RunProgressRecord

MOST_PROGRAMS = 20_000
"""Programs whose pauses are remembered, those of which a run ended last."""

AGREE_S = 5.0
"""Clocks of nodes agree with slurmctld's within this."""


@dataclass(slots=True)
class _Comment:
    """The last report in the comment of a running job."""

    word: str
    restarts: int
    run: ReportedRun


class ProgressTracker:
    """Follows the progress of all jobs from cycle to cycle; the ledger keeps it for ended runs.

    Files are read elsewhere (``ProgressFolder``), so this costs a cycle microseconds per job.
    """

    def __init__(self, job_store: JobStore, folder: ProgressFolder) -> None:
        self._job_store = job_store
        self.folder = folder
        self._running: dict[str, JobProgress] = {}
        """By job that runs and has reported in this run."""
        self._over: dict[str, JobProgress] = {}
        """By any other job, from the last run that reported."""
        self._past: dict[str, dict[int, JobProgress]] = {}
        """By job that has not ended, the last report of each ended run, by number of restarts."""
        for row in job_store.changes.ledger.progress.of_live_jobs():
            self._is_over(row.key, progress_in(row))
        self._comments: dict[str, _Comment] = {}
        self._habits = dict(job_store.changes.ledger.progress.habits())
        self._collected: frozenset[RunId] = frozenset()
        """Collected files whose reports the last cycle has recorded."""

    def of(self, key: str) -> JobProgress | None:
        """The progress of a job, now or when it last ran."""
        return self._running.get(key) or self._over.get(key)

    def habit_of(self, account: JobAccount) -> ProgramHabit | None:
        """What the ended runs of a job's program show of its pauses; None if there are none."""
        return self._habits.get((account.user, account.name))

    def _learn(self, account: JobAccount, progress: JobProgress, *, is_new: bool) -> None:
        """Follow the end of a run; ``is_new`` is false if more has become known of it."""
        program, habit = (account.user, account.name), ProgramHabit.of(progress)
        before = self._habits.pop(program, None)
        habit = habit if is_new else habit._replace(startups=0)
        self._habits[program] = before.joined(habit) if before else habit
        if len(self._habits) > MOST_PROGRAMS:
            del self._habits[next(iter(self._habits))]

    def past_runs(self, key: str) -> Sequence[JobProgress]:
        """The last report of each ended run of a job, earliest run first; runs without one are left
        out."""
        past = self._past.get(key, {})
        return [past[restarts] for restarts in sorted(past)]

    def follow(self, seen: Observation) -> None:
        """Take in the reports since the last cycle, and record the last ones of ended runs."""
        self._follow_clock(seen)
        self.folder.background.step_unless_started()
        latest = self.folder.latest
        told, running = latest.running, JobState.RUNNING
        before, self._running = self._running, {}
        comments, self._comments = self._comments, {}
        for job in self._job_store.in_hand.each(seen.jobs):
            if job.state is running:
                progress = told.get(job.raw_id)
                if progress is None or not self._is_of_this_run(progress, job, seen.at_s):
                    progress = self._in_comment(job, comments.get(job.key), seen)
                if progress is not None:
                    self._running[job.key] = progress
        self._keep(before)
        self._take_collected(seen, latest)
        if self._over:
            # A job that has just ended may be restarted.
            alive = {job.key for job in seen.jobs}
            self._over = {key: one for key, one in self._over.items() if key in alive}
            self._past = {key: runs for key, runs in self._past.items() if key in alive}

    def _follow_clock(self, seen: Observation) -> None:
        by_s = seen.at_s - seen.steady_s - self.folder.ahead_s
        if abs(by_s) > CLOCK_WANDERS_S:
            self.folder.ahead_s += by_s
            for comment in self._comments.values():
                comment.run.clock_was_set(by_s)

    def _in_comment(
        self, job: JobStatus, before: _Comment | None, seen: Observation
    ) -> JobProgress | None:
        if MARK not in job.spec.comment:
            return None
        word = split(job.spec.comment)[1]
        if before is not None and before.restarts != job.restarts:
            before = None
        if before is None or word != before.word:
            try:
                record = decode_word(word)
            except RecordError:
                record = None
            # The comment of a run remains when the job is requeued.
            if record is not None and record.at_s >= (job.start_s or 0.0) - CLOCK_WANDERS_S:
                run = before.run if before else ReportedRun(job.restarts)
                run.take(ProgressSource.COMMENT, record, seen.at_s, seen.steady_s)
                before = _Comment(word, job.restarts, run)
        if before is None:
            return None
        self._comments[job.key] = before
        return before.run.progress

    def _is_of_this_run(self, progress: JobProgress, job: JobStatus, now_s: float) -> bool:
        """Whether a report is not of an earlier run, or of an earlier job with the same id."""
        since_s = self._job_store.runs.running_since_s(job)
        # A start in the future shows that the clock was set back since.
        is_older = since_s is not None and progress.reported_s < since_s - AGREE_S <= now_s
        return progress.restarts == job.restarts and not is_older

    def _keep(self, before: Mapping[str, JobProgress]) -> None:
        """Record the last reports of runs that have ended."""
        for key, progress in before.items():
            now = self._running.get(key)
            if now is None or now.restarts != progress.restarts:
                self._is_over(key, progress)
                if account := self._job_store.accounts.of(key):
                    self._record(key, progress)
                    self._learn(account, progress, is_new=True)

    def _record(self, key: str, progress: JobProgress) -> None:
        """Record the last report of a run; it is committed with the job store's changes."""
        changes = self._job_store.changes
        changes.put(changes.ledger.progress, _row_of(key, progress))
        runs = self._job_store.runs.in_order(key)
        if progress.per_step and progress.restarts < len(runs):
            run = runs[progress.restarts]
            self._job_store.runs.keep(replace(run, step_s=progress.per_step.likely_s))

    def _is_over(self, key: str, progress: JobProgress) -> None:
        self._over[key] = progress
        self._past.setdefault(key, {})[progress.restarts] = progress

    def _take_collected(self, seen: Observation, latest: Latest) -> None:
        """Record what epilogs have collected, which is later than the reports during the run."""
        self.folder.stored(self._collected)
        self._collected = frozenset(latest.ended)
        if not latest.ended:
            return
        keys = {job.raw_id: job.key for job in seen.jobs}
        # If several nodes report on a run, the first process counts: it comes last here.
        ended = latest.ended
        for run_id in sorted(ended, key=lambda one: (ended[one].rank, one), reverse=True):
            key = keys.get(run_id.job_id)
            account = None if key is None else self._job_store.accounts.of(key)
            if key is None or account is None:
                continue
            if latest.ended[run_id].at_s < account.born_after_s - AGREE_S:
                continue  # of an earlier job with the same id
            known = self._over.get(key)
            progress = _collected(run_id.restarts, latest.ended[run_id], known)
            self._record(key, progress)
            self._learn(account, progress, is_new=known is None)
            if known is None or known.restarts <= run_id.restarts:
                self._over[key] = progress
            self._past.setdefault(key, {})[run_id.restarts] = progress


def _collected(restarts: int, record: Record, before: JobProgress | None) -> JobProgress:
    """The last progress of an ended run, with its step times as known before."""
    run = ReportedRun(restarts)
    run.take(ProgressSource.REPORTS, record, record.at_s, record.at_s)
    if before is None or before.restarts != restarts:
        return run.progress
    progress = replace(run.progress, save_every_s=before.save_every_s)
    gap_s = before.longest_gap_s
    progress = replace(progress, longest_gap_s=gap_s, quiet_after_s=before.quiet_after_s)
    return replace(progress, per_step=before.per_step) if before.per_step else progress


_IN_BOTH = {one.name for one in fields(RunProgressRecord)} & {
    one.name for one in fields(JobProgress)
}
"""The fields that a row has as the report has them."""


def _row_of(key: str, progress: JobProgress) -> RunProgressRecord:
    same: dict[str, Any] = {name: getattr(progress, name) for name in _IN_BOTH}
    if per_step := progress.per_step:
        same |= {"step_s": per_step.likely_s, "step_least_s": per_step.least_s}
        same["step_most_s"] = per_step.most_s
    return RunProgressRecord(key=key, **same | {"source": progress.source.value})


def progress_in(row: RunProgressRecord) -> JobProgress:
    """Return the last report of a run, as it was before it was recorded."""
    per_step = None
    if row.step_s is not None and row.step_least_s is not None and row.step_most_s is not None:
        per_step = Estimate(row.step_s, row.step_least_s, row.step_most_s)
    same: dict[str, Any] = {name: getattr(row, name) for name in _IN_BOTH}
    same["source"] = ProgressSource(row.source)
    return JobProgress(**same, quiet_after_s=LEAST_QUIET_S, per_step=per_step)
