"""The tested releases of Slurm, and the source of each."""

from __future__ import annotations

from dataclasses import dataclass

COMMANDS, PYSLURM = "commands", "pyslurm"
DRIVERS = (COMMANDS, PYSLURM)


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Slurm, and the Debian release that has it."""

    slurm: str
    debian: str
    drivers: tuple[str, ...] = (COMMANDS,)
    """The drivers that support it: each release of pyslurm is for one release of Slurm."""


RELEASES = (
    Release("22.05", "bookworm"),
    Release("24.11", "trixie"),
    Release("26.05", "forky", DRIVERS),
)
