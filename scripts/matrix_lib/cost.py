"""What reading and writing cost on a release, by every driver that works there."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import click

from scripts.bench_lib import document, drivers
from scripts.matrix_lib import chamber
from scripts.matrix_lib.chamber import Chamber
from scripts.matrix_lib.root import CHECKOUT, SOURCE, VENVS, Root, environment

JOBS = (2000, 10000)


def measure(root: Root, last_driver: str, jobs: Sequence[int] = JOBS) -> None:
    """Run ``scripts/bench drivers`` in the root, and take over what it has written.

    Where ``last_driver`` can be used, the commands can, too.
    """
    program = f"from scripts.bench_lib.drivers import measure; measure({list(jobs)})"
    python = [f"{VENVS[last_driver]}/bin/python", "-c", program]
    ended = subprocess.run(
        Chamber((root.path,)).command(chamber.in_root(root.path, python, str(SOURCE))),
        env=environment(last_driver),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if ended.returncode != 0:
        raise click.ClickException(f"what it costs on {root.release.slurm} was not measured")
    page = document.BENCHMARKS.path.relative_to(CHECKOUT)
    document.take_over(drivers.title(root.release.slurm), root / SOURCE / page)
