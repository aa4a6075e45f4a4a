"""``sacct``: what is asked of it, and from its rows to runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator

from slurm_tiresias.errors import SlurmAnswerError
from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.protocol import AccountedRun

COLUMNS = ("JobID", "Start", "End", "ElapsedRaw", "AllocTRES", "State", "Submit", "ExitCode")
"""Nothing that users write."""


def arguments(keys: Collection[str], since_s: float) -> list[str]:
    """sacct's arguments: every run of these jobs that was alive at or after ``since_s``.

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


def runs(
    answer: str,
    keys: Collection[str],
    complain: Callable[[SlurmAnswerError], None] = lambda _error: None,
) -> Iterator[AccountedRun]:
    """The rows of these jobs that have started or ended.

    One that cannot be read is passed over, and ``complain`` is told why; ``SlurmAnswerError``
    where the answer is cut off.
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
        # 22.05 shows when a job was cancelled as its start, though it never held anything.
        start_s=notation.epoch(start) if notation.present(tres) or elapsed_s else None,
        end_s=notation.epoch(end),
        elapsed_s=elapsed_s,
        gpus=sum(notation.gpus(tres).values()),
        state=state,
        submit_s=notation.epoch(submit),
        exit_code=exit_code,
        cancelled_by=notation.whole(canceller) if canceller else None,
    )
