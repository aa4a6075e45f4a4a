"""JSON is the same with orjson and without it, which Debian 12 does not have."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm_tiresias import json_codec


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    at_s: float | None


@dataclass(frozen=True, slots=True)
class Whole:
    parts: tuple[Part, ...]
    counts: dict[str, int]
    done: bool


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PARTS = st.builds(Part, TEXT, st.none() | st.floats())
WHOLES = st.builds(
    Whole,
    st.lists(PARTS).map(tuple),
    st.dictionaries(TEXT, st.integers(-(2**53), 2**53)),
    st.booleans(),
)
BYTES = st.binary() | TEXT.map(str.encode) | WHOLES.map(orjson.dumps)


@given(WHOLES)
def test_json_written_without_orjson_reads_the_same(whole: Whole) -> None:
    plainly = json_codec._dumps_plainly(whole)
    assert orjson.loads(plainly) == orjson.loads(orjson.dumps(whole))


@given(WHOLES)
def test_json_written_by_orjson_is_read_without_it(whole: Whole) -> None:
    text = orjson.dumps(whole)
    assert json_codec._loads_plainly(text) == orjson.loads(text)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff", b"[NaN]", b"[-Infinity]", b"\xef\xbb\xbf{}", b"[" * 200_000]
)
def test_invalid_json_is_refused_with_and_without_orjson(text: bytes) -> None:
    for loads in (json_codec._loads_plainly, orjson.loads):
        with pytest.raises(ValueError):
            loads(text)


@given(BYTES)
@example(b"20000000000000000001")
@example(b"18446744073709551615")
@example(b"-9223372036854775808")
@example(b"-9223372036854775809")
def test_any_text_is_either_refused_as_json_or_parsed_into_a_tree(text: bytes) -> None:
    try:
        expected = orjson.loads(text)
    except ValueError:
        return
    assert json_codec._loads_plainly(text) == expected


def test_the_controller_can_be_imported_without_orjson() -> None:
    program = "import sys; sys.modules['orjson'] = None; import slurm_tiresias.controller.run"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
