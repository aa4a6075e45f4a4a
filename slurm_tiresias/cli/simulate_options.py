"""Parse the options of ``simulate`` into policies, tiers, and a source of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

import click

from slurm_tiresias.cli.simulation_options import Source
from slurm_tiresias.errors import UsageError
from slurm_tiresias.simulator.baselines import BEST
from slurm_tiresias.simulator.run import POLICIES
from slurm_tiresias.simulator.traces import AUTO
from slurm_tiresias.text import printable

ALL = "all"
NAMES = (*POLICIES, BEST)
DEFAULT_WORKLOAD = "paper480"
MOST_SECONDS = 1e9


def source_or_paper480(source: Source) -> Source:
    """Return the named source, or the paper's workload. Raises ``UsageError``."""
    if source.trace is None and source.trace_format != AUTO:
        raise UsageError("--format has no effect without --trace", "Add --trace FILE, or drop it")
    if source.trace or source.from_sacct or source.since or source.workload is not None:
        return source
    return replace(source, workload=DEFAULT_WORKLOAD)


def policies(
    _context: click.Context, _parameter: click.Parameter, values: Sequence[str]
) -> tuple[str, ...]:
    """Parse ``--policy``, as its callback: names, comma lists, or all; without duplicates."""
    words = [word.strip() for value in values for word in value.split(",")]
    named = [name for word in words for name in (NAMES if word == ALL else (word,))]
    for name in named:
        if name not in NAMES:
            close = get_close_matches(name, NAMES, n=1)
            hint = f"Perhaps {close[0]} was meant; there are" if close else "There are"
            raise UsageError(
                f"{printable(name)!r} is not a policy", f"{hint}: {', '.join((*NAMES, ALL))}"
            )
    return tuple(dict.fromkeys(named))


def checked_seconds(option: str, value: float) -> float:
    """Check a duration of zero or more seconds that a clock can count. Raises ``UsageError``."""
    if not 0.0 <= value < MOST_SECONDS:
        raise UsageError(
            f"{option} {value:g} is not a valid duration",
            f"Write seconds, at least 0 and below {MOST_SECONDS:.0f}",
        )
    return value
