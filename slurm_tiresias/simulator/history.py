"""The workload that this cluster has had: Slurm's accounts, asked for directly."""

from __future__ import annotations

from pathlib import Path

from slurm_tiresias.errors import TraceError, UsageError
from slurm_tiresias.simulator.traces import reading, sacct
from slurm_tiresias.simulator.workload import Workload
from slurm_tiresias.slurm import history
from slurm_tiresias.slurm.protocol import Commands

MOST_SHOWN = 40
"""The longest text that may be given as a time, in characters."""


def from_sacct(since: str, commands: Commands | None = None) -> Workload:
    """All GPU jobs of this cluster that were alive at or after ``since`` and are over.

    ``since`` is a time in any of sacct's spellings, a date and a time of day being in UTC:
    ``2026-01-31``, ``2026-01-31T12:00``, ``now-30days``. ``UsageError`` where it is none, where
    there was no job since, or where the cluster keeps no accounts; ``SlurmUnreachableError`` and
    ``SlurmPermissionError`` where it does and they cannot be read; ``TraceError`` where no job of
    them can be simulated.
    """
    # An empty time is today to sacct, which cannot have been meant.
    if not since.strip() or not since.isprintable():
        raise UsageError(
            f"--since {since[:MOST_SHOWN]!r} is no time", "write a date, like 2026-01-31"
        )
    answer = history.printed(sacct.arguments(since), sacct.ENVIRONMENT, commands or Commands())
    if answer.count(b"\n") <= 1:
        raise UsageError(f"Slurm knows of no job since {since}", "write an earlier --since")
    try:
        # As bytes: the answer of a large cluster is too long to be copied for nothing.
        return sacct.history(reading.as_trace(Path("sacct"), answer, errors="replace"))
    except TraceError as error:
        raise TraceError(
            error.what, f"write another --since, or look at the line in: {sacct.EXPORT_COMMAND}"
        ) from None
