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
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class SharedJob(NamedTuple):
    """The facts about a job that the reference needs: ``duration_s`` is its running time on all of
    its GPUs, ``gpus`` its width."""

    submitted_s: float
    gpus: float
    duration_s: float


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
    shares = FairShares(gpus)
    ends_s = [math.inf] * len(jobs)
    for number in sorted(range(len(jobs)), key=lambda n: jobs[n].submitted_s):
        job = jobs[number]
        shares.enter(str(number), job.gpus, job.submitted_s)
        shares.expect(str(number), job.duration_s)
    shares.advance(math.inf)
    for number, job in enumerate(jobs):
        if job.duration_s < math.inf:
            end_s = shares.reached_s(str(number), job.duration_s)
            assert end_s is not None
            ends_s[number] = end_s
    return ends_s


@dataclass(slots=True)
class _Width:
    """The jobs of one width. Those that have not ended all progress at the same speed."""

    gpus: float
    sharing: int = 0
    """How many of them have not ended."""
    worked_s: float = 0.0
    """Running time on all its GPUs that a job of this width would have had since the beginning."""
    ends: list[tuple[float, str]] = field(default_factory=list)
    """Heap of (``worked_s`` at which the job ends, job id); outdated entries are skipped."""
    times_s: list[float] = field(default_factory=list)
    worked_at_s: list[float] = field(default_factory=list)
    """``worked_s`` at these times; it grows linearly between them."""
    trimmed_at: int = 1024
    """The number of times at which unneeded ones are dropped."""

    def note(self, now_s: float) -> None:
        self.times_s.append(now_s)
        self.worked_at_s.append(self.worked_s)


@dataclass(slots=True)
class _Member:
    width: _Width
    began_at_s: float
    """``worked_s`` of its width when it began; the difference to the present value is what the job
    has had."""
    ends_at_s: float = math.inf
    """``worked_s`` of its width at its end: expected, or past if it has ended."""
    ended: bool = False
    leaves: bool = False
    """Whether it is dropped once it has ended."""
    before: list[tuple[float, float]] = field(default_factory=list)
    """For each time at which it was taken to have ended too early: what it had had, and
    ``began_at_s``."""

    @property
    def had_s(self) -> float:
        return (self.ends_at_s if self.ended else self.width.worked_s) - self.began_at_s


class FairShares:
    """The running time that jobs would have had under fluid max-min fair sharing.

    Lengths need not be known: a job shares until it has had its last expected running time, and
    shares again if more is expected later. Time only advances.
    """

    def __init__(self, gpus: float) -> None:
        self.gpus = gpus
        """GPUs of the cluster from now on; time must have advanced to their change."""
        self._now_s = -math.inf
        self._widths: dict[float, _Width] = {}
        self._members: dict[str, _Member] = {}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._members

    def shift(self, by_s: float) -> None:
        """Follow a step of the clock."""
        self._now_s += by_s
        for width in self._widths.values():
            width.times_s = [at_s + by_s for at_s in width.times_s]

    def enter(self, job_id: str, gpus: float, now_s: float) -> None:
        """Add a job of unknown length; it takes the place of one of the same id that has left."""
        self.advance(now_s)
        before = self._members.get(job_id)
        if before is not None and not before.ended:
            before.width.sharing -= 1
        width = self._widths.setdefault(gpus, _Width(gpus))
        if not width.sharing:
            width.note(self._now_s)
        width.sharing += 1
        self._members[job_id] = _Member(width, width.worked_s)

    def expect(self, job_id: str, run_s: float) -> None:
        """Set the expected total running time of a job; infinite if it is unknown."""
        job = self._members[job_id]
        if job.ended:
            had_s = job.had_s
            if _is_within(run_s, had_s):
                return
            if not job.width.sharing:
                job.width.note(self._now_s)
            job.before.append((had_s, job.began_at_s))
            job.began_at_s = job.width.worked_s - had_s
            job.ended = False
            job.width.sharing += 1
        job.ends_at_s = job.began_at_s + run_s
        if run_s < math.inf:
            heapq.heappush(job.width.ends, (job.ends_at_s, job_id))
            self._end_due(job.width)

    def leave(self, job_id: str, run_s: float) -> None:
        """Follow the end of a job, which shares on until it has had what it has run."""
        job = self._members[job_id]
        job.leaves = True
        self.expect(job_id, run_s)
        if job.ended:
            self._members.pop(job_id, None)

    def ended(self, job_id: str) -> bool:
        """Whether the job has had its expected running time."""
        return self._members[job_id].ended

    def had_s(self, job_id: str) -> float:
        """Return the running time that a job has had by now."""
        return self._members[job_id].had_s

    def reached_s(self, job_id: str, run_s: float) -> float | None:
        """Return when a job had had this much running time; None if it has not yet."""
        job = self._members[job_id]
        width = job.width
        if not _is_within(run_s, job.had_s):
            return None
        began_s = (began_at_s for had_s, began_at_s in job.before if _is_within(run_s, had_s))
        at_s = min(next(began_s, job.began_at_s) + run_s, width.worked_s)
        after = bisect_left(width.worked_at_s, at_s)
        if after == 0:
            return width.times_s[0]
        if after == len(width.times_s):
            return width.times_s[-1]
        least_s, most_s = width.worked_at_s[after - 1], width.worked_at_s[after]
        share = (at_s - least_s) / (most_s - least_s)
        return width.times_s[after - 1] + share * (width.times_s[after] - width.times_s[after - 1])

    def advance(self, to_s: float) -> None:
        """Advance time."""
        while self._now_s < to_s:
            sharing = [width for width in self._widths.values() if width.sharing]
            if not sharing:
                break
            level = self._level(sharing)
            until_s, first = to_s - self._now_s, None
            for width in sharing:
                if width.ends:
                    in_s = max(0.0, width.ends[0][0] - width.worked_s) / _speed(width, level)
                    if in_s < until_s:
                        until_s, first = in_s, width
            if until_s == math.inf:
                break
            for width in sharing:
                width.worked_s += until_s * _speed(width, level)
            self._now_s = to_s if first is None else self._now_s + until_s
            if first is not None:
                # Compare exactly, so that rounding neither delays this end nor hides one at the
                # same time.
                first.worked_s = max(first.worked_s, first.ends[0][0])
            for width in sharing:
                width.note(self._now_s)
                self._end_due(width)
                if len(width.times_s) > width.trimmed_at:
                    self._trim(width)
        if to_s < math.inf:
            self._now_s = max(self._now_s, to_s)

    def _end_due(self, width: _Width) -> None:
        """End the jobs that have had their expected running time; drop outdated entries."""
        while width.ends:
            ends_at_s, job_id = width.ends[0]
            job = self._members.get(job_id)
            if job is not None and not job.ended and job.ends_at_s == ends_at_s:
                if ends_at_s > width.worked_s:
                    return
                # Running time that it already had cannot be taken back.
                job.ends_at_s = width.worked_s
                job.ended = True
                width.sharing -= 1
                if job.leaves:
                    del self._members[job_id]
            heapq.heappop(width.ends)

    def _trim(self, width: _Width) -> None:
        """Drop the recorded times before the first job of a width began."""
        members = (
            job.before[0][1] if job.before else job.began_at_s
            for job in self._members.values()
            if job.width is width
        )
        needed = max(0, bisect_left(width.worked_at_s, min(members, default=math.inf)) - 1)
        del width.times_s[:needed], width.worked_at_s[:needed]
        width.trimmed_at = max(1024, 2 * len(width.times_s))

    def _level(self, sharing: Sequence[_Width]) -> float:
        """Return the number of GPUs for each job that is wide enough to use them."""
        free, jobs = float(self.gpus), sum(width.sharing for width in sharing)
        for width in sorted(sharing, key=lambda width: width.gpus):
            if width.gpus * jobs >= free:
                return free / jobs
            free -= width.gpus * width.sharing
            jobs -= width.sharing
        return math.inf


def _speed(width: _Width, level: float) -> float:
    return min(1.0, level / width.gpus)


def _is_within(run_s: float, had_s: float) -> bool:
    """Whether a job has had this much running time, despite rounding."""
    return run_s <= had_s * (1.0 + 1e-12)
