"""Pictures of when all waiting jobs start, and how the ranges in earlier pictures turned out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from slurm_tiresias.core.job import Job
from slurm_tiresias.forecast.futures import Drawn, Fork, Futures, Present
from slurm_tiresias.forecast.ranges import Awaited, Calibration, Range, Spread
from slurm_tiresias.model import JobState

FUTURES, LEAST_FUTURES = 12, 8
"""With fewer than the second, nothing is said."""

FOLLOWED, FOLLOWED_EVERY_S = 5, 3600.0
"""Of how many waiting jobs, drawn anew so often, it is followed how their ranges turn out. More
would tell little more, since the errors of one picture are alike, and displace those of earlier
weeks."""


Started = Callable[[str, float], float | None]
"""Returns when a job first started at or after a time; None if it has not."""


@dataclass(frozen=True, slots=True)
class Picture:
    """When all jobs of a present start."""

    made_s: float
    futures: int
    days: float
    """From how many days the arrivals were drawn; 0: none were."""
    ranges: Mapping[str, Range | None]
    """Of all waiting jobs; None if too few of the latest ranges have held."""
    coverage: tuple[int, float, float]
    """As of ``Calibration``."""


class Forecaster:
    """Makes the pictures of a site, and learns from how they turn out."""

    def __init__(self, calibration: Calibration | None = None) -> None:
        self.calibration = calibration or Calibration()

    def look(
        self,
        made: Futures,
        most_s: float,
        started_s: Started,
        during: Callable[[Fork[Drawn]], None] = lambda _: None,
    ) -> Picture:
        """Make a picture in at most ``most_s`` of CPU time, and record some of its ranges;
        ``during`` is called for each future while it runs."""
        at, waiting = made.at, made.waiting
        self._follow(at, started_s)
        drawn = list[Drawn]()
        for number in range(FUTURES if waiting and made.past.is_known else 0):
            future = made.begin(f"{at.now_s}:{number}", most_s / FUTURES, waiting)
            during(future)
            one = future.result()
            drawn += [one] if one else []
        raw: dict[str, Spread] = {}
        if len(drawn) >= LEAST_FUTURES:
            raw = {job_id: made.spread_in(drawn, job_id) for job_id in waiting}
        ranges = {job_id: self.calibration.corrected(one) for job_id, one in raw.items()}
        self._record(at.now_s, raw, ranges)
        shown = dict.fromkeys(ranges) if self.calibration.is_bad else ranges
        return Picture(at.now_s, len(drawn), made.past.days, shown, self.calibration.coverage())

    def _follow(self, at: Present, started_s: Started) -> None:
        """Learn from how long jobs have waited, and from those that have started since the last
        picture, also if they are gone."""
        queued_s = {job.job_id: _queued_s(job) for job in at.jobs}
        for one in self.calibration.awaited:
            if not one.waits:
                continue
            one.waits = queued_s.get(one.job_id, math.inf) <= one.made_s
            start_s = None if one.waits else started_s(one.job_id, one.made_s)
            one.started = start_s is not None
            if one.waits or start_s is not None:
                one.waited_s = (at.now_s if start_s is None else start_s) - one.made_s
        self.calibration.learn()

    def _record(self, now_s: float, raw: Mapping[str, Spread], ranges: Mapping[str, Range]) -> None:
        latest = self.calibration.awaited[-1:]
        if latest and now_s < latest[0].made_s + FOLLOWED_EVERY_S:
            return
        new = Random(str(now_s)).sample(list(raw), min(FOLLOWED, len(raw)))
        self.calibration.await_starts(
            Awaited(key, now_s, raw[key], tuple(ranges[key])) for key in new
        )


def _queued_s(job: Job) -> float:
    """Since when a job has waited; infinite if it runs."""
    if job.state is not JobState.PENDING:
        return math.inf
    return job.submitted_s if job.queued_s is None else job.queued_s
