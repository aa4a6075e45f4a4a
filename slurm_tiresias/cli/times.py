"""Times on the command line, in all formats that sacct accepts for -S and -E."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

import click

from slurm_tiresias.cli.text import printable
from slurm_tiresias.errors import UsageError

LONGEST_SHOWN = 40
"""The longest text accepted as a time, in characters."""

UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 604800}
HOURS = {"midnight": 0, "noon": 12, "elevenses": 11, "fika": 15, "teatime": 16}
DAYS = {"today": 0, "tomorrow": 1}

_NOW = re.compile(r"now(?:([+-])(\d{1,9})([a-z]*))?", re.ASCII | re.IGNORECASE)
_OF_DAY = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?\s*([ap]m)?", re.ASCII | re.IGNORECASE)
_DATES = (
    re.compile(r"(?P<year>\d{4})-(?P<month>\d\d?)-(?P<day>\d\d?)", re.ASCII),
    re.compile(r"(?P<month>\d\d?)/(?P<day>\d\d?)(?:/(?P<year>\d\d(?:\d\d)?))?", re.ASCII),
    re.compile(r"(?P<month>\d\d)\.(?P<day>\d\d)(?:\.(?P<year>\d\d(?:\d\d)?))?", re.ASCII),
    re.compile(r"(?P<month>\d\d)(?P<day>\d\d)(?P<year>\d\d)?", re.ASCII),
)


def slurm_time(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    """Parse a time, as an option's callback, into seconds since the epoch; local times are in this
    machine's time zone. Raises ``UsageError``."""
    if value is None:
        return None
    text, now = value.strip(), datetime.fromtimestamp(time.time())
    try:
        moment = _relative(text, now) or _absolute(text, now)
        if moment is not None:
            return moment.timestamp()
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


def _absolute(text: str, now: datetime) -> datetime | None:
    """Parse a day, a time of day, or both, separated by a T, a blank or a dash."""
    if (day := _day(text, now)) is not None:
        return day
    if (of_day := _of_day(text)) is not None:
        # A time of day later than now means yesterday, because a report is about the past.
        today = _midnight(now) + of_day
        return today if today <= now else today - timedelta(days=1)
    for between in re.finditer(r"[Tt\s-]", text):
        of_day = _of_day(text[between.end() :])
        if of_day is not None and (day := _day(text[: between.start()], now)) is not None:
            return day + of_day
    return None


def _day(text: str, now: datetime) -> datetime | None:
    if text.lower() in DAYS:
        return _midnight(now) + timedelta(days=DAYS[text.lower()])
    found = next(filter(None, (pattern.fullmatch(text) for pattern in _DATES)), None)
    if found is None:
        return None
    year = int(found["year"] or now.year)
    century = now.year // 100 * 100 if year < 100 else 0
    return _midnight(now).replace(year + century, int(found["month"]), int(found["day"]))


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _of_day(text: str) -> timedelta | None:
    if text.lower() in HOURS:
        return timedelta(hours=HOURS[text.lower()])
    found = _OF_DAY.fullmatch(text)
    if found is None:
        return None
    hours, minutes, seconds = (int(found[number] or 0) for number in (1, 2, 3))
    half = (found[4] or "").lower()
    if hours > (12 if half else 23) or minutes > 59 or seconds > 59 or (half and not hours):
        return None
    return timedelta(
        hours=hours % 12 + 12 * (half == "pm") if half else hours, minutes=minutes, seconds=seconds
    )
