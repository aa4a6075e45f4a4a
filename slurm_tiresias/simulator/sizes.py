"""The width classes of jobs in reports, by number of GPUs."""

from __future__ import annotations

from collections.abc import Sequence

WIDTHS: Sequence[tuple[int, int | None]] = ((1, 1), (2, 4), (5, 8), (9, None))
"""(From, to) in GPUs, both inclusive; None is unbounded."""


def width_of(gpus: int) -> str:
    """Return the title of the width class of a job with this many GPUs."""
    return next(width_title(low, high) for low, high in WIDTHS if high is None or gpus <= high)


def width_title(low: int, high: int | None) -> str:
    """Return the title of a width class: ``1``, ``2 to 4``, ``9 and more``."""
    if high is None:
        return f"{low} and more"
    return f"{low}" if low == high else f"{low} to {high}"
