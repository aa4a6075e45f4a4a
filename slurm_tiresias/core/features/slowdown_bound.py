"""The bound on harm: no job ends much later than with a fair share of the GPUs.

``policy.max_slowdown`` limits the ratio of a job's completion time to the one that it would have
had if all jobs shared the GPUs evenly (``fair_finish.py``; finish-time fairness, Themis, NSDI 2020,
section 3.1). From what is known of its length follows the latest time at which a job must run, and
from then on without a break. A waiting job for which that time has come is at its bound: it goes
before all others. If its length is known, it may preempt any job that is not near its own bound;
otherwise those that a job of the first tier may preempt. A run near its bound is not preempted.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Protocol

from slurm_tiresias.config import Config
from slurm_tiresias.core.features.fair_finish import FairShares
from slurm_tiresias.model import (
    NOT_BOUND,
    USUAL_STAKE,
    FairStanding,
    JobState,
    WorkAtStake,
)

RUNS_ON_BY: Final = 0.25
LEAST_RUN_S: Final = 300.0
"""A job of unknown length is expected to run for a quarter more than it has, or than five minutes
(chosen by simulation: the more that is expected, the fewer jobs come to their bound)."""

NEAR_S: Final = 600.0
"""A run is not preempted if the job, once preempted, could wait no longer than this. A job of
unknown length gets away from its bound by running, one of known length does not (chosen
by simulation: with two minutes, more jobs of unknown length are preempted at their bounds)."""


class BoundedJob(Protocol):
    """The job attributes on which the bound depends."""

    @property
    def job_id(self) -> str: ...
    @property
    def state(self) -> JobState: ...
    @property
    def gpus_asked(self) -> int: ...
    @property
    def preemptions(self) -> int: ...
    @property
    def at_stake(self) -> WorkAtStake | None: ...


class Slack(NamedTuple):
    """How long a job could wait from now on and still end within the bound if it then ran to its
    end; negative if it no longer can. ``known`` says whether its length is."""

    slack_s: float
    known: bool


class SlowdownBound:
    """Which jobs are at their bound, and which runs are near it."""

    def __init__(self, config: Config, gpus: int) -> None:
        self._times = config.policy.max_slowdown
        preemption = config.preemption
        self._start_takes_s = preemption.min_run_s + config.controller.interval_s
        """How long the jobs that would have to make room may be protected still."""
        self.shares = FairShares(gpus)
        self._since_s: dict[str, float] = {}

    def enter(self, job_id: str, gpus: int, since_s: float, now_s: float) -> None:
        """Count a job from ``since_s`` on: its submission, or when Slurm first let it start."""
        self.shares.enter(job_id, gpus, now_s)
        self._since_s[job_id] = since_s

    def leave(self, job_id: str, run_s: float) -> None:
        """Follow the end of a job, which shares on until it has had what it has run."""
        self.shares.expect(job_id, run_s)
        del self._since_s[job_id]

    def look_at(
        self, job: BoundedJob, run_s: float, remaining_gpu_s: float | None, now_s: float
    ) -> tuple[Slack, FairStanding]:
        """Follow what is known of a job's length; return how long it could wait, and how it
        stands. Its shares must have advanced to ``now_s``."""
        remaining_s = None if remaining_gpu_s is None else remaining_gpu_s / max(1, job.gpus_asked)
        self.expect(job, run_s, remaining_s)
        slack = self.slack(job, run_s, remaining_s, now_s)
        return slack, self.standing(job, slack, now_s)

    def expect(self, job: BoundedJob, run_s: float, remaining_s: float | None) -> None:
        """Follow what is known of a job's length: it has run for ``run_s`` in all, and is expected
        to need ``remaining_s`` more."""
        done_s = self._done_s(job, run_s)
        if remaining_s is not None:
            expected_s = done_s + remaining_s
        elif job.state is JobState.RUNNING:
            expected_s = math.inf
        else:
            expected_s = _unknown_s(done_s)
        self.shares.expect(job.job_id, expected_s)

    def slack(
        self, job: BoundedJob, run_s: float, remaining_s: float | None, now_s: float
    ) -> Slack:
        """Return how long a job could still wait."""
        done_s = self._done_s(job, run_s)
        length_s = _unknown_s(done_s) if remaining_s is None else done_s + remaining_s
        fair_end_s = self.shares.reached_s(job.job_id, length_s)
        if fair_end_s is None:
            # At the earliest: if it had all its GPUs from now on.
            fair_end_s = now_s + length_s - self.shares.had_s(job.job_id)
        since_s = self._since_s[job.job_id]
        ends_by_s = since_s + self._times * (fair_end_s - since_s)
        return Slack(ends_by_s - now_s - (length_s - done_s), remaining_s is not None)

    def margin_s(self, job: BoundedJob) -> float:
        """How long before the latest time a job is at its bound, because a start takes time."""
        return self._start_takes_s + (job.at_stake or USUAL_STAKE).restart_s

    def standing(self, job: BoundedJob, slack: Slack, now_s: float) -> FairStanding:
        """Return whether a waiting job is at its bound, or how long a run is near it."""
        left_s = slack.slack_s - self.margin_s(job)
        if job.state is not JobState.RUNNING:
            return FairStanding(left_s <= 0.0, slack.known) if left_s <= 0.0 else NOT_BOUND
        if left_s >= NEAR_S:
            return NOT_BOUND
        if slack.known:
            return FairStanding(kept_until_s=math.inf)
        # Each second of running moves the bound by at least so many seconds more than it takes.
        gains = (self._times - 1.0) * (1.0 + RUNS_ON_BY)
        return FairStanding(kept_until_s=now_s + (NEAR_S - left_s) / gains)

    def _done_s(self, job: BoundedJob, run_s: float) -> float:
        """Return the running time of a job that was no restart."""
        restart_s = (job.at_stake or USUAL_STAKE).restart_s
        return max(0.0, run_s - job.preemptions * restart_s)


def _unknown_s(done_s: float) -> float:
    return max(done_s, LEAST_RUN_S) * (1.0 + RUNS_ON_BY)
