"""How much work the runs of a job have lost, and how long that protects its present run.

This comes from reports of users' programs, so it is bounded by what Slurm itself has measured
(docs/explanation/algorithm.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from slurm_tiresias.config import Config
from slurm_tiresias.core.features.protection import Protected
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import Protection

REDO_TIMES: Final = 2.0
"""A run is protected while it redoes lost work, for at most this many times the time in which that
work can have been done: it may have slower GPUs now, and must start up first."""


def redoing_for_s(earlier: Iterable[tuple[float, float]]) -> float:
    """Return the longest time for which a run may be protected because it repeats lost work.

    Parameters
    ----------
    earlier
        For each earlier run of the job its running time, and how much of that was protected for
        this reason, in seconds, as Slurm's clock has it.
    """
    runs = list(earlier)
    longest_s = max((ran_s for ran_s, _ in runs), default=0.0)
    new_work_s = sum(max(0.0, ran_s - redone_s) for ran_s, redone_s in runs)
    return REDO_TIMES * min(longest_s, new_work_s)


def stuck_runs(starts: Sequence[int]) -> int:
    """Return how many runs in a row have saved nothing, given the step at which each run began.

    The last start is that of the present run, or the last saved step of the last run.
    """
    furthest = list(accumulate(starts, max))
    count = 0
    while count + 1 < len(starts) and starts[-1 - count] <= furthest[-2 - count]:
        count += 1
    return count


def protect(job: Job, _config: Config) -> Iterable[Protected]:
    """Yield until when a run is protected because it redoes lost work."""
    if job.learned.redoing_until_s is not None:
        yield Protected(Protection.REDOING_WORK, -math.inf, job.learned.redoing_until_s)
