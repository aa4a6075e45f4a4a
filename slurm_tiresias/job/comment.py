"""A job's progress as the last word of its comment, for nodes without the SPANK plugin.

    my words tiresias-progress:37/90@1795464000;0.125;36@1795463900;-;running;1@1795460000;\
    1795460100;-;1795463880;4;1a2b3c4d

The user's words come first and stay as they are; the progress word follows them after one blank.
Its parts:

=================  ===========================================================================
``37/90``          ``step`` / ``total``
``@1795464000``    ``at_s``, like all times in whole seconds since 1970
``0.125``          ``steps_per_s``, with four significant digits
``36@1795463900``  ``saved_step`` @ ``saved_s``
``-``              ``resumed_step``; here, as elsewhere, ``-`` stands for None
``running``        ``state``
``1@1795460000``   ``first_step`` @ ``first_s``
``1795460100``     ``new_step_s``
``-``              ``asked_s``
``1795463880``     ``saving_s``
``4``              ``saves``
``1a2b3c4d``       CRC-32 of all characters before the last semicolon
=================  ===========================================================================

With steps below 10**9 the word has at most 166 characters, all of them ASCII. Slurm keeps a comment
when it requeues a job: a word whose ``at_s`` is before the start of the run is of an earlier run.

Users can write anything into a comment, so a reader trusts nothing that it cannot check.
"""

from __future__ import annotations

import re
import zlib

from slurm_tiresias.job.record import STATES, Record, RecordError, checked

MARK = "tiresias-progress:"
"""The beginning of the progress word; a hint begins with ``tiresias:`` and is left alone."""

MOST_CHARACTERS = 256
"""No valid word is longer."""

_STEP = "[0-9]{1,16}"
_TIME = "[0-9]{1,12}"
_WORD = re.compile(
    rf"{MARK}(?P<step>{_STEP})/(?P<total>{_STEP}|-)@(?P<at_s>{_TIME})"
    r";(?P<steps_per_s>[0-9.e+-]{1,16})"
    rf";(?P<saved_step>{_STEP}|-)@(?P<saved_s>{_TIME}|-)"
    rf";(?P<resumed_step>{_STEP}|-)"
    rf";(?P<state>{'|'.join(STATES)})"
    rf";(?P<first_step>{_STEP})@(?P<first_s>{_TIME})"
    rf";(?P<new_step_s>{_TIME}|-);(?P<asked_s>{_TIME}|-);(?P<saving_s>{_TIME}|-)"
    r";(?P<saves>[0-9]{1,10})"
    r";[0-9a-f]{8}",
    re.ASCII,
)
_FLOATS = ("at_s", "saved_s", "first_s", "steps_per_s", "new_step_s", "asked_s", "saving_s")


def encode(record: Record) -> str:
    """The word for a record, with its times and its rate rounded."""
    word = (
        f"{MARK}{record.step}/{_text(record.total)}@{record.at_s:.0f}"
        f";{record.steps_per_s:.4g}"
        f";{_text(record.saved_step)}@{_text(record.saved_s)}"
        f";{_text(record.resumed_step)}"
        f";{record.state}"
        f";{record.first_step}@{record.first_s:.0f}"
        f";{_text(record.new_step_s)};{_text(record.asked_s)};{_text(record.saving_s)}"
        f";{record.saves}"
    )
    return f"{word};{_checksum(word)}"


def decode(word: str) -> Record:
    """The record in a word; ``RecordError`` unless it is exactly what ``encode`` produces."""
    found = _WORD.fullmatch(word) if len(word) <= MOST_CHARACTERS else None
    if found is None:
        raise RecordError("not a word of progress")
    body, _, checksum = word.rpartition(";")
    if checksum != _checksum(body):
        raise RecordError("the checksum is wrong")
    try:
        record = checked({name: _value(name, text) for name, text in found.groupdict().items()})
    except ValueError as error:
        raise RecordError(str(error)) from error
    if encode(record) != word:
        raise RecordError("numbers in another form than ours")
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


def _text(number: float | None) -> str:
    return "-" if number is None else f"{number:.0f}"


def _value(name: str, text: str) -> int | float | str | None:
    if name == "state":
        return text
    if text == "-":
        return None
    return float(text) if name in _FLOATS else int(text)


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
