"""Times on the command line, in the formats that the table of ``sacct -S`` has."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import datetime, timedelta

import click

from slurm_tiresias.errors import UsageError
from slurm_tiresias.text import printable

LONGEST_SHOWN = 40
"""The longest text accepted as a time, in characters."""

UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 604800}
WITH_YEAR = ("%Y-%m-%d", "%m/%d/%y", "%m/%d/%Y", "%m.%d.%y", "%m%d%y")
THIS_YEAR = ("%m/%d", "%m.%d", "%m%d")
CLOCK = ("%H:%M", "%H:%M:%S", "%I:%M%p", "%I:%M:%S%p")
NAMED_HOURS = {"MIDNIGHT": "00:00", "NOON": "12:00"}

_NOW = re.compile(r"NOW(?:([+-])(\d{1,9})([A-Z]*))?", re.ASCII)
_DAY_AND_CLOCK = re.compile(r"(.*?)(?:(?:^|[T -])(MIDNIGHT|NOON|\d\d?:.*))?", re.ASCII)


def slurm_time(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    """Parse a time, as an option's callback, into seconds since the epoch; local times are in this
    machine's time zone. Raises ``UsageError``."""
    if value is None:
        return None
    text, now = value.strip().upper(), datetime.fromtimestamp(time.time())
    try:
        if text.isascii() and len(text) <= LONGEST_SHOWN:
            return (_relative(text, now) or _absolute(text, now)).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    raise UsageError(
        f"{parameter.opts[-1]} {printable(value[:LONGEST_SHOWN])!r} is not a time",
        "Write a date, like 2026-01-31 or 2026-01-31T12:00, or a span, like now-7days",
    )


def _relative(text: str, now: datetime) -> datetime | None:
    """Parse ``now`` and ``now-7days``; as in Slurm, a prefix of the unit is enough."""
    found = _NOW.fullmatch(text)
    if found is None:
        return None
    sign, number, word = found.groups()
    if sign is None:
        return now
    unit = next((s for name, s in UNITS.items() if name.startswith(word.lower())), None)
    if unit is None:
        return None
    span = timedelta(seconds=int(number) * unit)
    return now + span if sign == "+" else now - span


def _absolute(text: str, now: datetime) -> datetime:
    """Parse a day, a time of day, or both, separated by a T, a blank or a dash."""
    found = _DAY_AND_CLOCK.fullmatch(re.sub(r"\s+([AP]M)$", r"\1", text))
    day, clock = found.groups() if found else (text, None)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    of_day = timedelta()
    if clock is not None:
        of_day = _parsed(NAMED_HOURS.get(clock, clock), CLOCK) - datetime(1900, 1, 1)
    if clock is not None and not day:
        # A time of day later than now means yesterday, because a report is about the past.
        today = midnight + of_day
        return today if today <= now else today - timedelta(days=1)
    if day == "TODAY":
        return midnight + of_day
    if day.isdigit() and len(day) not in (4, 6):
        raise ValueError("strptime would guess where the month ends")
    try:
        return _parsed(day, WITH_YEAR) + of_day
    except ValueError:
        return _parsed(f"{now.year} {day}", [f"%Y {form}" for form in THIS_YEAR]) + of_day


def _parsed(text: str, forms: Iterable[str]) -> datetime:
    """Parse the text by the first of these formats that fits; raises ``ValueError``."""
    for form in forms:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    raise ValueError(text)
