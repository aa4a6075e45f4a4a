"""Count the queries to Slurm by command, and how long they took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

PING, SHOW, UPDATE = "scontrol ping", "scontrol show", "scontrol update"
SQUEUE, SACCT, SCANCEL, SACCTMGR = "squeue", "sacct", "scancel", "sacctmgr"
LOAD, MODIFY = "pyslurm load", "pyslurm modify"
COMMANDS = (PING, SHOW, UPDATE, SQUEUE, SACCT, SCANCEL, SACCTMGR, LOAD, MODIFY)


@dataclass(slots=True)
class CommandCount:
    """The counts of one kind of command. A command may contain many requests: scontrol gets one
    per line, pyslurm one per list and per change."""

    commands: int = 0
    requests: int = 0
    failures: int = 0
    """Commands that raised an exception, such as a timeout or a failed start."""
    took_s: float = 0.0


class Tally:
    """Counts since this process started. One thread counts, any may read."""

    def __init__(self) -> None:
        self.by_command: Mapping[str, CommandCount] = {
            command: CommandCount() for command in COMMANDS
        }

    @contextmanager
    def counting(self, command: str, requests: int = 1) -> Iterator[None]:
        """Count one of ``COMMANDS``, which runs inside the block; an exception is a failure."""
        asked = self.by_command[command]
        began_s = time.monotonic()
        try:
            yield
        except BaseException:
            asked.failures += 1
            raise
        finally:
            asked.commands += 1
            asked.requests += requests
            asked.took_s += time.monotonic() - began_s
