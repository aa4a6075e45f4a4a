"""``tiresias-slurm ledger``: rebuild, prune or rebind the controller's state database."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from slurm_tiresias.cli.options import config_option, json_option, takes_config
from slurm_tiresias.cli.times import slurm_time
from slurm_tiresias.gpu_hours import gpu_hours
from slurm_tiresias.settings import Config
from slurm_tiresias.text import count, date_and_time, listed, printable

if TYPE_CHECKING:
    from slurm_tiresias.controller.rebuild import Rebuilt
    from slurm_tiresias.store.retention import Pruning


@click.group(no_args_is_help=False)
@config_option
def ledger() -> None:
    """Repair the controller's database of jobs, or make it smaller."""


@ledger.command()
@json_option
@takes_config
def rebuild(config: Config, as_json: bool) -> None:
    """Rebuild the ledger from Slurm and its accounting.

    For a ledger that is damaged, lost or of another version, while no controller runs. The old file
    is kept under another name. Attained service, tiers and first starts are recovered, and whatever
    else of the old file can still be read.
    """
    from slurm_tiresias.controller.offline import rebuild_ledger

    rebuilt = rebuild_ledger(config)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(rebuilt)))
    else:
        click.echo("\n".join(map(printable, _rebuilt(rebuilt))))


@ledger.command()
@click.option(
    "--before",
    "before_s",
    callback=slurm_time,
    metavar="TIME",
    help="Remove jobs that ended before this day or moment. Default: as "
    "controller.keep_ended_jobs_days says.",
)
@click.option("--dry-run", is_flag=True, help="Only count them; a controller may run.")
@json_option
@takes_config
def prune(config: Config, before_s: float | None, dry_run: bool, as_json: bool) -> None:
    """Remove jobs that ended long ago from the ledger.

    The controller does so by itself; use this to make the ledger smaller at once, while no
    controller runs. `history` and `report` then no longer show these jobs. What policies
    and estimates have learned from them is kept.
    """
    from slurm_tiresias.controller.offline import prune_ledger

    pruning = prune_ledger(config, before_s, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(pruning)))
    else:
        click.echo("\n".join(map(printable, _pruned(pruning, before_s))))


def _pruned(pruning: Pruning, wanted_s: float | None) -> Iterator[str]:
    what, before = pruning.pruned, date_and_time(pruning.before_s)
    verb = "Would remove" if pruning.dry_run else "Removed"
    yield (
        f"{verb} {count(what.jobs, 'job')} that ended before {before}, with "
        f"{count(what.runs, 'run')} and {count(what.preemptions, 'preemption')}, and "
        f"{count(what.events, 'event')} of before."
    )
    if wanted_s is not None and wanted_s > pruning.before_s:
        yield "Jobs that ended since then still count in decisions, and stay."
    if not pruning.dry_run:
        yield (
            f"{pruning.ledger} has {pruning.bytes_after / 1e6:,.1f} MB now, and had "
            f"{pruning.bytes_before / 1e6:,.1f} MB."
        )


@ledger.command()
@takes_config
def adopt(config: Config) -> None:
    """Bind the ledger to the cluster's present name.

    For a cluster that was renamed, while no controller runs. A ledger is bound to the ClusterName
    of slurm.conf by the first controller that uses it, and refused for any other cluster.
    """
    from slurm_tiresias.controller.offline import adopt_ledger

    before, now = adopt_ledger(config)
    was = f", and was of cluster {before}" if before and before != now else ""
    click.echo(printable(f"The ledger is of cluster {now} now{was}."))


def _rebuilt(rebuilt: Rebuilt) -> Iterator[str]:
    yield (
        f"Rebuilt {rebuilt.ledger}: {count(rebuilt.jobs, 'job')}, {count(rebuilt.runs, 'run')}, "
        f"{gpu_hours(rebuilt.attained_gpu_s)} attained."
    )
    if rebuilt.replaced:
        yield f"What was there before lies in {rebuilt.replaced}."
        yield f"Taken over from it: {count(rebuilt.copied, 'row')}."
    if rebuilt.lost:
        yield f"Lost, in whole or in part: {listed(rebuilt.lost)}."
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
