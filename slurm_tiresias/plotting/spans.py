"""Durations for people, in their largest unit, for tables and the ticks of axes."""

from __future__ import annotations

from collections.abc import Sequence

UNITS: Sequence[tuple[str, float]] = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))

FEW_S = (1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, *(86_400.0 * 10**n for n in range(5)))
MANY_S = (*FEW_S, 3.0, 30.0, 180.0, 1800.0, 10_800.0, *(259_200.0 * 10**n for n in range(4)))
"""Possible ticks of a logarithmic time axis: ones and tens only, or threes as well."""
MOST_TICKS = 8


def ticks_s(low_s: float, high_s: float) -> list[float]:
    """Return the ticks of a logarithmic axis, as many as fit."""
    many = sorted(at_s for at_s in MANY_S if low_s <= at_s <= high_s)
    return many if len(many) <= MOST_TICKS else [at_s for at_s in many if at_s in FEW_S]


def span(seconds: float) -> str:
    """Format a duration with three digits in its largest unit: ``45.0 s``, ``12.5 min``."""
    for unit, size in UNITS:
        if seconds >= size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds)} s" if seconds else "0 s"


def tick(seconds: float) -> str:
    """Format a round duration: ``10 min``."""
    unit, size = next(each for each in UNITS if seconds >= each[1])
    return f"{seconds / size:,.0f} {unit}"


def unit_for(seconds: float) -> tuple[str, float]:
    """Return the unit (and its seconds) for a time axis of this length."""
    named = ("days", "hours", "minutes", "seconds")
    sizes = (size for _, size in UNITS)
    return next(
        (each for each in zip(named, sizes, strict=True) if seconds >= 3 * each[1]),
        ("seconds", 1.0),
    )


def _three_digits(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{decimals}f}"
