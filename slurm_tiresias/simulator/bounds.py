"""The bound on the slowdown of simulated jobs, kept as the controller keeps it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from slurm_tiresias.config import Config
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.slowdown_bound import SlowdownBound
from slurm_tiresias.model import NOT_BOUND, JobState
from slurm_tiresias.simulator.engine import SimJob


class Bounds:
    """Updates ``fair`` of waiting and running jobs."""

    def __init__(self, policy: Policy, config: Config, gpus: int) -> None:
        self._policy = policy
        self._bound = SlowdownBound(config, gpus)
        self._waiting: dict[str, SimJob] = {}
        self._running: dict[str, SimJob] = {}
        self._due: list[tuple[float, str]] = []
        """Heap of (time at which a waiting job may be at its bound, or a run near its bound is
        looked at again; job id)."""
        self._due_s: dict[str, float] = {}

    def waits(self, job: SimJob, now_s: float) -> None:
        """Follow a job that waits, from now on or still."""
        new = job.job_id not in self._waiting
        self._waiting[job.job_id] = job
        self._running.pop(job.job_id, None)
        if not job.runs and new:
            self._bound.enter(job.job_id, job.gpus_asked, job.submitted_s, now_s)
        if new:
            self._look_at(job, now_s)

    def starts(self, job: SimJob, now_s: float) -> None:
        del self._waiting[job.job_id]
        self._running[job.job_id] = job
        self._look_at(job, now_s)

    def moved(self, job: SimJob, now_s: float) -> None:
        """Follow a running job whose service, or what it reports, has changed."""
        self._look_at(job, now_s)

    def ended(self, job: SimJob) -> None:
        self._running.pop(job.job_id, None)
        self._due_s.pop(job.job_id, None)
        self._bound.shares.advance(job.end_s)
        self._bound.leave(job.job_id, job.trace.duration_s)

    def changed(self, now_s: float) -> Iterator[SimJob]:
        """Update and yield the jobs that stand otherwise to their bounds since the last call."""
        while self._due and self._due[0][0] <= now_s:
            due_s, job_id = heapq.heappop(self._due)
            if self._due_s.get(job_id) == due_s:
                job = self._waiting.get(job_id) or self._running[job_id]
                before = job.fair
                if job.state is JobState.RUNNING:
                    job.settle(now_s)
                self._look_at(job, now_s)
                if job.fair != before:
                    yield job

    @property
    def next_change_s(self) -> float:
        while self._due and self._due_s.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else math.inf

    def _look_at(self, job: SimJob, now_s: float) -> None:
        """Update what is known of a job, and when it may be at its bound."""
        bound = self._bound
        bound.shares.advance(now_s)
        remaining_gpu_s = self._policy.remaining_gpu_s(job)
        slack, job.fair = bound.look_at(job, job.run_s, remaining_gpu_s, now_s)
        due_s = math.inf
        if job.state is JobState.RUNNING:
            due_s = max(job.fair.kept_until_s, now_s + 1.0) if job.fair != NOT_BOUND else math.inf
        elif job.fair == NOT_BOUND:
            # The slack of a job that waits falls by at most a second each second.
            due_s = now_s + max(slack.slack_s - bound.margin_s(job), 1.0)
        self._due_s[job.job_id] = due_s
        if due_s < math.inf:
            heapq.heappush(self._due, (due_s, job.job_id))


def bounds_of(policy: Policy, config: Config, gpus: int) -> Bounds | None:
    """Return the bounds; None if the slowdown is not bounded."""
    return Bounds(policy, config, gpus) if config.policy.max_slowdown > 0 else None
