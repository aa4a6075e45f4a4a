"""The releases of Slurm that are tested, and where each comes from."""

from __future__ import annotations

from dataclasses import dataclass

COMMANDS, PYSLURM = "commands", "pyslurm"
DRIVERS = (COMMANDS, PYSLURM)


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Slurm, and the release of Debian that carries it."""

    slurm: str
    debian: str
    drivers: tuple[str, ...] = (COMMANDS,)
    """Those that can speak to it: pyslurm's own releases are for one release of Slurm each."""


RELEASES = (
    Release("22.05", "bookworm"),
    Release("24.11", "trixie"),
    Release("26.05", "forky", DRIVERS),
)
