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
    help="Folder of the running jobs: the plugin's run=.",
)
@click.option(
    "--collect",
    "collect_dir",
    metavar="DIR",
    type=click.Path(readable=False, path_type=Path),
    required=True,
    help="Folder that the controller reads: the plugin's collect=.",
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
    """Sample how profiled jobs use the GPUs of this node, and forward the progress of all jobs.

    A daemon: it runs in the foreground until SIGTERM or Ctrl-C, and logs to standard error. GPUs
    are sampled if NVIDIA's driver is installed and either jobs are profiled or the controller
    tracks idle GPUs. Exit codes: 9 another sampler runs on this node, 10 a folder is missing, or
    other users own it or may write to it.
    """
    log_to_stderr()
    run(run_dir, collect_dir, every_s)
