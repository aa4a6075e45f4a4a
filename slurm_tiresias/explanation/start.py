"""When a job starts, and what would make that sooner, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurm_tiresias.status.published import PublishedStart
from slurm_tiresias.status.when import Variant
from slurm_tiresias.text import count, printable

GAIN = 0.8
"""A variant is named if it starts within this share of the time."""

LEAST_GAIN_S = 60.0
SOON = "less than a minute"
_ROUND_S = ((300, 60), (3600, 300), (10_800, 600), (36_000, 1800), (86_400, 3600))
"""Times below the first number are rounded to multiples of the second: they are guesses."""


def about(seconds: float) -> str:
    """Format a guessed duration: ``25 min``, ``1 h 20 min``, ``3 d``."""
    grain_s = next((grain_s for below_s, grain_s in _ROUND_S if seconds < below_s), 6 * 3600)
    minutes = round(seconds / grain_s) * grain_s // 60
    if minutes < 1:
        return SOON
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def sentences(start: PublishedStart | None, now_s: float, again: str = "") -> Iterator[str]:
    """Yield when a job starts, and on what that is based; ``again`` for one that has run."""
    if start is None:
        return
    if start.why_not:
        yield f"When it starts{again} cannot be said: {printable(start.why_not)}."
        return
    if start.likely_s is None or start.least_s is None:
        beyond = about(max(0.0, start.beyond_s - now_s))
        least = ""
        if start.least_s is not None and start.least_s < start.beyond_s:
            least = f", and not within {_in(start.least_s, now_s)}"
        yield f"It probably does not start{again} within the next {beyond}{least}."
    else:
        most = "later than can be said"
        if start.most_s is not None:
            most = _in(start.most_s, now_s)
        yield (
            f"Starts{again} in {_roughly(start.likely_s - now_s)} "
            f"({_in(start.least_s, now_s)} to {most}, nine times out of ten)."
        )
    coming = "counts no jobs that are still to be submitted"
    if start.arrivals_days:
        days = max(1, round(start.arrivals_days))
        coming = f"expects new jobs as in the last {'day' if days == 1 else count(days, 'day')}"
    yield f"The estimate {coming}, and was computed {about(max(0.0, now_s - start.made_s))} ago."


def sooner(variants: Sequence[Variant], now_s: float) -> Iterator[str]:
    """Yield what would make a job start sooner, and by how much."""
    if not variants or variants[0].start.why_not:
        return
    as_it_is_s = variants[0].start.likely_s
    for variant in variants[1:]:
        likely_s = variant.start.likely_s
        if likely_s is None:
            continue
        left_s = max(0.0, likely_s - now_s)
        if as_it_is_s is not None:
            before_s = max(0.0, as_it_is_s - now_s)
            if left_s > GAIN * before_s or before_s - left_s < LEAST_GAIN_S:
                continue
            instead = f" instead of {about(before_s)}"
        else:
            instead = ""
        yield f"{_change(variant)}: {_roughly(left_s)}{instead}."


def _roughly(seconds: float) -> str:
    said = about(max(0.0, seconds))
    return said if said == SOON else f"about {said}"


def _change(variant: Variant) -> str:
    match variant.what:
        case "gpus":
            return f"With {count(int(variant.value), 'GPU')}"
        case "limit":
            return f"With a time limit of {about(float(variant.value))}"
        case "partition":
            return f"In partition {printable(variant.value)}"
        case _:
            return "If it reported its progress"


def _in(at_s: float, now_s: float) -> str:
    return about(max(0.0, at_s - now_s))
