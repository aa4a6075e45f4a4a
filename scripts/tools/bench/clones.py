"""Clones of other projects, whose published traces and results some benchmarks read."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import click


def clone_option(repository: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option for the folder of a clone."""
    return click.option(
        "--clone",
        required=True,
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help=f"A clone of github.com/{repository}; may be bare.",
    )


def content(clone: Path, path: str) -> bytes:
    """Return a file of the current commit; the clone needs no working tree."""
    command = ["git", "-C", str(clone), "show", f"HEAD:{path}"]
    shown = subprocess.run(command, capture_output=True, check=False)
    if shown.returncode:
        raise click.UsageError(f"{clone} has no {path}. Name a clone of the right project.")
    return shown.stdout
