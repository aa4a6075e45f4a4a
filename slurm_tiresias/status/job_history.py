"""A job's history: its runs and events, as long as the ledger keeps them.

Users may not read the ledger; they ask the controller. If Slurm keeps jobs private, they get only
their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurm_tiresias import json_codec
from slurm_tiresias.model import EventRecord, JobAccount
from slurm_tiresias.slurm.protocol import AccountedRun
from slurm_tiresias.status.ask_or_read import ask_or_read
from slurm_tiresias.status.service import Peer, Question, Service
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import PreemptionCost, RunProgressRecord, RunRecord

SCHEMA = 1
REQUEST = "history"
MOST_PARTS = 1000
"""The most tasks that are listed for an array."""

PAUSES = ("paused", "resumed")
"""Events of the controller that are part of every job's history."""

LONGEST_S = 2.0
"""A job is looked up in a few milliseconds; with 200,000 events of other jobs it takes 20."""


@dataclass(frozen=True, slots=True)
class JobHistory:
    """What the ledger has of a job, oldest runs and events first. User and name are hostile."""

    job_id: str
    user: str
    name: str
    submitted_s: float
    first_started_s: float | None
    ended_s: float | None
    tier: int
    promotions: int
    preemptions: int
    runs: tuple[RunRecord, ...]
    events: tuple[EventRecord, ...]
    restarts: int = 0
    """How often the job was requeued, for any reason."""
    progress: tuple[RunProgressRecord, ...] = ()
    """The last progress that ended runs reported."""
    costs: tuple[PreemptionCost, ...] = ()
    """The cost of each of its preemptions, as far as known."""


@dataclass(frozen=True, slots=True)
class AccountedEnd:
    """The end of one run by Slurm's accounting, or of a pending job (``start_s`` is None).

    ``state`` is REQUEUED, FAILED and so on, ``exit_code`` Slurm's ``code:signal``, and
    ``cancelled_by`` a user's name, or the uid if this host knows no name.
    """

    start_s: float | None
    end_s: float
    state: str
    exit_code: str
    cancelled_by: str


def accounted_ends(rows: Iterable[AccountedRun]) -> tuple[AccountedEnd, ...]:
    """Return the ends of those runs that have ended."""

    def name_of(uid: int | None) -> str:
        return "" if uid is None else Peer(uid).name or f"user {uid}"

    return tuple(
        AccountedEnd(row.start_s, row.end_s, row.state, row.exit_code, name_of(row.cancelled_by))
        for row in rows
        if row.end_s is not None
    )


@dataclass(frozen=True, slots=True)
class Found:
    """The result for a job id: a history, the ``parts`` of an array to choose from, or nothing."""

    history: JobHistory | None = None
    parts: tuple[str, ...] = ()


def find(ledger: Ledger, job_id: str, user: str | None = None) -> Found:
    """Look a job up in the ledger; with a ``user``, only among this user's jobs."""

    def shown(record: JobAccount) -> bool:
        return user is None or (bool(user) and record.user == user)

    record = ledger.jobs.one(job_id)
    if record and shown(record):
        return Found(_history(ledger, record, whole=user is None))
    tasks = [task for task in ledger.jobs.tasks_of(job_id, MOST_PARTS) if shown(task)]
    if len(tasks) == 1:
        return Found(_history(ledger, tasks[0], whole=user is None))
    return Found(parts=tuple(task.key for task in tasks))


def _history(ledger: Ledger, record: JobAccount, *, whole: bool) -> JobHistory:
    """Collect a job's history; unless ``whole``, without the texts of other jobs' events."""
    events = list(ledger.events.of_job(record.key, record.submitted_s))
    # Nothing was done for the job while the controller was paused.
    until_s = math.inf if record.ended_s is None else record.ended_s
    for kind in PAUSES:
        pauses = ledger.events.of_kind(kind, record.submitted_s)
        events += [event for event in pauses if event.at_s <= until_s]
    events.sort(key=lambda event: event.at_s)
    if not whole:
        own = ("", record.key)
        events = [each if each.job_id in own else replace(each, text="") for each in events]
    return JobHistory(
        job_id=record.key,
        user=record.user,
        name=record.name,
        submitted_s=record.submitted_s,
        first_started_s=record.first_started_s,
        ended_s=record.ended_s,
        tier=record.tier,
        promotions=record.promotions,
        preemptions=record.preemptions,
        runs=tuple(ledger.runs.of(record.key)),
        events=tuple(events),
        restarts=record.restarts,
        progress=tuple(ledger.progress.of(record.key)),
        costs=tuple(ledger.costs.of(record.key)),
    )


def history_service(ledger: Path, *, private: bool) -> Service:
    """Make the service for job histories; if ``private``, each user gets only its own jobs."""

    def answer(question: Question) -> bytes:
        everything = question.peer.sees_everything or not private
        user = None if everything else question.peer.name
        with closing(Ledger.to_read(ledger, question.stop_after(LONGEST_S))) as reader:
            found = find(reader, question.text, user)
        return json_codec.dumps({"schema": SCHEMA, "life": found.history, "parts": found.parts})

    remedy = "See Slurm's own records of the job with sacct -D -j"
    return Service(answer, remedy=remedy)


def query_history(state_dir: Path, job_id: str) -> Found:
    """Ask the controller for a job's history; if none runs, read the ledger if possible.

    Raises ``NotRunningError`` if neither is possible, and ``RefusedError`` if the controller
    refuses.
    """

    def from_answer(raw: Mapping[str, Any]) -> Found:
        history = raw["life"] and json_codec.build(JobHistory, raw["life"])
        return Found(history, tuple(raw["parts"]))

    return ask_or_read(
        state_dir,
        f"{REQUEST} {job_id}",
        SCHEMA,
        from_answer,
        lambda ledger, _live: find(ledger, job_id),
    )
