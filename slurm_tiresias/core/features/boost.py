"""Jobs that an administrator has boosted: they go before all others, and are not preempted."""

from __future__ import annotations

import math
from collections.abc import Iterable

from slurm_tiresias.core.features.feature import Explained, Feature
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import JobAccount


class Boost(Feature):
    """Sets ``boosted``."""

    def __init__(self) -> None:
        self._boosted: dict[str, Job] = {}

    def follow(self, job: Job, now_s: float) -> None:
        job.boosted = now_s < _until_s(job)
        if job.boosted:
            self._boosted[job.job_id] = job
        else:
            self.forget(job)

    def forget(self, job: Job) -> None:
        self._boosted.pop(job.job_id, None)

    def tick(self, now_s: float) -> Iterable[Job]:
        return [job for job in self._boosted.values() if _until_s(job) <= now_s]

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        if not job.boosted:
            return None
        until = f"until {{{_until_s(job)} moment}}"
        text = f"An administrator boosts it {until}: it goes first and is not preempted."
        return Explained(says=(text,))

    @property
    def next_change_s(self) -> float:
        return min(map(_until_s, self._boosted.values()), default=math.inf)


def _until_s(job: Job) -> float:
    return -math.inf if job.boosted_until_s is None else job.boosted_until_s
