"""``tiresias-slurm metrics``: the controller's current metrics."""

from __future__ import annotations

from pathlib import Path

import click

from slurm_tiresias.cli.options import takes_config
from slurm_tiresias.controller.metrics_asked import metrics_text
from slurm_tiresias.settings import Config


@click.command()
@takes_config
def metrics(config: Config) -> None:
    """Print the controller's current metrics in Prometheus's format.

    The same as at /metrics if http.listen is set, but without a port: it queries the controller on
    this host. Exit code 3: no controller acts on this host.
    """
    click.echo(metrics_text(Path(config.controller.state_dir)), nl=False)
