"""``tiresias-slurm profile sample``: the daemon on compute nodes."""

from __future__ import annotations

from pathlib import Path

import click

from slurm_tiresias.cli.log import log_to_stderr
from slurm_tiresias.progress.node_service import run


@click.command()
@click.option(
    "--run",
    "run_dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default="/run/slurm-tiresias",
    show_default=True,
    help="The plugin's folder for jobs that run, its run=.",
)
@click.option(
    "--collect",
    "collect_dir",
    metavar="DIR",
    type=click.Path(readable=False, path_type=Path),
    required=True,
    help="The folder that the controller reads, the plugin's collect=.",
)
@click.option(
    "--every",
    "every_s",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 3600),
    default=10.0,
    show_default=True,
    help="Time between two samples.",
)
def sample(run_dir: Path, collect_dir: Path, every_s: float) -> None:
    """Sample what profiled jobs do with the GPUs of this node, and pass on how far all jobs are.

    A daemon: it stays in the foreground until it is told to stop, by SIGTERM or Ctrl-C, and logs to
    standard error. GPUs are sampled where NVIDIA's driver is there and jobs are profiled, or the
    controller wants to know which are idle (idle_gpus.after_s). Exit codes: 9 another one runs
    here, 10 a folder is missing or open to others.
    """
    log_to_stderr()
    run(run_dir, collect_dir, every_s)
