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


@given(
    steps=st.tuples(STEPS, STEPS, STEPS).map(sorted),
    times=st.tuples(TIMES, TIMES),
    others=st.tuples(*[st.none() | TIMES] * 3),
    saves=st.integers(0, 10**9),
    saved=st.none() | STEPS,
    resumed=st.none() | STEPS,
    state=st.sampled_from(STATES),
    listens=st.booleans(),
    answered=st.none() | TIMES,
    save_every=st.none() | TIMES,
)
def test_a_record_is_read_as_it_was_written(
    steps: list[int],
    times: tuple[float, float],
    others: tuple[float | None, float | None, float | None],
    saves: int,
    saved: int | None,
    resumed: int | None,
    state: str,
    listens: bool,
    answered: float | None,
    save_every: float | None,
) -> None:
    first, step, total = steps
    record = Record(
        step=step,
        total=total or None,
        at_s=times[0],
        first_step=first,
        first_s=times[1],
        saved_step=saved,
        saved_s=None if saved is None else times[0],
        resumed_step=resumed,
        state=state,
        new_step_s=others[0],
        asked_s=others[1],
        saving_s=others[2],
        saves=saves,
        listens=listens,
        answered_s=answered,
        save_every_s=save_every,
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
