"""The cost of reads and writes on a release, with every driver that works there."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import click

from scripts import ROOT
from scripts.testbed.debian import namespaces
from scripts.testbed.debian.namespaces import Namespaces
from scripts.tools import document
from scripts.tools.bench import drivers
from scripts.tools.matrix.root import SOURCE, VENVS, Root, environment

JOBS = (2000, 10000)


def measure(root: Root, last_driver: str, jobs: Sequence[int] = JOBS) -> None:
    """Run ``scripts/dev bench drivers`` in the root, and copy the section that it wrote.

    If ``last_driver`` can be used, the commands can be used too.
    """
    program = "from scripts.tools.bench.main import bench; bench()"
    sizes = [f"--jobs={size}" for size in jobs]
    python = [f"{VENVS[last_driver]}/bin/python", "-c", program, "drivers", *sizes]
    ended = subprocess.run(
        Namespaces((root.path,)).command(namespaces.in_root(root.path, python, str(SOURCE))),
        env=environment(last_driver),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if ended.returncode != 0:
        raise click.ClickException(f"the cost on {root.release.slurm} was not measured")
    page = document.BENCHMARKS.path.relative_to(ROOT)
    document.take_over(drivers.title(root.release.slurm), root / SOURCE / page)
