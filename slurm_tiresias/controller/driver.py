"""The driver that a configuration asks for. Commands that only look on need nothing else of the
controller, and load no more."""

from __future__ import annotations

from slurm_tiresias.config import Config
from slurm_tiresias.slurm.choose import slurm_by
from slurm_tiresias.slurm.protocol import Commands, Lease, Slurm
from slurm_tiresias.slurm.tally import Tally


def driver(config: Config, lease: Lease | None = None, asked: Tally | None = None) -> Slurm:
    """The driver that this configuration asks for; what is ``asked`` of Slurm is counted there."""
    commands = Commands(timeout_s=config.controller.command_timeout_s)
    return slurm_by(config.slurm.driver, commands, lease, asked)
