"""Build sacct's arguments, and parse its rows into runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator

from slurm_tiresias.errors import SlurmAnswerError
from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.protocol import AccountedRun

COLUMNS = ("JobID", "Start", "End", "ElapsedRaw", "AllocTRES", "State", "Submit", "ExitCode")
"""No column that users write, so that ``|`` separates the fields reliably."""


def arguments(keys: Collection[str], since_s: float) -> list[str]:
    """Return sacct's arguments for all runs of these jobs that had not ended before ``since_s``.

    sacct must run with TZ=UTC0, because 22.05 takes only local times, no seconds since the epoch.
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


def runs(
    answer: str,
    keys: Collection[str],
    complain: Callable[[SlurmAnswerError], None] = lambda _error: None,
) -> Iterator[AccountedRun]:
    """Yield the rows of these jobs that have started or ended.

    An unreadable row is skipped after calling ``complain`` with the error. Raises
    ``SlurmAnswerError`` if the answer is cut off.
    """
    if answer and not answer.endswith("\n"):
        raise notation.unreadable("an end that is cut off", answer[-80:])
    for line in answer.splitlines():
        try:
            row = _run(line)
        except SlurmAnswerError as error:
            complain(error)
            continue
        if row.key in keys and (row.start_s, row.end_s) != (None, None):
            yield row


def _run(line: str) -> AccountedRun:
    row = line.split("|")
    if len(row) != len(COLUMNS):
        raise notation.unreadable("a row of accounting", line)
    key, start, end, elapsed, tres, state, submit, exit_code = row
    state, _, canceller = state.partition(" by ")
    elapsed_s = float(notation.whole(elapsed))
    return AccountedRun(
        key=key,
        # For a job cancelled while pending, 22.05 shows the time of the cancellation as its start.
        start_s=notation.epoch(start) if notation.present(tres) or elapsed_s else None,
        end_s=notation.epoch(end),
        elapsed_s=elapsed_s,
        gpus=sum(notation.gpus(tres).values()),
        state=state,
        submit_s=notation.epoch(submit),
        exit_code=exit_code,
        cancelled_by=notation.whole(canceller) if canceller else None,
    )
