"""How values are written for people: durations, and texts that users made up."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import TypeVar

from rich.cells import cell_len, set_cell_size

NOTHING = "-"
UNPRINTABLE = "?"
ELLIPSIS = "…"
LONGEST_DAYS = 9999

Value = TypeVar("Value")

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_ASCII_TWINS = str.maketrans({ELLIPSIS: "~", "█": "#", "▓": "=", "▒": "-", "░": "."})


def printable(text: str) -> str:
    """The text with everything replaced that a terminal would obey or hide instead of print.

    Job and user names are hostile. Control characters, escape sequences, bidirectional
    overrides and characters of no width become ``?``, so each character takes a cell of its own.
    """
    if text.isascii() and text.isprintable():
        return text
    composed = unicodedata.normalize("NFC", text)
    return "".join(c if c.isprintable() and cell_len(c) else UNPRINTABLE for c in composed)


def as_ascii(text: str) -> str:
    """The text for a terminal that knows ASCII only; it takes as many cells as before."""
    if text.isascii():
        return text
    twins = text.translate(_ASCII_TWINS)
    return "".join(c if c.isascii() else UNPRINTABLE * cell_len(c) for c in twins)


def cells(text: str) -> int:
    """How many cells of a terminal a printable text takes."""
    return len(text) if text.isascii() else cell_len(text)


def shorten(text: str, width: int) -> str:
    """At most ``width`` cells of the text; an ellipsis says that something was cut."""
    if cells(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + ELLIPSIS if width > 0 else ""


def pad(text: str, width: int, right: bool = False) -> str:
    """The text with spaces up to ``width`` cells; ``right`` aligns it right."""
    spaces = " " * (width - cells(text))
    return spaces + text if right else text + spaces


def duration(seconds: float) -> str:
    """A stretch of time in its two largest units, rounded down: ``45s``, ``12m30s``, ``4d07h``."""
    if not math.isfinite(seconds):
        return UNPRINTABLE
    whole = max(0, int(seconds))
    if whole >= LONGEST_DAYS * 86400:
        return f">{LONGEST_DAYS}d"
    for (unit, size), (smaller, fraction) in pairwise(_UNITS):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // fraction:02d}{smaller}"
    return f"{whole}s"


def or_dash(value: Value | None, written: Callable[[Value], str]) -> str:
    """The value as it is written; ``-`` where there is none."""
    return NOTHING if value is None else written(value)


def count(number: int, noun: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def moment(at_s: float) -> str:
    """A point in time by this machine's clock and time zone."""
    return _formatted(at_s, "%b %d %H:%M:%S")


def date_and_time(at_s: float) -> str:
    """The same for what may be years ago."""
    return _formatted(at_s, "%Y-%m-%d %H:%M")


def _formatted(at_s: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(at_s).strftime(form)
    except (ValueError, OverflowError, OSError):
        return UNPRINTABLE


def listed(names: tuple[str, ...], at_most: int = 8) -> str:
    """``1, 2 and 3``; a long list ends in how many more there are."""
    if len(names) > at_most:
        return f"{', '.join(names[:at_most])} and {len(names) - at_most} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
