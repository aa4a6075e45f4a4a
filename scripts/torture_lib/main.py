"""The command line of the torture: one module for each subcommand."""

from __future__ import annotations

import click

from scripts.torture_lib.faults import faults
from scripts.torture_lib.kills import kills
from scripts.torture_lib.lifecycle import lifecycle
from scripts.torture_lib.load import load
from scripts.torture_lib.places import places
from scripts.torture_lib.sites import sites

COMMANDS = (faults, kills, places, load, lifecycle, sites)


@click.group(invoke_without_command=True)
@click.pass_context
def torture(context: click.Context) -> None:
    """Harm the controller, and write what came of it into docs/reliability.md.

    Without a command, all of them, one after the other: three hours.
    """
    if context.invoked_subcommand is None:
        for command in COMMANDS:
            click.echo(f"torture: {command.name}", err=True)
            context.invoke(command)


for command in COMMANDS:
    torture.add_command(command)
