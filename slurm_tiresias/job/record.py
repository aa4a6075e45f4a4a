"""The record of a job's progress: one line of text that is always of the same length.

The job overwrites the previous record in a single write, and a checksum reveals a mixture of two
records to a reader. Records are written by users' programs, so a reader trusts nothing that it
cannot check.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any

RECORD_BYTES = 512
"""The length of every record; the rest of the line is blanks."""

MOST_STEPS = 10**15
MOST_TIME_S = 10.0**11
MOST_SAVES = 10**9

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


def encode(record: Record) -> bytes:
    """The record as ``RECORD_BYTES`` bytes."""
    text = json.dumps(asdict(record), separators=(",", ":"), allow_nan=False).encode()
    line = b"%s %08x %s" % (_MAGIC, zlib.crc32(text), text)
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
        record = Record(**fields)
    except TypeError as error:
        raise RecordError("the fields are not those of a record") from error
    for name, types, most in _NUMBERS:
        value = getattr(record, name)
        # True is an integer to Python, but not a step; NaN is in no range.
        if type(value) not in types or not (value is None or 0 <= value <= most):
            raise RecordError(f"{name} is out of range")
    if record.state not in STATES:
        raise RecordError("an unknown state")
    if type(record.listens) is not bool:
        raise RecordError("listens is neither true nor false")
    if record.total is not None and not 0 < record.total >= record.step:
        raise RecordError("more steps than the total")
    if record.first_step > record.step:
        raise RecordError("fewer steps than at the first report")
    return record
