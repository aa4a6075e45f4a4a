"""Progress words in jobs' comments, written by the library and by forgers."""

from __future__ import annotations

import contextlib
import dataclasses
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.job.comment import FIELDS, MARK, MOST_CHARACTERS, decode, encode, join, split
from slurm_tiresias.job.record import Record, RecordError
from slurm_tiresias.job_hints import hints_of
from tests.job.test_record import records

RECORD = Record(
    step=37,
    total=90,
    at_s=1795464000.0,
    first_step=1,
    first_s=1795460000.0,
    saved_step=36,
    saved_s=1795463900.0,
)
WORD = encode(RECORD)


def sealed(body: str) -> str:
    """A word with a correct checksum."""
    return f"{body};{zlib.crc32(body.encode(errors='replace')):08x}"


@given(records())
def test_a_word_is_read_as_it_was_written_but_for_rounding(record: Record) -> None:
    word = encode(record)
    read = decode(word)
    assert word.isascii() and word.isprintable() and not set(word) & set(" '\"\\|")
    assert len(word) <= MOST_CHARACTERS
    assert read.at_s == pytest.approx(record.at_s, abs=0.5)
    assert read.first_s == pytest.approx(record.first_s, abs=0.5)
    for name in ("new_step_s", "asked_s", "saving_s"):
        assert getattr(read, name) == (
            None if getattr(record, name) is None else round(getattr(record, name))
        )
    rounded = {name: getattr(read, name) for name in FIELDS if name.endswith("_s")}
    assert read == dataclasses.replace(record, **rounded)
    assert encode(read) == word


def test_the_longest_usual_word_is_as_long_as_documented() -> None:
    steps = 10**9 - 1
    record = Record(steps, steps, 2e9, steps, 2e9, steps, 2e9, steps)
    record = dataclasses.replace(record, new_step_s=2e9, asked_s=2e9, saving_s=2e9, saves=999)
    assert len(encode(record)) <= 166


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (":37;90", ":-1;90"),
        (":37;90", ":-;90"),
        (":37;90", ":037;90"),
        (":37;90", ":٣٧;90"),
        (":37;90", ":37;0"),
        (":37;90", ":37;36"),
        (":37;90", f":37;{10**15 + 1}"),
        (":37;90", ":3_7;90"),
        (":37;90", ":37;90;1"),
        (":37;90", ":37;\ud800"),
        (";1795464000", ";-"),
        (";1795464000", ";1795464000.0"),
        (";1795464000", f";{10**11 + 1}"),
        (";1;", ";38;"),
        (";1;", ";-;"),
        ("running", "winning"),
        (";-;", ";;"),
        (";-;", "; ;"),
        (MARK, "tiresias:"),
        (MARK, MARK.upper()),
    ],
)
def test_a_forged_word_is_refused(old: str, new: str) -> None:
    body = WORD.rpartition(";")[0]
    assert decode(sealed(body)) == RECORD and old in body
    with pytest.raises(RecordError):
        decode(sealed(body.replace(old, new, 1)))


@given(st.text(max_size=300) | st.text(max_size=150).map(lambda text: MARK + text))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        decode(text)


@given(st.integers(0, len(WORD) - 1), st.characters())
def test_a_word_with_one_character_changed_is_refused_or_the_same(place: int, new: str) -> None:
    with contextlib.suppress(RecordError):
        assert decode(WORD[:place] + new + WORD[place + 1 :]) == RECORD


@pytest.mark.parametrize("more", ["\n", " ", "x"])
def test_a_word_with_trailing_text_is_refused(more: str) -> None:
    with pytest.raises(RecordError):
        decode(WORD + more)


@given(st.text().filter(lambda words: MARK not in words))
def test_the_users_words_survive_unchanged(words: str) -> None:
    assert split(words) == (words, "")
    assert split(join(words, WORD)) == (words, WORD)


@pytest.mark.parametrize(
    "comment",
    [
        f"{WORD} mine",
        f"{WORD}\n",
        f"mine\t{WORD}",
        f"mine {WORD}\tmore",
        f"mine x{WORD}",
        f"mine {WORD}é",
    ],
)
def test_a_progress_word_that_is_not_last_belongs_to_the_user(comment: str) -> None:
    assert split(comment) == (comment, "")


def test_a_hint_in_the_same_comment_is_still_read() -> None:
    comment = join("mine tiresias:model=vgg16", WORD)
    assert hints_of("", comment).model == "vgg16"
    assert not hints_of("", comment).problem
    assert hints_of("", WORD) == hints_of("", "")
