"""``tiresias-slurm controller``: the daemon."""

from __future__ import annotations

import dataclasses

import click

from slurm_tiresias.cli.log import log_to_stderr
from slurm_tiresias.cli.options import takes_config
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.controller import ControllerConfig

_INTERVAL = {field.name: field for field in dataclasses.fields(ControllerConfig)}["interval_s"]


@click.command()
@click.option("--shadow", is_flag=True, help="Decide and record; write nothing to Slurm.")
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    type=click.FloatRange(_INTERVAL.metadata["minimum"], _INTERVAL.metadata["maximum"]),
    help="Time between two cycles, instead of the configured one.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log every cycle, with durations.")
@takes_config
def controller(config: Config, shadow: bool, interval_s: float | None, verbose: bool) -> None:
    """Run the controller.

    It runs in the foreground until SIGTERM or Ctrl-C, and logs to standard error.
    """
    from slurm_tiresias.controller.run import run

    if interval_s is not None:
        settings = dataclasses.replace(config.controller, interval_s=interval_s)
        config = dataclasses.replace(config, controller=settings)
    log_to_stderr(verbose)
    run(config, shadow=shadow)
