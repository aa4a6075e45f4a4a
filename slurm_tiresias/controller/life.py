"""A job's whole life: its runs and what happened to it, as long as the ledger remembers them.

Users may not read the ledger; they ask a socket beside it. The kernel says who asks, and where
Slurm keeps jobs private they are told of their own only.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_tiresias import json_text
from slurm_tiresias.controller.answers import Answers, asked_or_read, peer_of
from slurm_tiresias.controller.ledger import IncarnationRecord, JobRecord, Ledger
from slurm_tiresias.controller.published import PublishedEvent, all_known

SCHEMA = 1
SOCKET_NAME = "history.sock"
MOST_PARTS = 1000
"""Of an array so many tasks are named."""

LONGEST_QUESTION = 64


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
    runs: tuple[IncarnationRecord, ...]
    events: tuple[PublishedEvent, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What a job id leads to: one life, or the ``parts`` of an array to choose from, or nothing."""

    life: Life | None = None
    parts: tuple[str, ...] = ()


def find(ledger: Ledger, job_id: str, user: str | None = None) -> Found:
    """What the ledger has of a job; with a ``user``, only of this user's own."""

    def shown(record: JobRecord) -> bool:
        return user is None or (bool(user) and record.user == user)

    record = ledger.job(job_id)
    if record and shown(record):
        return Found(_life(ledger, record))
    tasks = [task for task in ledger.tasks_of(job_id, MOST_PARTS) if shown(task)]
    if len(tasks) == 1:
        return Found(_life(ledger, tasks[0]))
    return Found(parts=tuple(task.key for task in tasks))


def _life(ledger: Ledger, record: JobRecord) -> Life:
    events = ledger.events_of(record.key, record.submitted_s)
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
        runs=tuple(ledger.incarnations_of(record.key)),
        events=tuple(PublishedEvent(e.at_s, e.kind, e.job_id, e.other, e.text) for e in events),
    )


def lives(state_dir: Path, ledger: Path, *, private: bool) -> Answers:
    """Tells users of their jobs' lives, from a thread of its own.

    ``private``: each of own jobs only.
    """

    def answer(connection: socket.socket) -> bytes:
        asked = connection.recv(LONGEST_QUESTION).decode("ascii", errors="replace").strip()
        peer = peer_of(connection)
        everything = peer.sees_everything or not private
        with closing(Ledger.to_read(ledger)) as reader:
            return _text(find(reader, asked, None if everything else peer.name))

    return Answers(state_dir / SOCKET_NAME, answer)


def _text(found: Found) -> bytes:
    return json_text.dumps({"schema": SCHEMA, "life": found.life, "parts": found.parts})


def look_up(state_dir: Path, job_id: str) -> Found:
    """Ask the controller for a job's life; where none runs, read the ledger as far as one may.

    ``NotRunningError`` where neither is possible.
    """
    return asked_or_read(
        state_dir, SOCKET_NAME, job_id, SCHEMA, _found, lambda ledger: find(ledger, job_id)
    )


def _found(raw: Mapping[str, Any]) -> Found:
    life = raw["life"] and _life_from(raw["life"])
    return Found(life, tuple(raw["parts"]))


def _life_from(raw: Mapping[str, Any]) -> Life:
    runs = all_known(IncarnationRecord, raw["runs"])
    events = all_known(PublishedEvent, raw["events"])
    return all_known(Life, [{**raw, "runs": runs, "events": events}])[0]
