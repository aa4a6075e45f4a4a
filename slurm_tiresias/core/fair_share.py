"""When each job would end if all jobs shared the GPUs evenly: the reference for how fair a schedule
is.

Fluid max-min fair sharing: at any time every job gets the same number of GPUs, but none more than
its width; GPUs that narrow jobs do not use are shared among the wide ones. GPUs are divisible, a
job's speed is proportional to its share of its width, and moving costs nothing. The ratio of a
job's real completion time to this one is its finish-time fairness (Themis, NSDI 2020, section 3.1).
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class SharedJob(NamedTuple):
    """The facts about a job that the reference needs: ``duration_s`` is its running time on all of
    its GPUs, ``gpus`` its width."""

    submitted_s: float
    gpus: float
    duration_s: float


@dataclass(slots=True)
class _Width:
    """The jobs of one width that share, all at the same speed."""

    gpus: float
    worked_s: float = 0.0
    """Running time on all its GPUs that a job of this width would have had since the beginning."""
    ends: list[tuple[float, int]] = field(default_factory=list)
    """Heap of (``worked_s`` at which a job ends, its number)."""

    def speed(self, level: float) -> float:
        return min(1.0, level / self.gpus)

    def end_in_s(self, level: float) -> float:
        """In how many seconds its first job ends."""
        return max(0.0, self.ends[0][0] - self.worked_s) / self.speed(level)


def fair_ends_s(jobs: Sequence[SharedJob], gpus: float) -> list[float]:
    """Return when each job would end under fluid max-min fair sharing.

    Parameters
    ----------
    jobs
        In any order; a job wider than the cluster runs on all of it at most, and one of infinite
        length never ends.
    gpus
        GPUs of the cluster, at least 1.

    Returns
    -------
    list of float
        One end for each job, in the order of ``jobs``; seconds on the clock of their submission.
    """
    ends_s = [math.inf] * len(jobs)
    coming = deque(sorted(range(len(jobs)), key=lambda number: jobs[number].submitted_s))
    widths: dict[float, _Width] = {}
    now_s = jobs[coming[0]].submitted_s if jobs else 0.0
    while True:
        sharing = [width for width in widths.values() if width.ends]
        level = _level(sharing, gpus)
        first = min(sharing, key=lambda width: width.end_in_s(level), default=None)
        end_in_s = first.end_in_s(level) if first else math.inf
        come_in_s = jobs[coming[0]].submitted_s - now_s if coming else math.inf
        passes_s = min(end_in_s, come_in_s)
        if passes_s == math.inf:
            return ends_s
        for width in sharing:
            width.worked_s += passes_s * width.speed(level)
        if first and end_in_s <= come_in_s:
            now_s += end_in_s
            # Exactly, so that rounding neither delays this end nor hides one at the same time.
            first.worked_s = max(first.worked_s, first.ends[0][0])
            while first.ends and first.ends[0][0] <= first.worked_s:
                ends_s[heapq.heappop(first.ends)[1]] = now_s
        else:
            number = coming.popleft()
            job, now_s = jobs[number], jobs[number].submitted_s
            width = widths.setdefault(job.gpus, _Width(job.gpus))
            heapq.heappush(width.ends, (width.worked_s + job.duration_s, number))


def _level(sharing: Sequence[_Width], gpus: float) -> float:
    """Return the number of GPUs for each job that is wide enough to use them."""
    free, jobs = float(gpus), sum(len(width.ends) for width in sharing)
    for width in sorted(sharing, key=lambda width: width.gpus):
        if width.gpus * jobs >= free:
            return free / jobs
        free -= width.gpus * len(width.ends)
        jobs -= len(width.ends)
    return math.inf
