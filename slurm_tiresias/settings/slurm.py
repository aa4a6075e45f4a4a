"""The table ``[slurm]``."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.settings.declare import Table, setting

DRIVERS = ("auto", "commands", "pyslurm")


@dataclass(frozen=True)
class SlurmConfig(Table):
    """How the controller reaches Slurm (docs/how-to/operate.md)."""

    driver: str = setting(
        "commands",
        "commands: squeue, scontrol and others, on every release. pyslurm: read jobs and write "
        "priorities through pyslurm, which must be installed and built for this release. auto: "
        "pyslurm if it works, else commands.",
        choices=DRIVERS,
    )
