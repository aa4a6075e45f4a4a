"""``tiresias-slurm history``: a job's history over all its runs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

import click

from slurm_tiresias.cli import complete
from slurm_tiresias.cli.options import job_id_argument, json_option, takes_config
from slurm_tiresias.cli.screen import Screen, show_or_json
from slurm_tiresias.controller.driver import driver
from slurm_tiresias.errors import TiresiasError, UsageError
from slurm_tiresias.explanation.costs import cost_section
from slurm_tiresias.explanation.events import event_section
from slurm_tiresias.gpu_hours import gpu_hours
from slurm_tiresias.settings import Config
from slurm_tiresias.status.job_history import (
    AccountedEnd,
    JobHistory,
    accounted_ends,
    query_history,
)
from slurm_tiresias.store.records import PreemptionCost, RunProgressRecord, RunRecord
from slurm_tiresias.table import Column
from slurm_tiresias.text import NOTHING, count, duration, listed, moment, printable, times

HISTORY_SCHEMA = 1
SAME_START_S = 1.5
"""Largest difference of two records of one start: accounting counts in whole seconds."""

BY_CONTROLLER: Mapping[str, str] = {
    "preempted": "preempted",
    "idle-requeued": "requeued for idle GPUs",
    "hung-requeued": "requeued, hung",
}
LEFT = (*BY_CONTROLLER, "requeued", "node-failed")
"""Events that end a run but not the job."""

REQUEUED = "REQUEUED"
"""Accounting's state of a run that was requeued, by the controller or by any other user."""

FAILED = "FAILED"
"""The state for which the exit code is shown; for others it adds nothing."""

IN_WORDS: Mapping[str, str] = {
    "NODE_FAIL": "node failed",
    "BOOT_FAIL": "node did not boot",
    "TIMEOUT": "timed out",
}
"""Terminal states in accounting that need better words than their own name."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run. ``waited_s`` counts from the end of the previous run, or from submission.

    ``state``, ``exit_code`` (``code:signal``) and ``cancelled_by`` are from Slurm's accounting.
    """

    number: int
    start_s: float
    end_s: float | None
    ran_s: float
    gpus: int
    attained_gpu_s: float
    waited_s: float
    ended: str
    """How the run ended: ``preempted by 12``, ``completed``; "" while it runs."""
    state: str = ""
    exit_code: str = ""
    cancelled_by: str = ""
    progress: RunProgressRecord | None = None
    """The last progress that it reported."""
    cost: PreemptionCost | None = None
    """What its preemption cost; None if it was not preempted."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended: in words, and as in Slurm's accounting, if that can be queried."""

    told: str
    while_waiting: bool
    """Whether the job ended while it was pending."""
    state: str = ""
    exit_code: str = ""
    cancelled_by: str = ""


@click.command()
@click.argument(
    "job_id",
    metavar="JOBID",
    callback=job_id_argument,
    shell_complete=complete.of_state(complete.jobs, several=False),
)
@json_option
@takes_config
def history(config: Config, job_id: str, as_json: bool) -> None:
    """Show the whole history of a job: each run, what ended it, and the events between runs.

    Also works for jobs that have ended. How a run ended is looked up in Slurm's accounting if that
    can be queried. Exit code 1: no such job. Exit code 3: no controller runs that could answer.
    Exit code 15: the answer is too large, or there were too many requests.
    """
    job, now_s = _found(config, job_id), time.time()
    accounted = _accounted(config, job)
    runs = run_summaries(job, accounted)
    end = job_end(job, runs, accounted)
    show_or_json(
        as_json,
        lambda: as_data(job, runs, end),
        lambda screen: lines(job, runs, end, screen, now_s),
    )


def _found(config: Config, job_id: str) -> JobHistory:
    found = query_history(Path(config.controller.state_dir), job_id)
    if found.history:
        return found.history
    if found.parts:
        raise UsageError(
            f"Job {job_id} has several tasks: {listed(found.parts)}", "Name one of them"
        )
    raise TiresiasError(
        f"The controller remembers no job {job_id} that you may see: it never managed one, or it "
        "ended too long ago (controller.keep_ended_jobs_days)",
        f"See Slurm's own records with: sacct -D -j {job_id}",
    )


def _accounted(config: Config, job: JobHistory) -> Sequence[AccountedEnd]:
    """Return how each run ended by Slurm's accounting, and the job itself if it ended while
    pending; nothing if accounting does not answer."""
    try:
        return accounted_ends(driver(config).runs([job.job_id], job.submitted_s))
    except TiresiasError:
        return ()


def run_summaries(job: JobHistory, accounted: Sequence[AccountedEnd]) -> tuple[RunSummary, ...]:
    """Return the runs of a job, and how each ended by accounting and the controller's events."""
    summaries: list[RunSummary] = []
    free_since_s = job.submitted_s
    for number, (run, following) in enumerate(zip_longest(job.runs, job.runs[1:]), start=1):
        until_s = following.start_s if following else None
        row = next((row for row in accounted if _is_of(row, run)), None)
        summaries.append(
            RunSummary(
                number=number,
                start_s=run.start_s,
                end_s=run.end_s,
                ran_s=run.elapsed_s,
                gpus=run.gpus,
                attained_gpu_s=run.attained_gpu_s,
                waited_s=max(0.0, run.start_s - free_since_s),
                ended="" if run.end_s is None else _how_it_ended(job, run, until_s, row),
                state=row.state if row else "",
                exit_code=row.exit_code if row else "",
                cancelled_by=row.cancelled_by if row else "",
                progress=next(
                    (told for told in job.progress if _is_told_in(told, run, until_s)), None
                ),
                cost=next((cost for cost in job.costs if cost.run_start_s == run.start_s), None),
            )
        )
        free_since_s = run.end_s or run.start_s
    return tuple(summaries)


def _is_of(row: AccountedEnd, run: RunRecord) -> bool:
    return row.start_s is not None and abs(row.start_s - run.start_s) <= SAME_START_S


def _is_told_in(told: RunProgressRecord, run: RunRecord, until_s: float | None) -> bool:
    # A run may report after its recorded end: for Slurm it ends when the kill of its processes
    # begins.
    latest_s = math.inf if until_s is None else until_s
    return run.start_s - SAME_START_S <= told.reported_s < latest_s


def _how_it_ended(
    job: JobHistory, run: RunRecord, until_s: float | None, row: AccountedEnd | None
) -> str:
    """Combine both sources: accounting does not say who requeued a job, the events do."""
    if row is not None and row.state != REQUEUED:
        return _in_words(row)
    # The event that ended a run is recorded only when the end is seen.
    latest_s = math.inf if until_s is None else until_s
    ends = (e for e in job.events if e.job_id == job.job_id and e.kind in LEFT)
    event = next((e for e in ends if run.start_s <= e.at_s <= latest_s), None)
    if event and (row is None or event.kind in BY_CONTROLLER):
        kind = BY_CONTROLLER.get(event.kind, event.kind.replace("-", " "))
        return f"{kind} by {event.other}" if event.other else kind
    return "ended" if row is None else _in_words(row)


def job_end(
    job: JobHistory, runs: Sequence[RunSummary], accounted: Sequence[AccountedEnd]
) -> JobEnd | None:
    """Return how the job ended; None if it has not."""
    if job.ended_s is None:
        return None
    # Accounting lags behind: with no more rows than restarts, it does not have the end yet.
    last = accounted[-1] if len(accounted) > job.restarts else None
    # With no more runs than requeues, the job ended while pending after the last requeue.
    while_waiting = last.start_s is None if last else len(runs) <= job.restarts
    if last is None:
        if not runs:
            return JobEnd("ended without having run", while_waiting)
        return JobEnd("ended while it waited" if while_waiting else runs[-1].ended, while_waiting)
    words = f"{_in_words(last)} while it waited" if while_waiting else _in_words(last)
    return JobEnd(words, while_waiting, last.state, last.exit_code, last.cancelled_by)


def _in_words(row: AccountedEnd) -> str:
    """Return ``completed``, ``failed with exit code 3``, ``cancelled by alice``."""
    words = IN_WORDS.get(row.state, row.state.lower().replace("_", " "))
    if row.cancelled_by:
        return f"{words} by {row.cancelled_by}"
    code, _, signal = row.exit_code.partition(":")
    if row.state != FAILED:
        return words
    return f"{words} by signal {signal}" if signal != "0" else f"{words} with exit code {code}"


def as_data(job: JobHistory, runs: Sequence[RunSummary], end: JobEnd | None) -> dict[str, object]:
    """Return the history for ``--json``; fields are added, never changed."""
    known = asdict(job)
    del known["progress"], known["costs"]  # each run has its own
    return {
        "schema": HISTORY_SCHEMA,
        **known,
        "runs": [asdict(run) for run in runs],
        "end": asdict(end) if end else None,
    }


def lines(
    job: JobHistory, runs: Sequence[RunSummary], end: JobEnd | None, screen: Screen, now_s: float
) -> Iterator[str]:
    """Yield the history for people."""
    whose = f" of {printable(job.user)}" if job.user else ""
    name = f" ({printable(job.name)})" if job.name else ""
    if end is not None:
        state = printable(end.told)
    else:
        running = bool(runs) and runs[-1].end_s is None
        state = f"{'running' if running else 'waiting'} in tier {job.tier}"
    headline = f"Job {printable(job.job_id)}{name}{whose}: {state}."
    yield from screen.prose(headline, indent="")
    for sentence in _sums(job, runs, now_s):
        yield from screen.prose(sentence)
    if runs:
        yield ""
        columns = [column for column in COLUMNS if job.progress or not column.optional]
        yield from screen.table(columns, runs)
    for section in (cost_section(job), event_section(job)):
        if section.items:
            yield ""
            yield from screen.section(section.local)


def _sums(job: JobHistory, runs: Sequence[RunSummary], now_s: float) -> Iterator[str]:
    submitted = f"Submitted {moment(job.submitted_s)}"
    if job.first_started_s is not None:
        after = duration(job.first_started_s - job.submitted_s)
        submitted += f", first started {moment(job.first_started_s)}, after {after}"
    if job.ended_s is not None:
        whole = duration(job.ended_s - job.submitted_s)
        submitted += f", ended {moment(job.ended_s)}, {whole} after its submission"
    yield submitted + "."
    if runs:
        yield (
            f"It ran {duration(sum(run.ran_s for run in runs))} in {count(len(runs), 'run')}, "
            f"waited {duration(_waited_s(job, runs, now_s))} in all and attained "
            f"{gpu_hours(sum(run.attained_gpu_s for run in runs))}."
        )
    else:
        yield f"It never ran, and waited {duration(_waited_s(job, runs, now_s))}."
    if job.preemptions:
        yield f"It was preempted {times(job.preemptions)}."
    if job.promotions:
        yield f"It was promoted to tier 0 {times(job.promotions)} for having waited long."


def _waited_s(job: JobHistory, runs: Sequence[RunSummary], now_s: float) -> float:
    """Return all time without a run, from submission to the job's end, or until now."""
    waits_since_s = runs[-1].end_s if runs else job.submitted_s
    until_s = now_s if job.ended_s is None else job.ended_s
    last_s = 0.0 if waits_since_s is None else max(0.0, until_s - waits_since_s)
    return sum(run.waited_s for run in runs) + last_s


def _steps(run: RunSummary) -> str:
    told = run.progress
    return NOTHING if told is None else f"{told.first_step:,}-{told.step:,}"


def _saved(run: RunSummary) -> str:
    told = run.progress
    return NOTHING if told is None or told.saved_step is None else f"{told.saved_step:,}"


COLUMNS: tuple[Column[RunSummary], ...] = (
    Column("RUN", lambda run: f"{run.number}", right=True),
    Column("WAITED", lambda run: duration(run.waited_s), right=True, goes=1),
    Column("STARTED", lambda run: moment(run.start_s)),
    Column("RAN", lambda run: duration(run.ran_s), right=True),
    Column("GPUS", lambda run: f"{run.gpus}", right=True, goes=3),
    Column("ATTAINED", lambda run: gpu_hours(run.attained_gpu_s), right=True, goes=2),
    Column("STEPS", lambda run: _steps(run), right=True, goes=5, optional=True),
    Column("SAVED", lambda run: _saved(run), right=True, goes=4, optional=True),
    Column("ENDED", lambda run: printable(run.ended) or "runs", least=9),
)
