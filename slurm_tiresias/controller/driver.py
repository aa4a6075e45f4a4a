"""Make the driver that a configuration names.

Commands that only read import nothing else of the controller.
"""

from __future__ import annotations

from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.choose import slurm_by
from slurm_tiresias.slurm.protocol import Commands, Lease, Slurm
from slurm_tiresias.slurm.tally import Tally

COMMAND_TIMEOUT_S = 60.0
"""Time after which a request to Slurm without an answer counts as failed. Slurm's commands wait for
MessageTimeout, 10 s by default, and large sites set up to a minute."""


def driver(config: Config, lease: Lease | None = None, asked: Tally | None = None) -> Slurm:
    """Return the driver that this configuration names; it counts its requests in ``asked``."""
    commands = Commands(timeout_s=COMMAND_TIMEOUT_S)
    return slurm_by(config.slurm.driver, commands, lease, asked)
