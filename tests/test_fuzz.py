"""All parsers of text from Slurm and users, with nearly valid input.

Each reader begins with valid inputs, parts of which are removed, repeated or replaced. Inputs that
once broke a reader are kept in its folder of ``corpus/``, as are inputs found by ``scripts/dev
fuzz`` that reach rare code.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.testbed import user_text
from scripts.testbed.readers import READERS, kept, read_or_refused

ODD = rb"""= | [ { " (null) -1 N/A NaN null 1e999 [1-99999999] 999999999999999999999999999999"""
pieces = st.binary(max_size=12) | st.sampled_from(
    (*ODD.split(), b" JobId=1 ", b"\n", b"\x1e", b"\x00", b"\xff", b"\xc2\xb2", b"\xed\xa0\x80")
)
"""Replacements for a removed part."""

WORDS = (
    *("gres", "gpu", "gres/gpu", "a100", "mem", "n", "tiresias:", "model=", "JobId=7 JobName=x\n"),
    *("0", "1", "00", "9" * 19, "k", "K", "M", "g", "t", "P", "?", "+", "-", ".", "#", " ", "\n"),
    *(":", "=", ",", "/", "|", "&", "*", "(", ")", "[", "]", "(null)", "N/A", "INVALID", "\x1e"),
)
users_texts = st.lists(st.sampled_from(WORDS), max_size=8).map("".join) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60
)

changes = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from([0, 0, 1, 3, 40]), pieces), min_size=1, max_size=6
)
"""The position as a fraction of the text, the number of bytes to remove, and the replacement."""


@pytest.mark.parametrize("name", READERS)
def test_readers_accept_valid_inputs_and_survive_past_crashes(name: str) -> None:
    contents = kept(name)
    assert contents
    READERS[name].read(contents[0])
    for content in contents:
        read_or_refused(name, content)


@pytest.mark.parametrize("name", READERS)
def test_mutated_inputs_are_read_or_refused_and_never_crash_a_reader(name: str) -> None:
    contents = kept(name)

    @settings(max_examples=int(os.environ.get("TIRESIAS_FUZZ_EXAMPLES", "40")))
    @given(st.sampled_from(contents), changes)
    def run(content: bytes, made: list[tuple[float, int, bytes]]) -> None:
        for where, taken, put in made:
            at = int(where * len(content))
            content = content[:at] + put + content[at + taken :]
        read_or_refused(name, content)

    run()


@settings(max_examples=int(os.environ.get("TIRESIAS_FUZZ_EXAMPLES", "100")))
@given(
    st.sampled_from(user_text.WRITERS),
    st.dictionaries(st.sampled_from(tuple(user_text.FIELDS)), users_texts, min_size=1, max_size=3),
)
def test_a_users_text_changes_no_reading_of_other_jobs(key: str, texts: dict[str, str]) -> None:
    parts = (f"{field}={text}" for field, text in {"job": key, **texts}.items())
    user_text.read(user_text.END.join(parts).encode())
