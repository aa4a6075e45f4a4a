"""``sacct``: what is asked of it, and from its rows to incarnations."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from slurm_tiresias.slurm import text
from slurm_tiresias.slurm.protocol import Incarnation

COLUMNS = ("JobID", "Start", "End", "ElapsedRaw", "AllocTRES", "State")
"""Nothing that users write."""


def arguments(keys: Collection[str], since_s: float) -> list[str]:
    """sacct's arguments: every incarnation of these jobs that was alive at or after ``since_s``.

    sacct must run with TZ=UTC0: 22.05 takes no seconds since the epoch, only a local time.
    """
    return [
        "--duplicates",
        "--allocations",
        "--parsable2",
        "--noheader",
        f"--format={','.join(COLUMNS)}",
        f"--starttime={time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(max(since_s, 0.0)))}",
        f"--jobs={','.join(keys)}",
    ]


def incarnations(answer: str, keys: Collection[str]) -> Iterator[Incarnation]:
    """The rows of these jobs that have started."""
    if answer and not answer.endswith("\n"):
        raise text.unreadable("an end that is cut off", answer[-80:])
    for line in answer.splitlines():
        row = line.split("|")
        if len(row) != len(COLUMNS):
            raise text.unreadable("a row of accounting", line)
        key, start, end, elapsed, tres, state = row
        start_s = text.epoch(start)
        if key in keys and start_s is not None:
            yield Incarnation(
                key=key,
                start_s=start_s,
                end_s=text.epoch(end),
                elapsed_s=float(text.whole(elapsed)),
                gpus=sum(text.gpus(tres).values()),
                state=state.split(" ")[0],
            )
