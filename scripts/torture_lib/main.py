"""The command line of the torture: one module for each subcommand."""

from __future__ import annotations

import click

from scripts.torture_lib.faults import faults
from scripts.torture_lib.kills import kills
from scripts.torture_lib.load import load
from scripts.torture_lib.places import places


@click.group()
def torture() -> None:
    """Harm the controller on a real Slurm, and write what came of it into docs/reliability.md."""


for command in (faults, kills, load, places):
    torture.add_command(command)
