"""``tiresias-slurm metrics``: what the controller tells Prometheus."""

from __future__ import annotations

import dataclasses
import json

import click

from slurm_tiresias.cli.options import config_option


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The same for programs.")
@config_option
def metrics(as_json: bool) -> None:
    """Print which metrics the controller has, in Markdown.

    The values are at /metrics of the address that http.listen names.
    """
    from slurm_tiresias.controller.measured import METRICS, reference_lines

    if as_json:
        described = [dataclasses.asdict(m) | {"kind": m.kind.value} for m in METRICS]
        click.echo(json.dumps(described))
    else:
        click.echo("\n".join(reference_lines()))
