"""``tiresias-slurm metrics``: the controller's current metrics, and what each means."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from slurm_tiresias.cli.options import config_option, config_path, json_option
from slurm_tiresias.config import load
from slurm_tiresias.controller.metrics_asked import Sample, metrics_samples, metrics_text

OF_SEVERAL = ("_bucket", "_count", "_sum")
"""Suffixes of the samples of histograms and summaries."""


@click.command()
@click.option("--reference", is_flag=True, help="What each metric means, in Markdown; no values.")
@json_option
@config_option
def metrics(reference: bool, as_json: bool) -> None:
    """Print the controller's current metrics in Prometheus's format.

    The same as at /metrics if http.listen is set, but without a port: it queries the controller on
    this host. Exit code 3: no controller acts on this host.
    """
    if reference:
        click.echo(json.dumps(_described()) if as_json else _page())
        return
    state_dir = Path(load(config_path()).controller.state_dir)
    if as_json:
        click.echo(json.dumps(_with_values(metrics_samples(state_dir))))
    else:
        click.echo(metrics_text(state_dir), nl=False)


def _page() -> str:
    from slurm_tiresias.controller.metric_definitions import reference_lines

    return "\n".join(reference_lines())


def _described() -> list[dict[str, Any]]:
    from slurm_tiresias.controller.metric_definitions import METRICS

    return [dataclasses.asdict(m) | {"kind": m.kind.value} for m in METRICS]


def _with_values(samples: Sequence[Sample]) -> list[Mapping[str, Any]]:
    """Return the descriptions of the metrics, each with its values."""
    described = _described()
    found: dict[str, list[Mapping[str, Any]]] = {each["name"]: [] for each in described}
    for sample in samples:
        names = (sample.name, *(sample.name.removesuffix(ending) for ending in OF_SEVERAL))
        name = next((name for name in names if name in found), None)
        if name is not None:
            found[name].append(dataclasses.asdict(sample))
    return [{**each, "samples": found[each["name"]]} for each in described]
