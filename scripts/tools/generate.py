"""Write the files that are generated from the program; a test fails while they are out of date."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import click

from scripts import ROOT

PROGRAM = "slurm_tiresias.cli"
FILES: Mapping[str, tuple[str, ...]] = {
    "etc/tiresias.toml": (PROGRAM, "config", "example"),
    "docs/reference/config.md": ("scripts.tools.reference_pages", "config"),
    "docs/reference/doctor.md": ("scripts.tools.reference_pages", "doctor"),
    "docs/reference/metrics.md": ("scripts.tools.reference_pages", "metrics"),
    "docs/reference/json.md": ("scripts.tools.json_reference",),
    "docs/reference/cli.md": ("scripts.tools.packages.reference",),
}
"""Each generated file, and the module with its arguments that prints it."""


@click.command()
def generate() -> None:
    """Write the reference pages and the example configuration."""
    for name, (module, *arguments) in FILES.items():
        command = [sys.executable, "-m", module, *arguments]
        made = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
        (ROOT / name).write_bytes(made.stdout)
