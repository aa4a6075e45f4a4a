"""Progress records, written by jobs and by forgers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.job.record import (
    MOST_STEPS,
    RECORD_BYTES,
    STATES,
    Record,
    RecordError,
    decode,
    encode,
)

RECORD = Record(step=120, total=5000, at_s=1.7e9, first_step=100, first_s=1.7e9 - 40)
STEPS = st.integers(0, MOST_STEPS)
TIMES = st.floats(0, 1e11)


def forged(**fields: object) -> bytes:
    """A record with a correct checksum, with these fields instead of RECORD's."""
    text = json.dumps({**dataclasses.asdict(RECORD), **fields}).encode()
    line = b"tiresias-progress 1 %08x %s" % (zlib.crc32(text), text)
    return line.ljust(RECORD_BYTES - 1) + b"\n"


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any record, as far as a progress word in a comment has its fields."""
    first, step, total = sorted(draw(st.tuples(STEPS, STEPS, STEPS)))
    at_s, saved_step = draw(TIMES), draw(st.none() | STEPS)
    return Record(
        step=step,
        total=total or None,
        at_s=at_s,
        first_step=first,
        first_s=draw(TIMES),
        saved_step=saved_step,
        saved_s=None if saved_step is None else at_s,
        resumed_step=draw(st.none() | STEPS),
        state=draw(st.sampled_from(STATES)),
        new_step_s=draw(st.none() | TIMES),
        asked_s=draw(st.none() | TIMES),
        saving_s=draw(st.none() | TIMES),
        saves=draw(st.integers(0, 10**9)),
    )


@given(records(), st.booleans(), st.none() | TIMES, st.none() | TIMES)
def test_a_record_is_read_as_it_was_written(
    some: Record, listens: bool, answered_s: float | None, save_every_s: float | None
) -> None:
    record = dataclasses.replace(
        some, listens=listens, answered_s=answered_s, save_every_s=save_every_s
    )
    content = encode(record)
    assert len(content) == RECORD_BYTES
    assert decode(content) == record


@pytest.mark.parametrize(
    "fields",
    [
        {"step": -1},
        {"step": 10**30},
        {"step": 1.5},
        {"step": "120"},
        {"step": True},
        {"step": None},
        {"step": 6000},
        {"total": 0},
        {"total": -5},
        {"first_step": 121},
        {"at_s": float("nan")},
        {"at_s": float("inf")},
        {"at_s": 1e300},
        {"at_s": None},
        {"first_s": -1.0},
        {"first_s": float("nan")},
        {"saved_step": -1},
        {"saved_s": float("-inf")},
        {"new_step_s": -1.0},
        {"asked_s": 1e300},
        {"saving_s": "now"},
        {"saves": None},
        {"saves": -1},
        {"state": "winning"},
        {"state": ["running"]},
        {"listens": 1},
        {"listens": None},
        {"answered_s": True},
        {"answered_s": -1.0},
        {"more": 1},
    ],
    ids=str,
)
def test_a_forged_record_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(RecordError):
        decode(forged(**fields))


@given(st.binary(max_size=2 * RECORD_BYTES))
def test_any_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(RecordError):
        decode(content)


@given(st.integers(0, RECORD_BYTES - 1), st.integers(0, 255))
def test_a_record_with_one_byte_changed_is_refused_or_the_same(place: int, byte: int) -> None:
    content = bytearray(encode(RECORD))
    content[place] = byte
    with contextlib.suppress(RecordError):
        assert decode(bytes(content)) == RECORD


def test_half_of_two_records_is_refused() -> None:
    old, new = encode(RECORD), encode(dataclasses.replace(RECORD, step=4711))
    for place in range(40, 200, 10):
        with pytest.raises(RecordError):
            decode(new[:place] + old[place:])
