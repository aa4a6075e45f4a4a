"""Shell completion: jobs, users and partitions from the state that the controller published last.

It must be quick and must not fail: if the state cannot be read, nothing is offered. Shells split
offers at blanks and expand what is in them, so only harmless words are offered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from slurm_tiresias.cli.columns import COLUMNS, STATE_CODES, state_code
from slurm_tiresias.cli.options import CONFIG_VARIABLE, DEFAULT_CONFIG, last_config
from slurm_tiresias.config import load
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.status import published
from slurm_tiresias.status.published import PublishedState
from slurm_tiresias.text import printable

PATIENCE_S = 1.0
"""Longest wait for a controller's answer, in seconds: the user may hold down the key."""

_HARMLESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")

Offer = Iterable[tuple[str, str]]
"""Words to offer, each with a description."""

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def jobs(state: PublishedState) -> Offer:
    for job in state.jobs:
        yield job.job_id, printable(f"{state_code(job)} {job.name} of {job.user}")


def users(state: PublishedState) -> Offer:
    return ((user, "") for user in sorted({job.user for job in state.jobs}))


def partitions(state: PublishedState) -> Offer:
    found = {name for job in state.jobs for name in job.partition.split(",")}
    return ((name, "") for name in sorted(found))


def tiers(state: PublishedState) -> Offer:
    return ((str(tier.tier), "") for tier in state.tiers)


def of_state(offer: Callable[[PublishedState], Offer], several: bool = True) -> Completion:
    """Return a completion from the published state; ``several``: the option takes a comma list."""

    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            path = last_config(context) or os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG
            config = load(Path(path))
            state = published.read(Path(config.controller.state_dir), PATIENCE_S)
        except (TiresiasError, OSError):
            return []
        return list(_matching(offer(state), incomplete, several))

    return complete


def columns(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the columns of the job table; the first may have a ``+`` or ``-`` before it."""
    sign = incomplete[:1] if incomplete[:1] in ("+", "-") else ""
    offer = ((name, column.doc) for name, column in COLUMNS.items())
    found = _matching(offer, incomplete.removeprefix(sign).upper(), True)
    return [CompletionItem(sign + item.value, help=item.help) for item in found]


def states(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete Slurm's names of job states."""
    offer = ((name, code) for name, code in STATE_CODES.items())
    return list(_matching(offer, incomplete.upper(), True))


def _matching(offer: Offer, incomplete: str, several: bool) -> Iterator[CompletionItem]:
    """Yield the offers that match the last word of the list, each with the words before it."""
    before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
    for word, what in offer:
        if word.startswith(last) and _HARMLESS.fullmatch(word):
            yield CompletionItem(before + comma + word, help=what or None)
