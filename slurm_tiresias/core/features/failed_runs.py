"""Failed runs: which jobs are restarted, and what jobs that fail again and again may not do.

A failure of its node restarts any job, every other failure only a job that asks for it, or whose
exit code the site names. The number of restarts without progress is bounded, and so is the time:
a job whose runs have used its time limit is not restarted, so failing does not prolong it. A
restarted job keeps its id, and with it its service.

A job whose last run failed without progress preempts no other job, and after two such runs it
waits behind all others. So does a program (a user's jobs of one name) whose last jobs failed early,
since its next job is likely to fail as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from slurm_tiresias.core.features.feature import Explained, Feature, Gauge
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import JobAccount, JobState, RunRecord
from slurm_tiresias.settings.failures import FailuresConfig

NODE_FAILURES: Final = frozenset({"NODE_FAIL", "BOOT_FAIL"})
FAILURES: Final = NODE_FAILURES | {"FAILED", "OUT_OF_MEMORY"}
"""Slurm's states of jobs that have failed. Not among them: cancelled by a user, ended by a time
limit or a deadline."""

EARLY_S: Final = 600.0
"""A run that fails within this time may have failed because of its node, or at its start."""

PROGRAM_RUNS: Final = 3
"""After so many early failures in a row the next job of a program counts as one that failed."""

LOOKS_BACK_S: Final = 86_400.0


class FailedRun(NamedTuple):
    """A run that ended with a failure."""

    restarts: int
    state: str
    """As Slurm calls it."""
    exit_code: int
    nodes: str
    """As a hostlist."""
    furthest_step: int | None
    """The furthest step of all runs of the job so far; None if they did not report any."""
    ran_s: float
    """Running time of all runs of the job."""
    asks_for: int
    """How many restarts the job itself asks for."""
    cannot_be_requeued: str


def judge(run: FailedRun, account: JobAccount, config: FailuresConfig) -> tuple[JobAccount, str]:
    """Return the account of a job whose run has failed, and the evidence in words.

    The account says whether the job is restarted. The text is "" if it never asked for that.
    """
    before, step = account.failed_step, run.furthest_step
    progressed = step is not None and (before is None or step > before)
    count = 1 if progressed else account.failures_in_a_row + 1
    most = min(run.asks_for, config.restarts)
    if run.state in NODE_FAILURES or run.exit_code in config.restart_exit_codes:
        most = config.restarts
    why_not = _why_not(run, account, config, count, most)
    account = replace(
        account,
        failed_run=run.restarts,
        is_restarted=not why_not,
        failures_in_a_row=count,
        failed_step=step if progressed else before,
        avoided_nodes="" if why_not else run.nodes,
    )
    if not most and run.exit_code not in config.final_exit_codes:
        return account, ""
    how = f"{run.state}, exit code {run.exit_code}, on {run.nodes or 'unknown nodes'}"
    at = "" if step is None else f" at step {step}"
    return account, f"{how}{at}: {why_not or f'restart {count} of {most} without progress'}"


def _why_not(
    run: FailedRun, account: JobAccount, config: FailuresConfig, count: int, most: int
) -> str:
    """Return why a job is not restarted; "" if it is."""
    if run.exit_code in config.final_exit_codes:
        return f"exit code {run.exit_code} says not to restart (failures.final_exit_codes)"
    if not most:
        return "it does not ask for restarts"
    if run.cannot_be_requeued:
        return f"Slurm cannot requeue it: {run.cannot_be_requeued}"
    if account.time_limit_s is not None and run.ran_s >= account.time_limit_s:
        return f"its runs have used its time limit of {account.time_limit_s:g} s"
    if count > most:
        return f"it has failed {count} times in a row without progress, and {most} are allowed"
    return ""


class FailedRuns(Feature):
    """Sets ``failures_in_a_row`` of jobs."""

    def __init__(self, ended: Iterable[tuple[JobAccount, RunRecord]] = ()) -> None:
        """``ended`` are the runs of the last ``LOOKS_BACK_S`` seconds, with their jobs."""
        self._last: dict[tuple[str, str], dict[tuple[str, float], tuple[float, bool]]] = {}
        """By program its last runs, by job and start: their ends, and whether they failed early."""
        self._waiting: dict[str, Job] = {}
        self._changed: set[tuple[str, str]] = set()
        """Programs of which a run has ended since the last tick."""
        for account, run in ended:
            self.run_ended(account, run)

    def run_ended(self, account: JobAccount, run: RunRecord) -> None:
        if not run.outcome or run.end_s is None:
            return
        runs = self._last.setdefault((account.user, account.name), {})
        failed = run.outcome == "FAILED" and run.elapsed_s < EARLY_S
        runs[run.key, run.start_s] = run.end_s, failed
        for oldest in sorted(runs, key=runs.__getitem__)[:-PROGRAM_RUNS]:
            del runs[oldest]
        self._changed.add((account.user, account.name))

    def follow(self, job: Job, now_s: float) -> None:
        self.forget(job)
        if job.state is JobState.PENDING:
            self._waiting[job.job_id] = job
        job.failures_in_a_row = self._failures(job, now_s)

    def forget(self, job: Job) -> None:
        self._waiting.pop(job.job_id, None)

    def tick(self, now_s: float) -> Iterable[Job]:
        changed, self._changed = self._changed, set()
        for job in list(self._waiting.values()) if changed else ():
            if (job.user, job.name) in changed:
                yield job

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        count = job.failures_in_a_row
        if not count or job.state is not JobState.PENDING:
            return None
        place = ", and it waits behind all other jobs" if job.waits_behind else ""
        last = "run" if count == 1 else f"{count} runs"
        of = "Its" if account and account.failures_in_a_row else "Its program's"
        says = f"{of} last {last} failed without progress, so no job is preempted for it{place}."
        return Explained({"failures_in_a_row": count}, (says,))

    def _failures(self, job: Job, now_s: float) -> int:
        account = job.account_in_ledger
        if account is None or job.state is not JobState.PENDING:
            return 0
        runs = self._last.get((job.user, job.name), {}).values()
        recent = [failed for end_s, failed in runs if end_s > now_s - LOOKS_BACK_S]
        of_program = len(recent) >= PROGRAM_RUNS and all(recent)
        return max(account.failures_in_a_row, int(of_program))


GAUGES: Final = (
    Gauge(
        "tiresias_failing_jobs",
        "Waiting jobs whose last runs, or those of their program, failed without progress.",
        "failures_in_a_row",
        {"": lambda count: count > 0},
    ),
)
