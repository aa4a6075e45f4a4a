"""Reconcile the job store with accounting: ``sacct`` knows of ends that were not observed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slurm_tiresias.controller.accounting_query import AccountingQuery
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.runs import ended_without_steps
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.model import JobAccount
from slurm_tiresias.slurm.protocol import AccountedRun, Slurm
from slurm_tiresias.store.records import RunRecord

log = logging.getLogger("tiresias-slurm")

NO_OUTCOMES = frozenset({"REQUEUED", "PREEMPTED", "RESIZING"})
"""The states of runs that did not end by themselves."""

FIRST_PAUSE_S = 2.0
FIRST_PAUSE_AFTER_FAILURE_S = 5.0
LAST_PAUSE_S = 120.0
"""Pauses between questions double up to this, whether accounting lags behind or does not answer."""

ANSWER_IN_TIME_S = 0.5
"""How long a cycle waits for accounting, which mostly answers in a tenth of that."""

STARTS_COME_BY = 3
"""Number of questions after which a run stands as Slurm showed it if accounting has rows of as many
ended runs, and lacks the start of this one: slurmdbd can lose the start of a short run."""

MOST_QUESTIONS = 12
"""Accounting lags behind, so it is asked again at growing intervals. After this many questions (a
quarter of an hour) the estimate stands."""


@dataclass(frozen=True, slots=True)
class _Question:
    """When accounting is next asked about a job, and how often it has been asked."""

    next_s: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    asked: int = 0


class Reconciler:
    """Asks accounting about runs that the job store only estimates, and records the answers."""

    def __init__(self, job_store: JobStore, slurm: Slurm) -> None:
        self._job_store = job_store
        self._slurm = slurm
        self.begin_anew()
        self._unanswered: frozenset[str] = frozenset()
        """The jobs about which the last query got no answer: they are asked about after others."""

    def begin_anew(self) -> None:
        """Forget all pauses between questions, at the start and when the clock was set."""
        self._questions: dict[str, _Question] = {}
        self._ask_nothing_before_s = 0.0
        self._pause_after_failure_s = FIRST_PAUSE_AFTER_FAILURE_S
        self._query: AccountingQuery | None = None
        """The query that is under way."""

    def reconcile(self, now_s: float) -> None:
        """Ask accounting about runs whose end was not observed, and record its answers.

        The estimates stand meanwhile: scheduling does not wait for accounting. An answer within
        ``ANSWER_IN_TIME_S`` counts at once, a later one from the cycle that finds it.
        """
        if not self._job_store.runs.has_accounting:
            return
        wait_s = 0.0
        if self._query is None and now_s >= self._ask_nothing_before_s:
            due = self._due(now_s)
            self._query = AccountingQuery(self._slurm, due) if due else None
            wait_s = ANSWER_IN_TIME_S
        if self._query is None or not self._query.is_over_within(wait_s):
            return
        query, self._query = self._query, None
        self._take_words(query.answered, query.rows, now_s)
        self._unanswered = frozenset(query.unanswered)
        try:
            query.raise_error()
        except TiresiasError as error:
            pause_s = self._pause_after_failure_s
            log.warning("accounting will be asked again in %.0f s: %s", pause_s, error)
            self._job_store.accounting_failures += 1
            self._ask_nothing_before_s = now_s + pause_s
            self._pause_after_failure_s = min(2 * pause_s, LAST_PAUSE_S)
            return
        self._pause_after_failure_s = FIRST_PAUSE_AFTER_FAILURE_S

    def ask_and_wait(self, now_s: float) -> None:
        """Ask accounting as ``reconcile`` does, but wait for it; raises the driver's errors."""
        if due := self._due(now_s):
            self._take_words(due, self._slurm.runs(due, 0.0), now_s)

    def _due(self, now_s: float) -> list[str]:
        """Return the jobs that accounting must be asked about now."""
        due = [
            key
            for key in self._job_store.accounts.all
            if self._job_store.accounts.is_doubtful(key)
            and now_s >= self._questions.get(key, _Question()).next_s
        ]
        return sorted(due, key=self._unanswered.__contains__)

    def _take_words(self, keys: Iterable[str], rows: Iterable[AccountedRun], now_s: float) -> None:
        answers: dict[str, list[AccountedRun]] = {}
        for row in rows:
            answers.setdefault(row.key, []).append(row)
        for key in self._job_store.in_hand.each(keys):
            if key in self._job_store.accounts.all:  # it may have been forgotten since
                self._take_word(key, answers.get(key, []), now_s)

    def _take_word(self, key: str, rows: Sequence[AccountedRun], now_s: float) -> None:
        record = self._job_store.accounts.all[key]
        asked = self._questions.get(key, _Question())
        enough = asked.asked >= MOST_QUESTIONS
        rows = _own_rows(rows, record, now_s)
        ended = [row for row in rows if row.end_s is not None]
        for row in ended:
            self._keep(row, record, now_s)
        is_over = record.ended_s is not None
        has_all = len(ended) >= record.restarts + is_over
        lacks_starts = any(row.start_s is None for row in ended)
        if enough or (has_all and lacks_starts and asked.asked >= STARTS_COME_BY):
            for run in list(self._job_store.runs.of(key)):
                if run.end_s is not None:
                    self._job_store.runs.keep(replace(run, confirmed=True))
        if has_all:
            if not record.born_after_s:
                # Requeues reset the submission time, but the first row has the original one.
                born_s = min([record.submitted_s, *map(_submitted_s, rows)])
                record = replace(record, submitted_s=born_s, born_after_s=born_s)
            if is_over:
                # For a job that Slurm had forgotten, the end was set to the time when that was
                # noticed.
                record = replace(record, ended_s=max(row.end_s or 0.0 for row in ended))
        if enough or has_all:
            record = replace(record, accounted_restarts=record.restarts)
        first_s = min((run.start_s for run in self._job_store.runs.of(key)), default=None)
        if first_s is not None and (record.first_started_s or first_s + 1) > first_s:
            # Accounting knows of an earlier start than was observed.
            number = record.start_number or self._job_store.changes.ledger.next_number()
            record = replace(record, first_started_s=first_s, start_number=number)
        self._job_store.accounts.put(record)
        pause_s = min(2 * asked.pause_s, LAST_PAUSE_S)
        self._questions[key] = _Question(now_s + asked.pause_s, pause_s, asked.asked + 1)
        if not self._job_store.accounts.is_doubtful(key):
            del self._questions[key]

    def _keep(self, row: AccountedRun, record: JobAccount, now_s: float) -> None:
        if row.start_s is None:
            return  # it ended while it was pending
        known = self._job_store.runs.run(row.key, row.start_s)
        if row.state == "NODE_FAIL" and known and not known.confirmed and record.ended_s is None:
            self._job_store.node_failed(record, now_s)
        elapsed_s = row.elapsed_s
        if self._job_store.runs.only_booted(row.key, row.start_s):
            elapsed_s = 0.0
        elif known and row.end_s is not None:
            elapsed_s = ended_without_steps(known, row.end_s, row.elapsed_s)
        run = known or RunRecord(row.key, row.start_s, None, 0.0, row.gpus, confirmed=True)
        run = replace(run, end_s=row.end_s, elapsed_s=elapsed_s, gpus=row.gpus, confirmed=True)
        # Accounting shows a run after which its job was restarted as requeued.
        outcome = "" if row.end_s is None or row.state in NO_OUTCOMES else row.state
        self._job_store.runs.keep(replace(run, outcome=run.outcome or outcome))


def _own_rows(
    rows: Iterable[AccountedRun], record: JobAccount, now_s: float
) -> Sequence[AccountedRun]:
    """Return the rows of this job: accounting also has those of earlier jobs with the same id.

    Each requeue begins a new row. Before the submission at which the job was first seen, it has at
    most one row for each requeue until then.
    """
    rows = sorted(rows, key=_submitted_s)
    if record.born_after_s:
        own = [row for row in rows if _submitted_s(row) >= record.born_after_s]
        ended = sum(row.end_s is not None for row in own)
        if ended > record.restarts + (record.ended_s is not None):
            # Slurm's clock was set back between an earlier job and this one.
            own = [row for row in own if _submitted_s(row) <= now_s]
        return own
    later = [row for row in rows if _submitted_s(row) >= record.submitted_s]
    ended = sum(row.end_s is not None for row in later)
    requeues_since = max(0, len(later) - 1, ended - (record.ended_s is not None))
    earlier = rows[: len(rows) - len(later)]
    return earlier[max(0, len(earlier) - max(0, record.restarts - requeues_since)) :] + later


def _submitted_s(row: AccountedRun) -> float:
    return row.submit_s or row.start_s or row.end_s or 0.0
