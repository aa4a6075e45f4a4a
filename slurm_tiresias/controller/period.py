"""All that was in some time, as the ledger has it: what a report is made of.

Who may not read the ledger asks a socket beside it, as for a job's life (``life.py``): all users
of all jobs, but where Slurm keeps jobs private each of own ones only.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_tiresias import json_text
from slurm_tiresias.controller.answers import Answers, asked_or_read, peer_of
from slurm_tiresias.controller.ledger import Ledger

SCHEMA = 1
SOCKET_NAME = "report.sock"
LONGEST_QUESTION = 64
NOBODY = "nobody"

Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Period:
    """What was in [``since_s``, ``until_s``). Users, accounts, partitions and names are hostile.

    ``only_of`` is whose jobs these are, where not all may be seen. ``events`` counts those by kind
    that are still remembered. ``live`` is false where no controller answered, and what has happened
    since it stopped is not known. The rows have the columns of ``ledger.PERIOD``.
    """

    since_s: float
    until_s: float
    only_of: str
    live: bool
    jobs: Sequence[Row]
    runs: Sequence[Row]
    preemptions: Sequence[Row]
    events: Mapping[str, int]


def periods(state_dir: Path, ledger: Path, *, private: bool) -> Answers:
    """Tells users what was in a time, from a thread of its own.

    ``private``: each of own jobs only.
    """

    def answer(connection: socket.socket) -> bytes:
        asked = connection.recv(LONGEST_QUESTION).decode("ascii", errors="replace").split()
        peer = peer_of(connection)
        user = None if peer.sees_everything or not private else peer.name
        only_of = "" if user is None else user or NOBODY
        try:
            since_s, until_s = map(float, asked)
        except ValueError:
            return json_text.dumps({"schema": 0})
        with closing(Ledger.to_read(ledger)) as reader:
            rows = reader.period(since_s, until_s, user)
        head = json_text.dumps({"schema": SCHEMA, "only_of": only_of})
        return head[:-1] + b',"rows":' + rows.encode() + b"}"

    return Answers(state_dir / SOCKET_NAME, answer)


def look_back(state_dir: Path, since_s: float, until_s: float) -> Period:
    """Ask the controller; where none runs, read the ledger as far as one may.

    ``NotRunningError`` where neither is possible.
    """

    def asked(raw: Mapping[str, Any]) -> Period:
        return Period(since_s, until_s, raw["only_of"], True, **raw["rows"])

    def read(ledger: Ledger) -> Period:
        rows = json_text.loads(ledger.period(since_s, until_s).encode())
        return Period(since_s, until_s, "", False, **rows)

    question = f"{since_s!r} {until_s!r}"
    return asked_or_read(state_dir, SOCKET_NAME, question, SCHEMA, asked, read)
