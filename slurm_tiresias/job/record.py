"""The record of a job's progress: one line of text that is always of the same length.

The job overwrites the previous record in a single write, and a checksum reveals a mixture of two
records to a reader. Records are written by users' programs, so a reader trusts nothing that it
cannot check.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import asdict, dataclass
from typing import Any

RECORD_BYTES = 1024
"""The length of every record; the rest of the line is blanks."""

MOST_STEPS = 10**15
MOST_TIME_S = 10.0**11
MOST_SAVES = 10**9
MOST_RANKS = 16
"""Maximum number of processes of a node whose step times are in one record."""

MOST_BUSY_MIN = 24 * 60.0
"""The longest phase that a program can announce."""

PHASE = re.compile(r"[A-Za-z0-9 _.-]{0,32}")
"""The possible names of a phase that a program announces."""

RUNNING, SAVING, LEAVING, DONE = "running", "saving", "leaving", "done"
STATES = (RUNNING, SAVING, LEAVING, DONE)

_MAGIC = b"tiresias-progress 1"
_WHOLE, _ANY = (int,), (int, float)
_NUMBERS = (
    ("step", _WHOLE, MOST_STEPS),
    ("total", (*_WHOLE, type(None)), MOST_STEPS),
    ("at_s", _ANY, MOST_TIME_S),
    ("first_step", _WHOLE, MOST_STEPS),
    ("first_s", _ANY, MOST_TIME_S),
    ("saved_step", (*_WHOLE, type(None)), MOST_STEPS),
    ("saved_s", (*_ANY, type(None)), MOST_TIME_S),
    ("resumed_step", (*_WHOLE, type(None)), MOST_STEPS),
    ("new_step_s", (*_ANY, type(None)), MOST_TIME_S),
    ("asked_s", (*_ANY, type(None)), MOST_TIME_S),
    ("saving_s", (*_ANY, type(None)), MOST_TIME_S),
    ("saves", _WHOLE, MOST_SAVES),
    ("answered_s", (*_ANY, type(None)), MOST_TIME_S),
    ("save_every_s", (*_ANY, type(None)), MOST_TIME_S),
    ("busy_until_s", (*_ANY, type(None)), MOST_TIME_S),
)
"""The fields that are numbers, their types, and the largest that they may be."""


class RecordError(ValueError):
    """Bytes that are not a record; the message says why."""


@dataclass(frozen=True)
class Record:
    """The progress of a run. Times are seconds since 1970 by the clock of the node.

    ``first_step`` and ``first_s`` are of the first report of this run. ``total``, ``saved_step``
    and ``resumed_step`` are None if unknown, as are the times of events that have not happened yet.
    ``listens``: the program saves when it is asked to
    (``requests.SAVE_SIGNALS``). ``answered_s`` is the time of the last request that was answered,
    which is to say that a save began after it and has ended.
    """

    step: int
    total: int | None
    at_s: float
    first_step: int
    first_s: float
    saved_step: int | None = None
    saved_s: float | None = None
    resumed_step: int | None = None
    state: str = RUNNING
    new_step_s: float | None = None
    """When this run had done its first step beyond those that it resumed from."""
    asked_s: float | None = None
    """When the program last received a request to save or to leave."""
    saving_s: float | None = None
    """When the save that ended at ``saved_s`` began; None if the program does not report it."""
    saves: int = 0
    """How many saves this run has made."""
    listens: bool = False
    answered_s: float | None = None
    save_every_s: float | None = None
    """Seconds between two saves that the program makes by itself; None if not reported."""
    busy_until_s: float | None = None
    """The end of a phase without steps that the program has announced, at the latest."""
    phase: str = ""
    """What it called this phase."""
    dumps: bool = False
    """Whether it prints the stacks of its threads on ``requests.DUMP_SIGNAL``."""
    ranks: tuple[tuple[int, float], ...] = ()
    """The processes of this node by rank, with the time that a step takes each, without waiting for
    others; 0 if unknown. The first is the one that reports; empty if there is one process only."""

    @property
    def rank(self) -> int:
        """The rank of the process that reports."""
        return self.ranks[0][0] if self.ranks else 0


def encode(record: Record) -> bytes:
    """The record as ``RECORD_BYTES`` bytes."""
    text = json.dumps(asdict(record), separators=(",", ":"), allow_nan=False).encode()
    return padded(b"%s %08x %s" % (_MAGIC, zlib.crc32(text), text))


def padded(line: bytes) -> bytes:
    """A record without its padding as ``RECORD_BYTES`` bytes."""
    return line.ljust(RECORD_BYTES - 1) + b"\n"


def decode(content: bytes) -> Record:
    """The record in these bytes; ``RecordError`` unless they are exactly one valid record."""
    if len(content) != RECORD_BYTES or not content.startswith(_MAGIC + b" "):
        raise RecordError("not a progress record")
    checksum, _, text = content[len(_MAGIC) + 1 :].strip(b" \n").partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        raise RecordError("the checksum is wrong")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError("not JSON") from error
    if not isinstance(fields, dict) or fields.keys() != Record.__dataclass_fields__.keys():
        raise RecordError("the fields are not those of a record")
    return checked(fields)


def checked(fields: dict[str, Any]) -> Record:
    """The record with these fields; ``RecordError`` if any is missing or invalid."""
    try:
        ranks = tuple(tuple(one) for one in fields.get("ranks", ()))
        record = Record(**{**fields, "ranks": ranks})
    except TypeError as error:
        raise RecordError("the fields are not those of a record") from error
    for name, types, most in _NUMBERS:
        value = getattr(record, name)
        # True is an integer to Python, but not a step; NaN is in no range.
        if type(value) not in types or not (value is None or 0 <= value <= most):
            raise RecordError(f"{name} is out of range")
    if record.state not in STATES:
        raise RecordError("an unknown state")
    if type(record.listens) is not bool or type(record.dumps) is not bool:
        raise RecordError("listens or dumps is neither true nor false")
    if type(record.phase) is not str or not PHASE.fullmatch(record.phase):
        raise RecordError("not a name of a phase")
    if len(record.ranks) > MOST_RANKS or not all(map(_is_rank, record.ranks)):
        raise RecordError("ranks are out of range")
    if record.total is not None and not 0 < record.total >= record.step:
        raise RecordError("more steps than the total")
    if record.first_step > record.step:
        raise RecordError("fewer steps than at the first report")
    return record


def _is_rank(one: Any) -> bool:
    if len(one) != 2 or type(one[0]) is not int or type(one[1]) not in _ANY:
        return False
    return 0 <= one[0] <= MOST_STEPS and 0 <= one[1] <= MOST_TIME_S
