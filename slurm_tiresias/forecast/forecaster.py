"""Pictures of when all waiting jobs start, and how the ranges in earlier pictures turned out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from slurm_tiresias.core.job import Job
from slurm_tiresias.forecast.futures import Drawn, Futures, Present
from slurm_tiresias.forecast.past import Past
from slurm_tiresias.forecast.ranges import Awaited, Calibration, Range, Spread, spread_of
from slurm_tiresias.model import JobState
from slurm_tiresias.settings import Config

FUTURES, LEAST_FUTURES = 12, 8
"""With fewer than the second, nothing is said."""

MOST_AWAITED = 300
"""Of about how many waiting jobs it is followed how their ranges turn out. They are drawn by their
ids, since those that have waited longest differ from the others."""

AGAIN = 1.25
"""The range of a job that waits on is recorded again when it has waited for this many times as
long as at the last time."""


Started = Callable[[str, float], float | None]
"""Returns when a job first started at or after a time; None if it has not."""


@dataclass(frozen=True, slots=True)
class Picture:
    """When all jobs of a present start."""

    made_s: float
    futures: int
    days: float
    """From how many days the arrivals were drawn; 0: none were."""
    raw: Mapping[str, Spread | None]
    """Of all waiting jobs; None for one that starts in too few futures."""
    corrected: Mapping[str, Range | None]
    until_s: float
    """How far ahead all futures got."""
    coverage: tuple[int, float, float]
    """As of ``Calibration``."""
    is_bad: bool
    """Whether too few of the latest ranges have held to give any."""


class Forecaster:
    """Makes the pictures of a site, and learns from how they turn out."""

    def __init__(self, config: Config, calibration: Calibration | None = None) -> None:
        self._config = config
        self.calibration = calibration or Calibration()
        self._awaited: dict[str, list[Awaited]] = {}

    def look(
        self,
        made: Futures,
        past: Past,
        most_s: float,
        started_s: Started,
        between: Callable[[], None] = lambda: None,
    ) -> Picture:
        """Make a picture in at most ``most_s`` of CPU time, and record it; ``between`` is called
        after each future."""
        at = made.at
        self._follow(at, started_s)
        waiting, drawn = made.waiting, list[Drawn]()
        for number in range(FUTURES if waiting and past.is_known else 0):
            one = made.begin(f"{at.now_s}:{number}", most_s / FUTURES, waiting).result()
            drawn += [one] if one else []
            between()
        raw: dict[str, Spread | None] = {}
        if len(drawn) >= LEAST_FUTURES:
            raw = {job_id: spread_in(job_id, drawn) for job_id in waiting}
        corrected = {job_id: self.calibration.corrected(one) for job_id, one in raw.items()}
        until_s = min((one.until_s for one in drawn), default=0.0)
        held = self.calibration.coverage(), self.calibration.is_bad
        picture = Picture(at.now_s, len(drawn), past.days, raw, corrected, until_s, *held)
        self._record(at, picture)
        return picture

    def _follow(self, at: Present, started_s: Started) -> None:
        """Learn from how long jobs have waited, and from those that have started since the last
        picture, also if they are gone."""
        jobs = {job.job_id: job for job in at.jobs}
        for job_id, awaited in list(self._awaited.items()):
            job = jobs.get(job_id)
            waits = job and job.state is JobState.PENDING and _waits(job, awaited[0])
            if not waits:
                del self._awaited[job_id]
            for one in awaited:
                start_s = None if waits else started_s(job_id, one.made_s)
                if waits or start_s is not None:
                    self.calibration.follow(one, at.now_s, start_s)
        self.calibration.weigh((one for each in self._awaited.values() for one in each), at.now_s)

    def _record(self, at: Present, picture: Picture) -> None:
        sampled = MOST_AWAITED / max(1, len(picture.raw))
        for job in at.jobs:
            raw = picture.raw.get(job.job_id)
            if raw is None or crc32(job.job_id.encode()) > sampled * 2**32:
                continue
            awaited = self._awaited.setdefault(job.job_id, [])
            waited_s = job.waited_s(at.now_s)
            if not awaited or waited_s >= AGAIN * awaited[-1].waited_s:
                awaited.append(Awaited(at.now_s, waited_s, raw, picture.corrected[job.job_id]))


def _waits(job: Job, since: Awaited) -> bool:
    """Whether a job has waited since a range was made."""
    return (job.submitted_s if job.queued_s is None else job.queued_s) <= since.made_s


def spread_in(job_id: str, drawn: Sequence[Drawn]) -> Spread | None:
    """Return the spread of a job's start in these futures."""
    after_s = [one.after_s[job_id] for one in drawn if job_id in one.after_s]
    return spread_of(after_s, [one.until_s for one in drawn if job_id not in one.after_s])
