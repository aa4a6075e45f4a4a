"""What a check found, and the change that would solve the problem."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from slurm_tiresias.doctor.seen import Seen


class Severity(enum.Enum):
    """How much a finding matters; the value is the word shown to people and in JSON."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing, but not a problem: some sites prefer it."""
    WARNING = "warning"
    """The controller works, but worse than it could, or jobs are harmed."""
    ERROR = "error"
    """The controller does not start, or must not be allowed to act."""


@dataclass(frozen=True, slots=True)
class Mend:
    """A change to a file: set ``key`` to ``value``, or add and drop words of its list.

    Changes to the same list are merged into one line (``diagnosis.lines``).
    """

    file: str
    key: str
    value: str = ""
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    """Words to remove from the list, each by its part before ``=``."""
    section: str = ""
    """The ``[section]`` of the file that the key belongs to."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's result. ``do`` holds commands to run where editing a file would not help."""

    severity: Severity
    seen: str
    mends: tuple[Mend, ...] = ()
    do: tuple[str, ...] = ()
    name: str = ""
    """The check's name, and why it matters: filled in by ``diagnose``."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One check. ``why`` says in a sentence why it matters. ``needs`` names the fields of ``Seen``
    without which it cannot run. ``judge`` returns None if the check does not apply.
    """

    name: str
    why: str
    judge: Callable[[Seen], Finding | None]
    needs: tuple[str, ...]


def check(*needs: str) -> Callable[[Callable[[Seen], Finding | None]], Check]:
    """Make a function a check: its name is the check's, and its docstring says why it matters."""

    def made(judge: Callable[[Seen], Finding | None]) -> Check:
        name = judge.__name__.strip("_").replace("_", "-")
        return Check(name, " ".join((judge.__doc__ or "").split()), judge, needs)

    return made


def ok(seen: str) -> Finding:
    return Finding(Severity.OK, seen)


def note(seen: str, *mends: Mend, do: tuple[str, ...] = ()) -> Finding:
    return Finding(Severity.NOTE, seen, mends, do)


def warning(seen: str, *mends: Mend, do: tuple[str, ...] = ()) -> Finding:
    return Finding(Severity.WARNING, seen, mends, do)


def error(seen: str, *mends: Mend, do: tuple[str, ...] = ()) -> Finding:
    return Finding(Severity.ERROR, seen, mends, do)
