"""The command line of scripts/dev, with one package or module per command."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

COMMANDS: Mapping[str, str] = {
    "bare": "bare.main:bare",
    "bench": "bench.main:bench",
    "chaos": "chaos.main:chaos",
    "containers": "containers.main:containers",
    "docs": "docs.main:docs",
    "frameworks": "frameworks:frameworks",
    "fuzz": "fuzz.main:fuzz",
    "generate": "generate:generate",
    "lock": "lock:lock",
    "matrix": "matrix.main:matrix",
    "packages": "packages.main:packages",
    "pictures": "pictures.main:pictures",
    "record": "record:record",
    "release": "release:release",
}
"""The module of each command, below ``scripts.tools``."""


class _LazyGroup(click.Group):
    """Imports only the requested command, since some need packages that others do not."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        command: click.Command = getattr(
            importlib.import_module(f"scripts.tools.{module}"), attribute
        )
        return command


@click.command(cls=_LazyGroup)
def dev() -> None:
    """Measure, stress-test, release and document slurm-tiresias."""
