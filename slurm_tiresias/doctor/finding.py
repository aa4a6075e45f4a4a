"""What a check finds, and what would mend it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from slurm_tiresias.doctor.seen import Seen


class Severity(enum.Enum):
    """How much a finding matters; the value is the word that people and programs see."""

    OK = "ok"
    NOTE = "note"
    """May stay as it is; some sites prefer it otherwise."""
    WARNING = "warning"
    """The controller works, and worse than it could, or jobs lose by it."""
    ERROR = "error"
    """The controller does not start, or must not be let to act."""


@dataclass(frozen=True, slots=True)
class Mend:
    """What to write: ``key`` in ``file`` gets ``value``, or loses and gains words of its list.

    Several may change one list; together they make one line (``diagnosis.lines``).
    """

    file: str
    key: str
    value: str = ""
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    """By the word before ``=``."""
    section: str = ""
    """The ``[section]`` of the file that it belongs below."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A check's answer. ``do`` are commands, where no line of a file would mend it."""

    severity: Severity
    seen: str
    mends: tuple[Mend, ...] = ()
    do: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at. ``why`` is why it matters, in a sentence. ``needs`` names the fields
    of ``Seen`` without which nothing can be said. ``judge`` returns None where it does not apply.
    """

    name: str
    why: str
    judge: Callable[[Seen], Verdict | None]
    needs: tuple[str, ...] = ("settings",)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found."""

    name: str
    severity: Severity
    seen: str
    why: str
    mends: tuple[Mend, ...] = ()
    do: tuple[str, ...] = ()


def ok(seen: str) -> Verdict:
    return Verdict(Severity.OK, seen)


def note(seen: str, *mends: Mend, do: tuple[str, ...] = ()) -> Verdict:
    return Verdict(Severity.NOTE, seen, mends, do)


def warning(seen: str, *mends: Mend, do: tuple[str, ...] = ()) -> Verdict:
    return Verdict(Severity.WARNING, seen, mends, do)


def error(seen: str, *mends: Mend, do: tuple[str, ...] = ()) -> Verdict:
    return Verdict(Severity.ERROR, seen, mends, do)
