"""Make the driver that a configuration names.

Commands that only read import nothing else of the controller.
"""

from __future__ import annotations

from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.choose import slurm_by
from slurm_tiresias.slurm.protocol import Commands, Lease, Slurm
from slurm_tiresias.slurm.tally import Tally


def driver(config: Config, lease: Lease | None = None, asked: Tally | None = None) -> Slurm:
    """Return the driver that this configuration names; it counts its requests in ``asked``."""
    commands = Commands(timeout_s=config.controller.command_timeout_s)
    return slurm_by(config.slurm.driver, commands, lease, asked)
