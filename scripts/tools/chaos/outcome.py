"""The failure of a chaos test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import click

CHECKED = (
    "Afterwards, of every job: it has finished and done all its work; accounting shows it requeued "
    "as often as the ledger says it was decided, and no job was requeued twice for one start "
    "of another; each of its runs stands in the ledger with the GPUs of accounting and within a "
    "second of its time (`sacct -D`). After each kill the ledger knew of every node list that had "
    "been written to a waiting job; and once the controller was paused, no job had a node list but "
    "its user's own."
)


def fail(wrong: Sequence[str]) -> NoReturn:
    """Print the problems, one line each, and exit."""
    raise click.ClickException("\n  ".join([f"{len(wrong)} problems:", *wrong]))
