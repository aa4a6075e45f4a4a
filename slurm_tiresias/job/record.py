"""The record of a job's progress: one line of text that is always of the same length.

The job writes it over the former one in a single write, and a checksum tells a reader who meets
half of each. It is written by users' programs, so a reader believes nothing that it cannot check.
"""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import asdict, dataclass
from typing import Any

RECORD_BYTES = 512
"""The length of every record; the rest of the line is blanks."""

MOST_STEPS = 10**15
MOST_TIME_S = 10.0**11
MOST_STEPS_PER_S = 10.0**9

RUNNING, SAVING, LEAVING, DONE = "running", "saving", "leaving", "done"
STATES = (RUNNING, SAVING, LEAVING, DONE)

_MAGIC = b"tiresias-progress 1"
_MOST = {
    **dict.fromkeys(("step", "total", "first_step", "saved_step", "resumed_step"), MOST_STEPS),
    **dict.fromkeys(("at_s", "first_s", "saved_s"), MOST_TIME_S),
    "steps_per_s": MOST_STEPS_PER_S,
}
"""The largest value of each number; a field whose largest is an int holds whole numbers only."""
_OPTIONAL = ("total", "saved_step", "saved_s", "resumed_step")


class RecordError(ValueError):
    """Bytes that are no record; the message says why."""


@dataclass(frozen=True)
class Record:
    """How far a run is. Times are seconds since 1970 by the clock of the node.

    ``first_step`` and ``first_s`` are of the first report of this run, ``steps_per_s`` is the
    recent rate. ``total``, ``saved_step`` and ``resumed_step`` are None where they are unknown.
    """

    step: int
    total: int | None
    at_s: float
    first_step: int
    first_s: float
    steps_per_s: float
    saved_step: int | None = None
    saved_s: float | None = None
    resumed_step: int | None = None
    state: str = RUNNING


def encode(record: Record) -> bytes:
    """The record as ``RECORD_BYTES`` bytes."""
    text = json.dumps(asdict(record), separators=(",", ":"), allow_nan=False).encode()
    line = b"%s %08x %s" % (_MAGIC, zlib.crc32(text), text)
    return line.ljust(RECORD_BYTES - 1) + b"\n"


def decode(content: bytes) -> Record:
    """The record in these bytes; ``RecordError`` where they are not exactly one valid record."""
    if len(content) != RECORD_BYTES or not content.startswith(_MAGIC + b" "):
        raise RecordError("not a record of progress")
    checksum, _, text = content[len(_MAGIC) + 1 :].strip(b" \n").partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        raise RecordError("the checksum is wrong")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError("not JSON") from error
    if not isinstance(fields, dict) or fields.keys() != Record.__dataclass_fields__.keys():
        raise RecordError("other fields than a record has")
    return _checked(fields)


def _checked(fields: dict[str, Any]) -> Record:
    for name, most in _MOST.items():
        if fields[name] is not None or name not in _OPTIONAL:
            _check_range(name, fields[name], most)
    if fields["state"] not in STATES:
        raise RecordError("an unknown state")
    record = Record(**fields)
    if record.total is not None and not 0 < record.total >= record.step:
        raise RecordError("more steps than the total")
    if record.first_step > record.step:
        raise RecordError("fewer steps than at the first report")
    return record


def _check_range(name: str, value: object, most: int | float) -> None:
    # True and False are integers to Python, and no steps.
    good = type(value) is int or (type(most) is float and type(value) is float)
    if not good or not 0 <= value <= most or not math.isfinite(value):  # type: ignore[operator, arg-type]
        raise RecordError(f"{name} is out of range")
