"""A job's progress as the last word of its comment, for nodes without the SPANK plugin.

    my words tiresias-progress:37;90;1795464000;36;1795463900;-;running;1;1795460000;\
    1795460100;-;1795463880;4;-;1;1a2b3c4d

The user's words come first and stay as they are; the progress word follows them after one blank. It
has ``FIELDS`` in order, ``-`` for None and times in whole seconds, then the CRC-32 of all
characters before the last semicolon.

With steps below 10**9 the word has at most 179 characters, all of them ASCII. Slurm keeps a comment
when it requeues a job: a word whose ``at_s`` is before the start of the run is of an earlier run.

Users can write anything into a comment, so a reader trusts nothing that it cannot check.
"""

from __future__ import annotations

import zlib

from slurm_tiresias.job.record import Record, RecordError, checked

MARK = "tiresias-progress:"
"""The beginning of the progress word; a hint begins with ``tiresias:`` and is left alone."""

MOST_CHARACTERS = 256
"""No valid word is longer."""

FIELDS = (
    *("step", "total", "at_s", "saved_step", "saved_s", "resumed_step", "state"),
    *("first_step", "first_s", "new_step_s", "asked_s", "saving_s", "saves"),
    *("busy_until_s", "dumps"),
)


def encode(record: Record) -> str:
    """The word for a record, with its times rounded."""
    word = MARK + ";".join(_text(getattr(record, name)) for name in FIELDS)
    return f"{word};{_checksum(word)}"


def decode(word: str) -> Record:
    """The record in a word; ``RecordError`` unless it is exactly what ``encode`` produces."""
    body, _, checksum = word.rpartition(";")
    texts = body[len(MARK) :].split(";")
    if len(word) > MOST_CHARACTERS or not word.startswith(MARK) or len(texts) != len(FIELDS):
        raise RecordError("not a progress word")
    if checksum != _checksum(body):
        raise RecordError("the checksum is wrong")
    try:
        pairs = zip(FIELDS, texts)  # noqa: B905 - Python 3.9 knows no strict
        record = checked({name: _value(name, text) for name, text in pairs})
    except ValueError as error:
        raise RecordError(str(error)) from error
    if encode(record) != word:
        raise RecordError("numbers in a different format")
    return record


def split(comment: str) -> tuple[str, str]:
    """The user's words in a job's comment, and the progress word, "" if there is none.

    The progress word may be replaced; ``decode`` says whether it is also valid.
    """
    words, _, last = comment.rpartition(" ")
    if last.startswith(MARK) and last.isascii() and last.isprintable():
        return words, last
    return comment, ""


def join(words: str, word: str) -> str:
    """The comment composed of the user's words and the progress word."""
    return f"{words} {word}" if words else word


def _text(value: float | str | None) -> str:
    if isinstance(value, str):
        return value
    return "-" if value is None else f"{value:.0f}"


def _value(name: str, text: str) -> float | str | None:
    if name == "state":
        return text
    if text == "-":
        return None
    if name == "dumps":
        return text == "1"
    return float(text) if name.endswith("_s") else int(text)


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode(errors='replace')):08x}"
