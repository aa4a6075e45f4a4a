"""Properties of formatted values."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.cli.config import toml
from slurm_tiresias.cli.screen import shares
from slurm_tiresias.text import as_ascii, cells, duration, listed, moment, pad, printable, shorten

any_text = st.text(st.characters(), max_size=60)
seconds = st.floats(min_value=0, max_value=9999 * 86400 - 1)


@given(any_text)
def test_printable_text_has_no_control_characters(text: str) -> None:
    assert printable(text).isprintable()


@given(any_text)
def test_printable_text_is_left_alone_when_made_printable_again(text: str) -> None:
    once = printable(text)
    assert printable(once) == once


@given(any_text)
def test_every_printable_character_takes_at_least_a_cell(text: str) -> None:
    assert cells(printable(text)) >= len(printable(text))


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_plain_ascii_is_left_alone(text: str) -> None:
    assert printable(text) == text


def test_escape_sequences_and_bidi_overrides_are_replaced() -> None:
    assert printable("\x1b[31mred\x07") == "?[31mred?"
    assert printable("\u202egpj.exe\u2069") == "?gpj.exe?"
    assert printable("a\nb\rc\u2028d\u200be\udcff") == "a?b?c?d?e?"


def test_letters_of_other_scripts_are_kept() -> None:
    assert printable("Zoë 模型 jürgen") == "Zoë 模型 jürgen"


@given(any_text, st.integers(0, 40))
def test_shortened_text_never_exceeds_its_width(text: str, width: int) -> None:
    assert cells(shorten(printable(text), width)) <= width


@given(any_text, st.integers(1, 40))
def test_text_that_was_cut_says_so(text: str, width: int) -> None:
    shown = shorten(printable(text), width)
    assert shown == printable(text) or shown.endswith("…")


@given(any_text, st.integers(0, 40), st.booleans())
def test_padding_fills_the_cell(text: str, width: int, right: bool) -> None:
    shown = shorten(printable(text), width)
    assert cells(pad(shown, width, right)) == width


@given(any_text)
def test_ascii_replacements_keep_the_width(text: str) -> None:
    shown = as_ascii(printable(text))
    assert shown.isascii()
    assert len(shown) == cells(printable(text))


_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def _read_back(written: str) -> int:
    total, digits = 0, ""
    for character in written:
        if character.isdigit():
            digits += character
        else:
            total, digits = total + int(digits) * _SECONDS[character], ""
    return total


@given(seconds)
def test_a_duration_is_never_overstated_and_off_by_less_than_its_smaller_unit(value: float) -> None:
    written = duration(value)
    smaller = _SECONDS[written[-1]]
    assert 0 <= value - _read_back(written) < smaller


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_number_can_be_formatted_as_a_duration_and_a_time(value: float) -> None:
    assert 0 < len(duration(value)) <= 8
    assert moment(value)


def test_durations_are_written_in_two_units() -> None:
    written = [duration(s) for s in (-5, 0, 45, 750, 3600, 12300, 371000, 1e12)]
    assert written == ["0s", "0s", "45s", "12m30s", "1h00m", "3h25m", "4d07h", ">9999d"]


def test_lists_read_as_sentences() -> None:
    assert listed(()) == ""
    assert listed(("a",)) == "a"
    assert listed(("a", "b", "c")) == "a, b and c"
    assert listed(tuple("abcdefghij")) == "a, b, c, d, e, f, g, h and 2 more"


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5), st.integers(5, 200))
def test_the_parts_of_a_bar_fill_it_and_none_vanishes(parts: list[int], width: int) -> None:
    cells_of_parts = shares(parts, width)
    assert sum(cells_of_parts) == (width if any(parts) else 0)
    assert all(bool(c) == bool(p) for c, p in zip(cells_of_parts, parts, strict=True))


@given(st.one_of(st.text(), st.floats(-1e9, 1e9)))
def test_settings_survive_being_written_as_toml(value: str | float) -> None:
    written = toml((value, value))
    assert written.isprintable()
    assert tomllib.loads(f"value = {written}")["value"] == [value, value]
