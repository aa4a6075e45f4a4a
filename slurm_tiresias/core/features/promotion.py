"""When a job that has waited a long time is promoted to the top tier (paper page 491)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_tiresias.core.features.news import Happened, Remember
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import JobState
from slurm_tiresias.settings.policy import PolicyConfig

MOST_DOUBLINGS = 30
"""Limit on how often the waiting time doubles; by then it is longer than any job waits."""

PROMOTE_FLOOR_S = 3600.0
"""The least wait for a promotion. Without one, wide jobs, which cross a threshold within seconds,
cycle between the tiers."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """The rule by which waiting jobs are promoted; with the default arguments, none ever is.

    A job must wait ``knob`` times its running time since the last promotion, and at least
    ``floor_s`` seconds. Long jobs would cycle between tiers even so, because in the paper a
    promotion resets the running time; so each promotion doubles the wait for the next one.
    """

    knob: float = 0.0
    floor_s: float = 0.0
    thresholds_gpu_s: tuple[float, ...] = ()

    @staticmethod
    def of(config: PolicyConfig) -> Promotion:
        """Return the rule that a configuration specifies."""
        return Promotion(config.promote_knob, PROMOTE_FLOOR_S, config.thresholds_gpu_s)

    def due_s(self, job: Job) -> float:
        """When a waiting job will be promoted; infinite if never or if it is not waiting."""
        if self.knob <= 0 or job.state is not JobState.PENDING:
            return math.inf
        if bisect_right(self.thresholds_gpu_s, job.charged_gpu_s) == 0:
            return math.inf
        since_s = job.submitted_s if job.queued_s is None else job.queued_s
        first_s = max(self.floor_s, self.knob * job.executed_since_promotion_s)
        return since_s + first_s * 2.0 ** min(job.promotions, MOST_DOUBLINGS)

    def is_due(self, job: Job, now_s: float) -> bool:
        """Whether a job has waited long enough to return to the top tier."""
        return self.due_s(job) <= now_s


def news_of(job: Job) -> Sequence[Happened | Remember]:
    """Return what is to be recorded of a job that has just been promoted."""
    promoted = {
        "promotions": job.promotions,
        "promoted_at_gpu_s": job.attained_gpu_s,
        "promoted_at_executed_s": job.run_s,
        "queued_s": job.queued_s,
    }
    happened = Happened(job.job_id, "promoted", "waited long enough to start afresh")
    return (Remember(job.job_id, promoted), happened)


NEVER = Promotion()
