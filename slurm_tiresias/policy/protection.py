"""How long a run is protected from preemption: the longer, the more earlier preemptions have lost.

The minimum run time grows with each preemption, and a run that does lost work again is protected
until it passes the point that its job had reached. What is lost is known from what users' programs
report, so both are bounded by what Slurm itself has measured (docs/algorithm.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from slurm_tiresias.config import PreemptionConfig
from slurm_tiresias.model import NOTHING_LEARNED, STUCK_RUNS, Learned

REDO_TIMES: Final = 2.0
"""A run is protected as it does lost work again for at most so many times the time in which that
work can have been done: it may have slower GPUs now, and has to start."""

MOST_DOUBLINGS: Final = 64
"""Prevents the overflow of a float."""


def protected_for_s(
    preemptions: int, config: PreemptionConfig, learned: Learned = NOTHING_LEARNED
) -> float:
    """Return the minimum run time of a job's current run, in seconds since it (re)started.

    ``preemptions`` counts the earlier preemptions of the job; those in a row by which its program
    lost all its work count like its own. The time grows so that a job that is preempted repeatedly,
    by chance or on purpose, gets runs long enough to save a checkpoint. For a job that has kept
    nothing of its last runs it grows without a bound, so that it ends some day.
    """
    times = min(max(preemptions, learned.program_lost), MOST_DOUBLINGS)
    most_s = math.inf if learned.stuck_runs >= STUCK_RUNS else config.max_min_run_s
    return max(config.min_run_s, min(config.min_run_s * config.min_run_growth**times, most_s))


def redoing_for_s(earlier: Iterable[tuple[float, float]]) -> float:
    """Return for how long a run may be protected because it does lost work again, at most.

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
    """Return how many runs in a row have kept nothing, given the step at which each run began.

    The last start is that of the present run, or what the last run has saved.
    """
    furthest = list(accumulate(starts, max))
    count = 0
    while count + 1 < len(starts) and starts[-1 - count] <= furthest[-2 - count]:
        count += 1
    return count
