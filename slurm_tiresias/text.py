"""Format values for people: durations, and untrusted text from users."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import TypeVar

from rich.cells import cell_len, set_cell_size

from slurm_tiresias.gpu_hours import gpu_hours

NOTHING = "-"
UNPRINTABLE = "?"
ELLIPSIS = "…"
LONGEST_DAYS = 9999

Value = TypeVar("Value")

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_ASCII_TWINS = str.maketrans({ELLIPSIS: "~", "█": "#", "▓": "=", "▒": "-", "░": "."})


def printable(text: str) -> str:
    """Return the text with every character replaced that a terminal would obey or hide.

    Job and user names are untrusted. Control characters, escape sequences, bidirectional overrides
    and zero-width characters become ``?``, so each character takes up a cell.
    """
    if text.isascii() and text.isprintable():
        return text
    composed = unicodedata.normalize("NFC", text)
    return "".join(c if c.isprintable() and cell_len(c) else UNPRINTABLE for c in composed)


def as_ascii(text: str) -> str:
    """Return the text for an ASCII-only terminal, with the same width."""
    if text.isascii():
        return text
    twins = text.translate(_ASCII_TWINS)
    return "".join(c if c.isascii() else UNPRINTABLE * cell_len(c) for c in twins)


def cells(text: str) -> int:
    """Return the width of a printable text in terminal cells."""
    return len(text) if text.isascii() else cell_len(text)


def shorten(text: str, width: int) -> str:
    """Cut the text to at most ``width`` cells; an ellipsis marks the cut."""
    if cells(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + ELLIPSIS if width > 0 else ""


def pad(text: str, width: int, right: bool = False) -> str:
    """Pad the text with spaces to ``width`` cells; ``right`` aligns it to the right."""
    spaces = " " * (width - cells(text))
    return spaces + text if right else text + spaces


def duration(seconds: float) -> str:
    """Format a duration in its two largest units, rounded down: ``45s``, ``12m30s``, ``4d07h``."""
    if not math.isfinite(seconds):
        return UNPRINTABLE
    whole = max(0, int(seconds))
    if whole >= LONGEST_DAYS * 86400:
        return f">{LONGEST_DAYS}d"
    for (unit, size), (smaller, fraction) in pairwise(_UNITS):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // fraction:02d}{smaller}"
    return f"{whole}s"


def filled(text: str, moment_text: Callable[[float], str] | None = None) -> str:
    """Return a text of the controller with its numbers as people read them, made printable:
    ``{1.5 moment}`` is a time, ``{1.5 duration}`` are seconds, ``{1.5 gpu_hours}`` GPU-seconds."""
    written = {"moment": moment_text or moment, "duration": duration, "gpu_hours": gpu_hours}
    return _NUMBER.sub(lambda found: written[found[2]](float(found[1])), printable(text))


def at(at_s: float) -> str:
    """Mark a time in a sentence, to be written as ``with_times`` or a browser does.

    The marks are characters that ``printable`` leaves in no text of a user.
    """
    return f"\ue000{at_s!r}\ue001"


def with_times(sentence: str) -> str:
    """Write the marked times of a sentence in this machine's time zone."""
    return _MARKED.sub(lambda found: moment(float(found[1])), sentence)


def times(number: int) -> str:
    """Return ``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def or_dash(value: Value | None, written: Callable[[Value], str]) -> str:
    """Format the value, or return ``-`` if it is None."""
    return NOTHING if value is None else written(value)


def count(number: int, noun: str) -> str:
    """Return ``1 job``, ``2 jobs``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def moment(at_s: float) -> str:
    """Format a recent time in this machine's time zone."""
    return _formatted(at_s, "%b %d %H:%M:%S")


def date_and_time(at_s: float) -> str:
    """Format a time that may be years ago."""
    return _formatted(at_s, "%Y-%m-%d %H:%M")


def _formatted(at_s: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(at_s).strftime(form)
    except (ValueError, OverflowError, OSError):
        return UNPRINTABLE


def listed(names: tuple[str, ...], at_most: int = 8) -> str:
    """Return ``1, 2 and 3``; a long list ends with the number of those left out."""
    if len(names) > at_most:
        return f"{', '.join(names[:at_most])} and {len(names) - at_most} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


_NUMBER = re.compile(r"\{([-+.e0-9]+) (moment|duration|gpu_hours)\}")
_MARKED = re.compile("\ue000([^\ue001]*)\ue001")
