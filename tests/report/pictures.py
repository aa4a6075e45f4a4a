"""Ledgers drawn as text, one line per job and one letter per interval, and reports of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

from slurm_tiresias.model import JobAccount
from slurm_tiresias.report.figures import Drawn, Filters, Report, make_report
from slurm_tiresias.status.report_query import Period
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.period import period
from slurm_tiresias.store.records import PreemptionCost, PreemptionRecord, RunRecord

STEP_S = 100.0
"""The duration of one letter in seconds."""


def job(
    key: str,
    drawing: str,
    *,
    gpus: int = 1,
    user: str = "alice",
    account: str = "lab",
    partition: str = "gpu",
    name: str = "train",
) -> tuple[JobAccount, list[RunRecord]]:
    """A job: a blank if it does not exist, ``.`` if it waits, ``#`` if it runs, ``|`` when it ends.

    Without ``|`` it continues after the drawing in its last state.
    """
    over = drawing.endswith("|")
    steps = drawing.removesuffix("|")
    first = len(steps) - len(steps.lstrip())
    end_s = len(steps) * STEP_S
    runs: list[RunRecord] = []
    at = 0
    for letter, group in groupby(steps):
        start, at = at, at + len(list(group))
        if letter == "#":
            open_still = at == len(steps) and not over
            until_s = None if open_still else at * STEP_S
            runs.append(
                RunRecord(key, start * STEP_S, until_s, (at - start) * STEP_S, gpus, not open_still)
            )
    record = JobAccount(
        key=key,
        restarts=len(runs) - (0 if steps.endswith(".") else 1),
        submitted_s=first * STEP_S,
        tier_entered_s=0.0,
        queued_s=0.0,
        entry_number=int(key),
        first_started_s=runs[0].start_s if runs else None,
        ended_s=end_s if over else None,
        preemptions=max(0, len(runs) - 1),
        user=user,
        account=account,
        partition=partition,
        name=name,
    )
    return record, runs


def preempted(
    key: str, for_job: str, at: float, run: float, signalled: float | None = None, **others: Any
) -> PreemptionRecord:
    """A preemption by interval numbers: its time, the start of the preempted run, and of the
    grace."""
    signalled_s = None if signalled is None else signalled * STEP_S
    return PreemptionRecord(key, for_job, at * STEP_S, run * STEP_S, signalled_s, **others)


def cost(
    key: str, run: float, at: float, gpus: int, source: str = "reports", **parts: Any
) -> PreemptionCost:
    """The cost of the preemption of a run, by the interval numbers of its start and of the
    preemption."""
    return PreemptionCost(key, run * STEP_S, 0, at * STEP_S, at * STEP_S, gpus, source, **parts)


def remember(
    path: Path,
    jobs: Sequence[tuple[JobAccount, list[RunRecord]]],
    preemptions: Sequence[PreemptionRecord] = (),
    costs: Sequence[PreemptionCost] = (),
) -> None:
    """Put everything into a ledger."""
    with closing(Ledger(path)) as ledger, ledger.transaction():
        ledger.jobs.put(record for record, _ in jobs)
        ledger.runs.put(run for _, runs in jobs for run in runs)
        ledger.preemptions.put(preemptions)
        ledger.costs.put(costs)


def period_of(path: Path, since: float, until: float, user: str | None = None) -> Period:
    """What the ledger has of a period, given in intervals."""
    with closing(Ledger.to_read(path)) as ledger:
        rows: dict[str, Any] = json.loads(period(ledger, since * STEP_S, until * STEP_S, user))
    return Period(since * STEP_S, until * STEP_S, user or "", True, **rows)


def reported(
    path: Path, since: float, until: float, filters: Filters | None = None, **more: Any
) -> tuple[Report, Drawn]:
    """The report of a period, given in intervals."""
    return make_report(period_of(path, since, until), filters or Filters(), **more)
