"""How many jobs are preempted in a given time, whatever the number of decisions in it.

A job may preempt while fewer jobs than ``MAX_VICTIMS`` have been preempted
in the present interval. It may then preempt all that it needs: those beyond the limit count in the
intervals to come. So a job that needs more than the limit starts too, and in any number of
successive intervals no more jobs are preempted than the limit allows, plus what one job needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from slurm_tiresias.core.job import Job
from slurm_tiresias.model import JobState, Plan, RecentVictims
from slurm_tiresias.settings import Config

MAX_VICTIMS = 100
"""Most jobs preempted in one ``controller.interval_s``, so that a mistake does not empty a
cluster at once. In simulations a limit of 10 changes JCTs by less than
half a percent."""


@dataclass(frozen=True, slots=True)
class VictimRate:
    """At most this many victims in an interval, which begins with the first of them."""

    most: float = math.inf
    interval_s: float = math.inf

    @staticmethod
    def of(config: Config) -> VictimRate:
        return VictimRate(MAX_VICTIMS, config.controller.interval_s)

    def at(self, recent: RecentVictims, now_s: float) -> RecentVictims:
        """Return what still counts at this time, at the end of each interval less by ``most``."""
        # The clock may have been set back since.
        count, until_s = recent.jobs, min(recent.until_s, now_s + self.interval_s)
        while self.most > 0 and count > 0 and until_s <= now_s:
            count, until_s = max(0, count - int(min(self.most, count))), until_s + self.interval_s
        return RecentVictims(count, until_s)

    def after(self, recent: RecentVictims, count: int, now_s: float) -> RecentVictims:
        """Return what counts once ``count`` more jobs are preempted at this time."""
        recent = self.at(recent, now_s)
        if not count:
            return recent
        until_s = recent.until_s if recent.jobs else now_s + self.interval_s
        return RecentVictims(recent.jobs + count, until_s)


class CountedVictims:
    """Counts the victims of plans that are carried out, except those that are spared after all."""

    def __init__(self, config: Config) -> None:
        self._rate = VictimRate.of(config)
        self._recent = RecentVictims()
        self._restarts: dict[str, int] = {}
        """By victim that still runs, how often it had been requeued before."""

    def without_spared(self, jobs: Mapping[str, Job]) -> RecentVictims:
        """Return those that count; a victim that is not preempted any more is forgotten."""
        spared = 0
        for key, restarts in list(self._restarts.items()):
            job = jobs.get(key)
            runs_on = job and job.state is JobState.RUNNING and job.status.restarts == restarts
            if not job or not runs_on or not job.preemptor:
                del self._restarts[key]
                spared += bool(runs_on)
        return self._recent._replace(jobs=max(0, self._recent.jobs - spared))

    def count(
        self, plan: Plan, recent: RecentVictims, jobs: Mapping[str, Job], now_s: float
    ) -> None:
        """Count the victims of a plan beside the ``recent`` ones."""
        victims = [job_id for start in plan.starts for job_id in start.victims]
        self._restarts.update({job_id: jobs[job_id].status.restarts for job_id in victims})
        self._recent = self._rate.after(recent, len(victims), now_s)
