"""What a forecast draws from: how long a site's jobs ran, and when they were submitted."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from random import Random
from typing import NamedTuple

import numpy as np

from slurm_tiresias.core.features.claims import claimed_gpu_s
from slurm_tiresias.core.features.recurring import ENOUGH, Group, groups_of
from slurm_tiresias.core.job import Job
from slurm_tiresias.simulator.workload import TraceJob

KEPT_OF_A_GROUP = 1000
"""How many of the latest jobs of each group count."""

HOUR_S, DAY_S = 3600.0, 86400.0
LEAST_HISTORY_S = HOUR_S
"""No arrivals are drawn from a shorter history."""

MOST_AHEAD_S = 14 * DAY_S
MOST_ARRIVALS = 2000
"""Bounds of what is drawn for one future."""

MOST_HISTORY_S = 3 * DAY_S
"""From how long ago arrivals are drawn at most."""

LEAST_BLOCK_S = 900.0
BLOCKS = 4
"""Arrivals are drawn in blocks, each as long as all before it, of an earlier time that is at most
so many times as long ago: the near future is like the recent past. Blocks of an hour and more are
of the same time of an earlier day, once there is one."""

SETTLED_SIGMA = 0.1
"""How far a report is taken to be off, in logarithms, if it comes without a range."""

IN_A_RANGE = 2 * 1.645
"""The logarithmic width of a range that holds nine cases of ten, in standard deviations."""


class PastJob(NamedTuple):
    """A job that was submitted: how long it has run, and whether it has ended."""

    submitted_s: float
    gpus: int
    user: str
    name: str
    limit_s: float | None
    ran_s: float
    ended: bool

    @staticmethod
    def of(job: Job, *, ended: bool) -> PastJob:
        names = job.user, job.name, job.time_limit_s
        return PastJob(job.submitted_s, job.request.gpu_count, *names, job.run_s, ended)


class Survival:
    """The distribution of the running times of some jobs, of which some still go on.

    It is the estimate of Kaplan and Meier: without the jobs that go on, it would be that of the
    short ones.
    """

    def __init__(self, jobs: Iterable[tuple[float, bool]]) -> None:
        """``jobs`` are running times, and whether each job has ended."""
        ran_s, ended = zip(*sorted(jobs, key=lambda job: (job[0], not job[1])), strict=True)
        left = len(ran_s) - np.arange(len(ran_s))
        survive = np.cumprod(np.where(ended, 1.0 - 1.0 / left, 1.0))
        at = np.flatnonzero(ended)
        self._ends_s: list[float] = np.array(ran_s)[at].tolist()
        self._gone: list[float] = [0.0, *(1.0 - survive[at]).tolist()]
        """The share that has ended before the first of these ends, then at each."""

    def __len__(self) -> int:
        return len(self._ends_s)

    def quantile(self, share: float) -> float:
        """Return the value that this share is not above; infinite beyond what is known."""
        place = bisect_left(self._gone, share)
        if share <= 0.0 or place > len(self._ends_s):
            return math.copysign(math.inf, share)
        return self._ends_s[place - 1]

    def total_s(self, executed_s: float, share: float) -> float:
        """Return the running time that this share of the jobs exceeds that ran for
        ``executed_s``; beyond what is known, a power law."""
        passed = bisect_right(self._ends_s, executed_s)
        left = (1.0 - self._gone[passed]) * share
        ends = bisect_left(self._gone, 1.0 - left, passed + 1)
        if ends <= len(self._ends_s):
            return self._ends_s[ends - 1]
        last_s = max(executed_s, self._ends_s[-1] if self._ends_s else 0.0)
        beyond = 1.0 - self._gone[-1]
        return last_s * (beyond / left if beyond > 0.0 and left > 0.0 else 1.0 / share)


class Past:
    """The jobs that a site knows of, by which the lengths and arrivals of others are drawn."""

    def __init__(self, jobs: Sequence[PastJob], now_s: float) -> None:
        self._jobs = sorted(jobs, key=attrgetter("submitted_s"))
        self._now_s = now_s
        self._groups: dict[Group, list[tuple[float, bool]]] = {}
        for job in self._jobs:
            if job.ran_s > 0.0:
                for group in groups_of(job.user, job.name, job.limit_s):
                    self._groups.setdefault(group, []).append((job.ran_s, job.ended))
        self._known: dict[Group, Survival] = {}

    @property
    def is_known(self) -> bool:
        """Whether enough jobs have ended to draw lengths from."""
        return sum(ended for _, ended in self._groups.get((), ())) >= ENOUGH

    def _survival(self, group: Group) -> Survival:
        if group not in self._known:
            self._known[group] = Survival(self._groups[group][-KEPT_OF_A_GROUP:])
        return self._known[group]

    def total_s(
        self, user: str, name: str, limit_s: float | None, executed_s: float, chance: Random
    ) -> float:
        """Draw how long a job runs in total, of those that run for longer than ``executed_s``.

        The larger the group of jobs like it, the more likely it is that group that is drawn from.
        """
        share = 1.0 - chance.random()
        for group in groups_of(user, name, limit_s):
            if group in self._groups:
                alike = self._survival(group)
                if not group or chance.random() < len(alike) / (len(alike) + ENOUGH):
                    return alike.total_s(executed_s, share)
        return (limit_s or DAY_S) * share

    def remaining_s(self, job: Job, chance: Random) -> float:
        """Draw how long a job still runs: by its reports, or else by what jobs like it needed."""
        if job.claim is not None and claimed_gpu_s(job) is not None:
            left_s = (job.claim.total_gpu_s - job.attained_gpu_s) / max(1, job.width)
            drawn_s = max(1.0, left_s) * math.exp(_sigma(job) * chance.gauss(0.0, 1.0))
        else:
            total_s = self.total_s(job.user, job.name, job.time_limit_s, job.run_s, chance)
            drawn_s = max(1.0, total_s - job.run_s)
        if job.time_limit_s is None:
            return drawn_s
        ran_s = 0.0 if job.running_since_s is None else job.settled_s - job.running_since_s
        return min(drawn_s, max(1.0, job.time_limit_s - ran_s))

    @property
    def days(self) -> float:
        """For how many days it is known which jobs were submitted; 0 if that is too little."""
        span_s = self._now_s - self._jobs[0].submitted_s if self._jobs else 0.0
        return min(span_s, MOST_HISTORY_S) / DAY_S if span_s >= LEAST_HISTORY_S else 0.0

    def arrivals(self, chance: Random) -> tuple[TraceJob, ...]:
        """Draw the jobs that are submitted from now on: as in earlier blocks of time."""
        return tuple(self._arrivals(chance)) if self.days else ()

    def _arrivals(self, chance: Random) -> Iterator[TraceJob]:
        span_s = self.days * DAY_S
        begin_s, number = 0.0, 0
        while begin_s < MOST_AHEAD_S and number < MOST_ARRIVALS:
            block_s = min(max(LEAST_BLOCK_S, begin_s), span_s / BLOCKS, DAY_S)
            ago_s = chance.uniform(block_s, min(span_s, BLOCKS * block_s))
            ahead_s = begin_s % DAY_S
            least, most = math.ceil((block_s + ahead_s) / DAY_S), int((span_s + ahead_s) / DAY_S)
            if block_s >= HOUR_S and least <= most:
                ago_s = DAY_S * chance.randint(least, most) - ahead_s
            since_s = self._now_s - ago_s
            for place in range(
                bisect_left(self._jobs, since_s, key=attrgetter("submitted_s")), len(self._jobs)
            ):
                job = self._jobs[place]
                if job.submitted_s >= since_s + block_s:
                    break
                ran_s = job.ran_s
                if not job.ended:
                    ran_s = self.total_s(job.user, job.name, job.limit_s, ran_s, chance)
                yield TraceJob(
                    f"arrival-{number}",
                    self._now_s + begin_s + job.submitted_s - since_s,
                    job.gpus,
                    max(1.0, ran_s),
                    user=job.user,
                    name=job.name,
                    limit_s=job.limit_s,
                )
                number += 1
            begin_s += block_s


def _sigma(job: Job) -> float:
    per_step = job.progress.per_step if job.progress else None
    if per_step is None or not 0.0 < per_step.least_s <= per_step.most_s:
        return SETTLED_SIGMA
    return math.log(per_step.most_s / per_step.least_s) / IN_A_RANGE
