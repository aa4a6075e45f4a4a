"""How much work the runs of a job and its program have lost, and how long that protects its run.

This comes from reports of users' programs, so it is bounded by what Slurm itself has measured
(docs/explanation/algorithm.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from slurm_tiresias.core.features.claims import SPEAKS_AGAIN_WITHIN_S
from slurm_tiresias.core.features.feature import Explained, Feature, Gauge
from slurm_tiresias.core.features.min_run import LONGEST_MIN_RUN_S
from slurm_tiresias.core.features.news import Happened, Remember
from slurm_tiresias.core.features.protection import Protected
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import (
    NO_PAST_LOSSES,
    STUCK_RUNS,
    JobAccount,
    JobProgress,
    JobState,
    PastLosses,
    Protection,
)
from slurm_tiresias.settings import Config

NO_NET_PROGRESS: Final = "no-net-progress"
"""The event of a job whose last runs saved nothing."""

REDO_TIMES: Final = 2.0
"""A run is protected while it redoes lost work, for at most this many times the time in which that
work can have been done: it may have slower GPUs now, and must start up first."""


def redoing_for_s(earlier: Iterable[tuple[float, float]]) -> float:
    """Return the longest time for which a run may be protected because it repeats lost work.

    Parameters
    ----------
    earlier
        For each earlier run of the job its running time, and how much of that was protected for
        this reason, in seconds, as Slurm's clock has it.
    """
    runs = list(earlier)
    longest_s = max((ran_s for ran_s, _ in runs), default=0.0)
    new_work_s = sum(max(0.0, ran_s - redone_s) for ran_s, redone_s in runs)
    return REDO_TIMES * min(longest_s, new_work_s)


def stuck_runs(starts: Sequence[int]) -> int:
    """Return how many runs in a row have saved nothing, given the step at which each run began.

    The last start is that of the present run, or the last saved step of the last run.
    """
    furthest = list(accumulate(starts, max))
    count = 0
    while count + 1 < len(starts) and starts[-1 - count] <= furthest[-2 - count]:
        count += 1
    return count


def loses_all(job: Job) -> str:
    """Return why a job is as one that cannot be requeued, and what its user can do: its program is
    known to lose more in a preemption than a minimum run can keep; "" if it is not."""
    costs = job.program_costs
    if (
        costs is None
        or costs.lost_all_in_a_row < STUCK_RUNS
        or costs.unsaved_s < LONGEST_MIN_RUN_S
        or job.drilled
    ):
        return ""
    progress, since_s = job.progress, job.running_since_s
    if progress and progress.saved_s and since_s is not None and progress.saved_s >= since_s:
        return ""
    return (
        f"its program lost all its work in its last {costs.lost_all_in_a_row} preemptions: let it "
        "save its state and resume from it"
    )


class LostWork(Feature):
    """Sets ``past_losses``, by the reports of a job's runs and the costs of its program."""

    def __init__(self) -> None:
        self._preempted: dict[str, Job] = {}
        """Jobs with reports of earlier runs."""
        self._noted: dict[str, int] = {}
        """By job, the restarts of the run for which it was noted that it makes no net progress."""

    def follow(self, job: Job, now_s: float) -> None:
        if job.preemptions and job.past_progress:
            self._preempted[job.job_id] = job
        else:
            self._preempted.pop(job.job_id, None)
        job.past_losses = self._past_losses(job, now_s)

    def forget(self, job: Job) -> None:
        self._preempted.pop(job.job_id, None)
        self._noted.pop(job.job_id, None)

    def tick(self, now_s: float) -> Iterable[Job]:
        for job in list(self._preempted.values()):
            past_losses = self._past_losses(job, now_s)
            run = job.present_run
            if run is not None and past_losses.redoing_until_s is not None:
                # This bounds how long later runs are protected.
                fields = {"redone_s": run.elapsed_s}
                self.report(Remember(job.job_id, fields, run.start_s))
            if past_losses != job.past_losses:
                yield job

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        lost, stuck, _ = job.past_losses
        return Explained({"program_lost": lost, "stuck_runs": stuck}) if lost or stuck else None

    def _past_losses(self, job: Job, now_s: float) -> PastLosses:
        lost = job.program_costs.lost_all_in_a_row if job.program_costs else 0
        if job.job_id not in self._preempted:
            return PastLosses(lost) if lost else NO_PAST_LOSSES
        stuck = self._stuck_runs(job)
        if stuck >= STUCK_RUNS and job.state is JobState.RUNNING:
            restarts = job.status.restarts
            if self._noted.get(job.job_id) != restarts:
                self._noted[job.job_id] = restarts
                text = f"its last {stuck} runs saved nothing, restart {restarts}"
                self.report(Happened(job.job_id, NO_NET_PROGRESS, text, once=True))
        return PastLosses(lost, stuck, self._redoing_until_s(job, now_s))

    def _stuck_runs(self, job: Job) -> int:
        """Return how many runs in a row have kept nothing; 0 before the second preemption."""
        if job.preemptions < STUCK_RUNS:
            return 0
        last, past = job.progress, job.past_progress
        starts = [began_at(run) for run in past]
        if last is not None and last.restarts > past[-1].restarts:
            starts.append(began_at(last))
        has_saved = last is not None and (last.saved_step or 0) > max(starts)
        return 0 if has_saved else stuck_runs(starts)

    def _redoing_until_s(self, job: Job, now_s: float) -> float | None:
        """Return until when at most a job counts as redoing lost work; None if it is not."""
        present, since_s = job.present_run, job.running_since_s
        earlier = [run for run in job.run_records if run is not present]
        if since_s is None or not earlier or not self._is_behind(job, now_s):
            return None
        until_s = since_s + redoing_for_s((run.elapsed_s, run.redone_s) for run in earlier)
        return until_s if until_s > now_s else None

    def _is_behind(self, job: Job, now_s: float) -> bool:
        """Whether a running job is still redoing steps: it has not passed its furthest step."""
        if job.state is not JobState.RUNNING:
            return False
        progress, run = job.progress, job.present_run
        if progress is None or progress.restarts != job.status.restarts:
            return run is None or run.elapsed_s <= SPEAKS_AGAIN_WITHIN_S
        furthest = max(past.step for past in job.past_progress)
        stands = progress.lost or progress.quiet_since_s(now_s) is not None
        return not stands and not progress.finished and progress.step <= furthest


def began_at(progress: JobProgress) -> int:
    """Return the step at which a run began."""
    resumed = progress.resumed_step
    return progress.first_step if resumed is None else resumed


def protect(job: Job, _config: Config) -> Sequence[Protected]:
    """Return until when a run is protected because it redoes lost work."""
    until_s = job.past_losses.redoing_until_s
    return () if until_s is None else (Protected(Protection.REDOING_WORK, -math.inf, until_s),)


GAUGES: Final = (
    Gauge(
        "tiresias_stuck_jobs",
        "Managed jobs that saved nothing in their last two runs, according to their reports.",
        "stuck_runs",
        {"": lambda runs: runs >= STUCK_RUNS},
    ),
)
