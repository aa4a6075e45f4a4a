"""``tiresias-slurm ledger``: what to do when the controller's memory is lost."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from slurm_tiresias.cli.options import config_option, takes_config
from slurm_tiresias.cli.text import count, duration, listed, printable
from slurm_tiresias.config import Config

if TYPE_CHECKING:
    from slurm_tiresias.controller.rebuild import Rebuilt


@click.group(no_args_is_help=False)
@config_option
def ledger() -> None:
    """Mend the controller's memory of jobs."""


@ledger.command()
@click.option("--json", "as_json", is_flag=True, help="The same for programs.")
@takes_config
def rebuild(config: Config, as_json: bool) -> None:
    """Build the ledger anew from Slurm and its accounting.

    For a damaged or lost one, while no controller runs. The old file is kept under another name.
    Attained service, tiers and first starts come back; promotions and the count of preemptions do
    not.
    """
    from slurm_tiresias.controller.run import rebuild_ledger

    rebuilt = rebuild_ledger(config)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(rebuilt)))
    else:
        click.echo("\n".join(map(printable, _told(rebuilt))))


def _told(rebuilt: Rebuilt) -> Iterator[str]:
    yield (
        f"Rebuilt {rebuilt.ledger}: {count(rebuilt.jobs, 'job')}, "
        f"{count(rebuilt.incarnations, 'incarnation')}, "
        f"{duration(rebuilt.attained_gpu_s)} of GPU time attained."
    )
    if rebuilt.replaced:
        yield f"What was there before lies in {rebuilt.replaced}."
    if rebuilt.paused:
        yield "The controller stays paused until it is resumed."
    if rebuilt.incomplete:
        yield (
            "Accounting does not know every earlier run of "
            f"{_jobs(rebuilt.incomplete)} yet; the controller asks it again."
        )
    if rebuilt.node_lists:
        yield (
            f"The controller will take away the node list of {_jobs(rebuilt.node_lists)}, about to "
            "start when the ledger was lost. A list of its user's own is lost with it."
        )


def _jobs(keys: tuple[str, ...]) -> str:
    return f"{'job' if len(keys) == 1 else 'jobs'} {listed(keys)}"
