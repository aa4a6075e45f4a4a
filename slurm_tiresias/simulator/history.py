"""The past workload of this cluster, read directly from Slurm's accounting."""

from __future__ import annotations

from pathlib import Path

from slurm_tiresias.errors import TraceError, UsageError
from slurm_tiresias.simulator.traces import reading, sacct
from slurm_tiresias.simulator.workload import Workload
from slurm_tiresias.slurm import history
from slurm_tiresias.slurm.protocol import Commands

MOST_SHOWN = 40
"""Maximum length of the time argument shown in messages, in characters."""


def from_sacct(
    since: str,
    commands: Commands | None = None,
    *,
    until: str = "",
    partition: str = "",
    account: str = "",
) -> Workload:
    """Return all GPU jobs of this cluster that were alive at or after ``since`` and have ended.

    ``since`` and ``until`` are times in any of sacct's formats, with dates and times of day in UTC:
    ``2026-01-31``, ``2026-01-31T12:00``, ``now-30days``. Several partitions and accounts have
    commas between them; "" means all. Raises ``UsageError`` if one is not a time, if there was no
    such job, or if the cluster has no accounting; ``SlurmUnreachableError`` or
    ``SlurmPermissionError`` if the accounting cannot be read; ``TraceError`` if none of the jobs
    can be simulated.
    """
    # sacct takes an empty time as today, which cannot have been meant.
    for option, value in (("since", since), ("until", until or since)):
        if not value.strip() or not value.isprintable():
            raise UsageError(
                f"--{option} {value[:MOST_SHOWN]!r} is not a time", "write a date, like 2026-01-31"
            )
    asked = sacct.arguments(since, until=until, partition=partition, account=account)
    answer = history.printed(asked, sacct.ENVIRONMENT, commands or Commands())
    if answer.count(b"\n") <= 1:
        others = " with these options" if until or partition or account else ""
        raise UsageError(f"Slurm has no job since {since}{others}", "write an earlier --since")
    try:
        # As bytes, because the output of a large cluster is too long to copy needlessly.
        return sacct.history(reading.as_trace(Path("sacct"), answer, errors="replace"))
    except TraceError as error:
        raise TraceError(
            error.what, f"write another --since, or look at the line in: {sacct.EXPORT_COMMAND}"
        ) from None
