"""When each job would end if all jobs shared the GPUs evenly: the yardstick of who pays.

Fluid max-min fair sharing: at any time every job gets the same number of GPUs, but none more than
its width; what narrow jobs leave is shared by the wide ones. GPUs are divisible, a job is as fast
as its share of its width, and nothing has to be moved. The ratio of a job's completion time to the
one it would have had like this is its finish-time fairness (Themis, NSDI 2020, section 3.1).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class SharedJob(NamedTuple):
    """What the yardstick needs to know of a job: ``duration_s`` is its running time on all of its
    GPUs, ``gpus`` its width."""

    submitted_s: float
    gpus: int
    duration_s: float


def fair_ends_s(jobs: Sequence[SharedJob], gpus: int) -> list[float]:
    """Return when each job would end under fluid max-min fair sharing.

    Parameters
    ----------
    jobs
        In any order; a job wider than the cluster runs on all of it at most.
    gpus
        GPUs of the cluster, at least 1.

    Returns
    -------
    list of float
        One end for each job, in the order of ``jobs``; seconds on the clock of their submission.
    """
    cluster = FluidCluster(gpus)
    ends_s = [math.inf] * len(jobs)
    for number in sorted(range(len(jobs)), key=lambda n: jobs[n].submitted_s):
        job = jobs[number]
        for ended, at_s in cluster.advance(job.submitted_s):
            ends_s[ended] = at_s
        cluster.add(number, job.gpus, job.duration_s)
    for ended, at_s in cluster.advance(math.inf):
        ends_s[ended] = at_s
    return ends_s


@dataclass(slots=True)
class _Width:
    """The active jobs of one width. They all progress at the same speed."""

    gpus: int
    worked_s: float = 0.0
    """Running time on all its GPUs that a job of this width would have had since the beginning."""
    ends: list[tuple[float, int]] = field(default_factory=list)
    """Heap of (``worked_s`` at which the job ends, job number)."""


class FluidCluster:
    """The active jobs under fluid max-min fair sharing; time only goes forward."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._now_s = -math.inf
        self._widths: dict[int, _Width] = {}

    def add(self, number: int, gpus: int, duration_s: float) -> None:
        """Add a job at the present time."""
        width = self._widths.setdefault(gpus, _Width(gpus))
        heapq.heappush(width.ends, (width.worked_s + duration_s, number))

    def advance(self, to_s: float) -> Iterable[tuple[int, float]]:
        """Let time pass; yield the jobs that end, each with its time."""
        while True:
            active = [width for width in self._widths.values() if width.ends]
            if not active:
                break
            level = self._level(active)
            in_s, first = min(
                (((w.ends[0][0] - w.worked_s) / _speed(w, level)), w.gpus) for w in active
            )
            end_s = self._now_s + max(0.0, in_s)
            if end_s > to_s:
                for width in active:
                    width.worked_s += (to_s - self._now_s) * _speed(width, level)
                break
            for width in active:
                width.worked_s += max(0.0, in_s) * _speed(width, level)
            self._now_s = end_s
            # Exactly, so that rounding neither delays this end nor hides one at the same time.
            ended = self._widths[first]
            ended.worked_s = ended.ends[0][0]
            yield heapq.heappop(ended.ends)[1], end_s
        self._now_s = to_s

    def _level(self, active: Sequence[_Width]) -> float:
        """Return how many GPUs each job gets that is wide enough to use them."""
        free, jobs = float(self._gpus), sum(len(width.ends) for width in active)
        for width in sorted(active, key=lambda width: width.gpus):
            if width.gpus * jobs >= free:
                return free / jobs
            free -= width.gpus * len(width.ends)
            jobs -= len(width.ends)
        return math.inf


def _speed(width: _Width, level: float) -> float:
    return min(1.0, level / width.gpus)
