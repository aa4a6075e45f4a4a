"""A job's whole life: its runs and what happened to it, as long as the ledger remembers them.

Users may not read the ledger; they ask a socket beside it (``answers.py``). Where Slurm keeps jobs
private they are told of their own only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurm_tiresias import json_codec
from slurm_tiresias.model import JobAccount
from slurm_tiresias.slurm.protocol import AccountedRun
from slurm_tiresias.status.answers import Peer, Question, Service, asked_or_read
from slurm_tiresias.status.published import PublishedEvent, all_known
from slurm_tiresias.store.ledger import EventRecord, Ledger, RunRecord

SCHEMA = 1
SOCKET_NAME = "history.sock"
MOST_PARTS = 1000
"""Of an array so many tasks are named."""

PAUSES = ("paused", "resumed")
"""Events of the controller that a job's life is told with."""

LONGEST_S = 2.0
"""To look a job up takes some milliseconds, with 200,000 events about others 20."""
ANSWER_S = 15.0


@dataclass(frozen=True, slots=True)
class Life:
    """All that is remembered of a job; runs and events oldest first. User and name are hostile."""

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
    events: tuple[PublishedEvent, ...]
    restarts: int = 0
    """How often it was requeued, for any reason."""


@dataclass(frozen=True, slots=True)
class Accounted:
    """The end of one run by Slurm's accounting, or of a job that waited (``start_s`` is None).

    ``state`` is REQUEUED, FAILED and so on, ``exit_code`` Slurm's ``code:signal``, and
    ``cancelled_by`` a user's name, or number where this host knows no name.
    """

    start_s: float | None
    end_s: float
    state: str
    exit_code: str
    cancelled_by: str


def accounted_of(rows: Iterable[AccountedRun]) -> tuple[Accounted, ...]:
    """What accounting says of those that are over."""
    return tuple(
        Accounted(row.start_s, row.end_s, row.state, row.exit_code, _name_of(row.cancelled_by))
        for row in rows
        if row.end_s is not None
    )


def _name_of(uid: int | None) -> str:
    return "" if uid is None else Peer(uid).name or f"user {uid}"


@dataclass(frozen=True, slots=True)
class Found:
    """What a job id leads to: one life, or the ``parts`` of an array to choose from, or nothing."""

    life: Life | None = None
    parts: tuple[str, ...] = ()


def find(ledger: Ledger, job_id: str, user: str | None = None) -> Found:
    """What the ledger has of a job; with a ``user``, only of this user's own."""

    def shown(record: JobAccount) -> bool:
        return user is None or (bool(user) and record.user == user)

    record = ledger.job(job_id)
    if record and shown(record):
        return Found(_life(ledger, record, whole=user is None))
    tasks = [task for task in ledger.tasks_of(job_id, MOST_PARTS) if shown(task)]
    if len(tasks) == 1:
        return Found(_life(ledger, tasks[0], whole=user is None))
    return Found(parts=tuple(task.key for task in tasks))


def _life(ledger: Ledger, record: JobAccount, *, whole: bool) -> Life:
    """A job's life; unless ``whole``, without the words about other jobs."""
    events = [
        event if whole or event.job_id in ("", record.key) else replace(event, text="")
        for event in (*ledger.events_of(record.key, record.submitted_s), *_pauses(ledger, record))
    ]
    events.sort(key=lambda event: event.at_s)
    return Life(
        job_id=record.key,
        user=record.user,
        name=record.name,
        submitted_s=record.submitted_s,
        first_started_s=record.first_started_s,
        ended_s=record.ended_s,
        tier=record.tier,
        promotions=record.promotions,
        preemptions=record.preemptions,
        runs=tuple(ledger.runs_of(record.key)),
        events=tuple(PublishedEvent(e.at_s, e.kind, e.job_id, e.other, e.text) for e in events),
        restarts=record.restarts,
    )


def _pauses(ledger: Ledger, record: JobAccount) -> Iterator[EventRecord]:
    """When nothing was done for the job, though it was there, because an admin had said so."""
    until_s = math.inf if record.ended_s is None else record.ended_s
    for kind in PAUSES:
        events = ledger.events_of_kind(kind, record.submitted_s)
        yield from (event for event in events if event.at_s <= until_s)


def lives(state_dir: Path, ledger: Path, *, private: bool) -> Service:
    """Tells users of their jobs' lives; where ``private``, each of own jobs only."""

    def answer(question: Question) -> bytes:
        everything = question.peer.sees_everything or not private
        user = None if everything else question.peer.name
        with closing(Ledger.to_read(ledger, question.stop_after(LONGEST_S))) as reader:
            return _text(find(reader, question.text, user))

    remedy = "See Slurm's own records of the job with sacct -D -j"
    return Service(state_dir / SOCKET_NAME, answer, remedy=remedy)


def _text(found: Found) -> bytes:
    return json_codec.dumps({"schema": SCHEMA, "life": found.life, "parts": found.parts})


def look_up(state_dir: Path, job_id: str) -> Found:
    """Ask the controller for a job's life; where none runs, read the ledger as far as one may.

    ``NotRunningError`` where neither is possible, ``RefusedError`` where the controller refuses.
    """
    return asked_or_read(
        state_dir / SOCKET_NAME,
        job_id,
        SCHEMA,
        made_of=_found,
        read=lambda ledger, _live: find(ledger, job_id),
        answer_s=ANSWER_S,
    )


def _found(raw: Mapping[str, Any]) -> Found:
    life = raw["life"] and _life_from(raw["life"])
    return Found(life, tuple(raw["parts"]))


def _life_from(raw: Mapping[str, Any]) -> Life:
    runs = all_known(RunRecord, raw["runs"])
    events = all_known(PublishedEvent, raw["events"])
    return all_known(Life, [{**raw, "runs": runs, "events": events}])[0]
