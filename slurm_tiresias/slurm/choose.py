"""Choose the driver that talks to Slurm."""

from __future__ import annotations

import logging

from slurm_tiresias.errors import BindingError
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.protocol import Commands, Lease, Slurm
from slurm_tiresias.slurm.pyslurm_driver import PyslurmSlurm
from slurm_tiresias.slurm.pyslurm_process import PyslurmProcess
from slurm_tiresias.slurm.tally import Tally

log = logging.getLogger("tiresias-slurm")

AUTO, COMMANDS, PYSLURM = "auto", "commands", "pyslurm"


def slurm_by(
    driver: str, commands: Commands, lease: Lease | None = None, count: Tally | None = None
) -> Slurm:
    """Return the driver with this name; ``auto`` is pyslurm if it works, else the commands.

    Raises ``BindingError`` if ``driver`` is pyslurm and it does not work. With ``commands``
    pyslurm is neither looked for nor imported. ``count`` counts the queries to Slurm.
    """
    if driver == COMMANDS:
        return CommandSlurm(commands, lease, count)
    try:
        worker = PyslurmProcess(commands)
    except BindingError as error:
        if driver == PYSLURM:
            raise
        log.info("uses Slurm's commands: %s", error.what)
        return CommandSlurm(commands, lease, count, because=error.what)
    return PyslurmSlurm(worker, commands, lease, count, or_commands=driver == AUTO)
