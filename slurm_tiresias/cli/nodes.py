"""``tiresias-slurm nodes``: what the runs of the last day say of each node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import click

from slurm_tiresias.cli.options import complain_if_not_current, json_option, takes_config
from slurm_tiresias.cli.screen import Screen, show_or_json
from slurm_tiresias.gpu_hours import gpu_hours
from slurm_tiresias.settings import Config
from slurm_tiresias.status import published
from slurm_tiresias.status.ask import command
from slurm_tiresias.status.published import PublishedNode
from slurm_tiresias.table import Column
from slurm_tiresias.text import NOTHING, printable

SCHEMA = 1

COLUMNS: tuple[Column[PublishedNode], ...] = (
    Column("NODE", lambda node: printable(node.name), look=lambda node: "bad" * node.is_suspect),
    Column("STATE", lambda node: printable(node.state)),
    Column("GPUS", lambda node: str(node.gpus), right=True),
    Column("RUNS", lambda node: str(node.runs), right=True),
    Column("FAILED EARLY", lambda node: str(node.early_failures), right=True),
    Column(
        "SPEED",
        lambda node: NOTHING if node.speed is None else f"{node.speed:.2f}",
        right=True,
        goes=2,
    ),
    Column("GPU-H IDLE", lambda node: gpu_hours(node.idle_gpu_s), right=True, goes=1),
    Column("SUSPICION", lambda node: f"{node.suspicion:.1f}", right=True),
    Column("EVIDENCE", lambda node: printable(node.evidence), least=30, optional=True),
)


@click.group(invoke_without_command=True, no_args_is_help=False)
@json_option
@takes_config
@click.pass_context
def nodes(context: click.Context, config: Config, as_json: bool) -> None:
    """Show what the runs of the last day say of each node: failures, speed, idle GPUs, suspicion.

    Nodes of the managed partitions with GPUs, the most suspected first. SPEED is that of steps, as
    a share of the same programs' speed on other nodes. From a suspicion of 2 on, a node is used
    only if no other suffices; failures.drain drains it. Exit code 3: no controller runs, or its
    published state is out of date (the nodes are shown nevertheless).
    """
    if context.invoked_subcommand:
        return
    state = published.read(Path(config.controller.state_dir))
    found = sorted(state.nodes, key=lambda node: -node.suspicion)

    def lines(screen: Screen) -> Iterator[str]:
        yield from screen.table(screen.columns_with_content(COLUMNS, found), found)

    def data() -> object:
        return {"schema": SCHEMA, "nodes": [asdict(replace(node, held=())) for node in found]}

    show_or_json(as_json, data, lines)
    complain_if_not_current(state, time.time())


@nodes.command()
@click.argument("name", metavar="NODE")
@takes_config
def clear(config: Config, name: str) -> None:
    """Clear a node of suspicion: its runs so far no longer count.

    If the controller has drained it, it returns to service.
    """
    answer = command(Path(config.controller.state_dir), f"clear-node {name}")
    click.echo(printable(str(answer.get("text"))))
