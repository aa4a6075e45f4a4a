"""Parse the options of ``simulate`` into policies, tiers, and a source of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from difflib import get_close_matches
from itertools import pairwise

import click

from slurm_tiresias.cli.simulation_options import Source
from slurm_tiresias.config import parse
from slurm_tiresias.errors import ConfigError, UsageError
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.policy import MAX_TIERS
from slurm_tiresias.simulator.run import POLICIES
from slurm_tiresias.simulator.traces import AUTO
from slurm_tiresias.text import printable

ALL = "all"
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
    named = [name for word in words for name in (POLICIES if word == ALL else (word,))]
    for name in named:
        if name not in POLICIES:
            close = get_close_matches(name, POLICIES, n=1)
            hint = f"Perhaps {close[0]} was meant; there are" if close else "There are"
            raise UsageError(
                f"{printable(name)!r} is not a policy", f"{hint}: {', '.join((*POLICIES, ALL))}"
            )
    return tuple(dict.fromkeys(named))


def scheduler_config(
    base: Config,
    order: str,
    thresholds: str,
    queues: int | None,
    promote_knob: float,
    pack_limit: float,
    max_slowdown: float | None = None,
) -> Config:
    """Return the base configuration with the options applied. Raises ``UsageError``."""
    cuts_gpu_s = _cuts_gpu_s(thresholds, queues)
    if not 0.0 <= promote_knob < MOST_SECONDS:
        raise UsageError(
            f"--promote-knob {promote_knob:g} is not a valid multiple", "Write 0, or a number above"
        )
    options = {
        "order": order,
        "thresholds_gpu_s": cuts_gpu_s,
        "promote_knob": promote_knob,
        "estimates": list(base.policy.estimates),
    }
    if max_slowdown is not None:
        options["max_slowdown"] = max_slowdown
    tables = {
        "policy": asdict(base.policy) | options,
        "preemption": asdict(base.preemption),
        "placement": asdict(base.placement) | {"pack_limit": pack_limit},
    }
    try:
        return parse(tables, "the command line")
    except ConfigError as error:
        raise UsageError(error.what, error.remedy) from error


def _cuts_gpu_s(thresholds: str, queues: int | None) -> list[float]:
    """Return the tier thresholds. A single one is doubled for each next queue: 1 h, 2 h, 4 h, as in
    the paper's Fig. 15 (page 496)."""
    try:
        cuts_gpu_s = [float(number) for number in thresholds.split(",")]
    except ValueError as error:
        raise UsageError(
            f"--thresholds {printable(thresholds)!r} is not a list of numbers",
            "Write GPU-seconds, like 3600,18000",
        ) from error
    rises = all(lower < upper < MOST_SECONDS for lower, upper in pairwise((0.0, *cuts_gpu_s)))
    if not rises or len(cuts_gpu_s) >= MAX_TIERS:
        raise UsageError(
            f"--thresholds {printable(thresholds)!r} cannot cut the tiers",
            f"Write 1 to {MAX_TIERS - 1} GPU-seconds above 0 in ascending order, like 3600,18000",
        )
    if queues is None or queues == len(cuts_gpu_s) + 1:
        return cuts_gpu_s
    if len(cuts_gpu_s) > 1:
        raise UsageError(
            f"--queues {queues} and --thresholds {printable(thresholds)} contradict each other",
            f"Write --queues {len(cuts_gpu_s) + 1}, or the first threshold only",
        )
    return [cuts_gpu_s[0] * 2**number for number in range(queues - 1)]


def checked_seconds(option: str, value: float) -> float:
    """Check a duration of zero or more seconds that a clock can count. Raises ``UsageError``."""
    if not 0.0 <= value < MOST_SECONDS:
        raise UsageError(
            f"{option} {value:g} is not a valid duration",
            f"Write seconds, at least 0 and below {MOST_SECONDS:.0f}",
        )
    return value
