"""The command line of the chaos tests, each in its own module."""

from __future__ import annotations

import click

from scripts.tools.chaos.faults import faults
from scripts.tools.chaos.kills import kill_points, random_kills
from scripts.tools.chaos.lifecycle import lifecycle
from scripts.tools.chaos.load import load
from scripts.tools.chaos.sites import sites

COMMANDS = (faults, random_kills, kill_points, load, lifecycle, sites)


@click.group(invoke_without_command=True)
@click.option("--record", is_flag=True, help="Write results into scripts/records/reliability.md.")
@click.pass_context
def chaos(context: click.Context, record: bool) -> None:
    """Inject faults around the controller.

    Without a command, all of them, one after the other: three hours.
    """
    context.obj = record
    if context.invoked_subcommand is None:
        for command in COMMANDS:
            click.echo(f"chaos: {command.name}", err=True)
            context.invoke(command)


for command in COMMANDS:
    chaos.add_command(command)
