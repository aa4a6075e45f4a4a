"""What a report is made of: everything that the ledger has of a period.

Users may not read the ledger; they ask the controller for the jobs of all users, or only for their
own if Slurm keeps jobs private.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_tiresias import json_codec
from slurm_tiresias.status.ask_or_read import ask_or_read
from slurm_tiresias.status.service import Peer, Question, Service, Text
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.period import period

SCHEMA = 3
REQUEST = "report"
NOBODY = "nobody"
OWN = "own"
"""The word in a question that asks for one's own jobs only."""

ANSWER_S = 90.0
"""How long a command waits: for earlier questions, and for the longest report that root may get."""

Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Period:
    """What happened in [``since_s``, ``until_s``).

    Users, accounts, partitions and names are hostile text. ``only_of`` is the user whose jobs these
    are, if the asker may see or wants only their own jobs; of other jobs there are then only ids.
    ``events`` counts the events that are still kept, by kind. ``live`` is false if no controller
    answered, so that what happened since it stopped is unknown. The rows have the columns of
    ``period.PERIOD``. ``began_s`` is when a controller first observed the cluster, None if unknown;
    jobs that ended before ``pruned_before_s`` may be missing.
    """

    since_s: float
    until_s: float
    only_of: str
    live: bool
    jobs: Sequence[Row]
    runs: Sequence[Row]
    preemptions: Sequence[Row]
    events: Mapping[str, int]
    began_s: float | None = None
    pruned_before_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Limits:
    """Limits of one answer. A job with one run takes 150 bytes; 100,000 jobs take half a second."""

    most_s: float
    most_bytes: float


OF_USERS = _Limits(most_s=10.0, most_bytes=32e6)
OF_ADMINS = _Limits(most_s=60.0, most_bytes=128e6)


def report_service(ledger: Path, *, private: bool) -> Service:
    """Make the service for reports; if ``private``, each user gets only its own jobs."""

    def answer(question: Question) -> Text:
        words = question.text.split()
        own = words[2:] == [OWN]
        try:
            since_s, until_s = map(float, words[:2] if own else words)
        except ValueError:
            return json_codec.dumps({"schema": 0})
        peer = question.peer
        limits = OF_ADMINS if peer.sees_everything else OF_USERS
        user = peer.name if own or (private and not peer.sees_everything) else None
        only_of = "" if user is None else user or NOBODY
        with closing(Ledger.to_read(ledger, question.stop_after(limits.most_s))) as reader:
            rows = period(reader, since_s, until_s, user, limits.most_bytes)
        head = json_codec.dumps({"schema": SCHEMA, "only_of": only_of})
        rows[:0] = head[:-1] + b',"rows":'
        rows += b"}"
        return rows

    remedy = "Ask for a shorter time (--since, --until), or for your own jobs alone (--own)"
    return Service(answer, long=True, remedy=remedy)


def query_report(state_dir: Path, since_s: float, until_s: float, *, own: bool = False) -> Period:
    """Ask the controller for a report; if none runs, read the ledger if possible.

    ``own``: only this user's own jobs. Raises ``NotRunningError`` if neither is possible, and
    ``RefusedError`` if the controller refuses.
    """

    def from_answer(raw: Mapping[str, Any]) -> Period:
        return Period(since_s, until_s, raw["only_of"], True, **raw["rows"])

    def read(ledger: Ledger, live: bool) -> Period:
        user = Peer(os.geteuid()).name if own else None
        only_of = "" if user is None else user or NOBODY
        rows = json_codec.loads(period(ledger, since_s, until_s, user))
        return Period(since_s, until_s, only_of, live, **rows)

    request = f"{REQUEST} {since_s!r} {until_s!r}{f' {OWN}' * own}"
    return ask_or_read(state_dir, request, SCHEMA, from_answer, read, ANSWER_S)
