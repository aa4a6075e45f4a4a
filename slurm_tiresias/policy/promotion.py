"""When a job that has waited long returns to the top tier (paper page 491)."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from slurm_tiresias.config import PolicyConfig
from slurm_tiresias.model import JobState
from slurm_tiresias.policy.job_rank import JobFacts, charged_gpu_s

MOST_DOUBLINGS = 30
"""Of the time until the next promotion: by then it is longer than any job waits."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """The rule by which waiting jobs are promoted; without arguments, none ever is.

    ``knob`` times the running time since the last promotion is what a job must wait, and at least
    ``floor_s`` seconds. The floor keeps wide jobs, which cross a threshold within seconds, from
    cycling. It does not keep long jobs from it, because a promotion in the paper forgets how long a
    job has run: so each promotion doubles what the next one takes.
    """

    knob: float = 0.0
    floor_s: float = 0.0
    thresholds_gpu_s: tuple[float, ...] = ()

    @staticmethod
    def of(config: PolicyConfig) -> Promotion:
        """The rule that a configuration asks for."""
        return Promotion(config.promote_knob, config.promote_floor_s, config.thresholds_gpu_s)

    def due_s(self, job: JobFacts) -> float:
        """When a job that waits until then is promoted; infinite if it never is, or does not
        wait."""
        if self.knob <= 0 or job.state is not JobState.PENDING:
            return math.inf
        if bisect_right(self.thresholds_gpu_s, charged_gpu_s(job)) == 0:
            return math.inf
        since_s = job.submitted_s if job.queued_s is None else job.queued_s
        first_s = max(self.floor_s, self.knob * job.executed_since_promotion_s)
        return since_s + first_s * 2.0 ** min(job.promotions, MOST_DOUBLINGS)

    def is_due(self, job: JobFacts, now_s: float) -> bool:
        """Whether a job has waited long enough to return to the top tier."""
        return self.due_s(job) <= now_s


NEVER = Promotion()
