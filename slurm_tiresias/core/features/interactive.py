"""The interactive lane, and the lane of other jobs that cannot be requeued.

A job that Slurm cannot requeue (salloc, srun, ``--no-requeue``) can never be preempted. A job at a
prompt goes first in the top tier as long as its user stays within a bound: GPUs at a time, and GPU
hours in any 24 (``[interactive]``). Any other job that cannot be requeued may use idle GPUs only,
and ranks by the most that it may use before its GPUs become free again: GPUs x time limit.

The bound counts what jobs may use by their time limits, so it holds whatever happens to them later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from slurm_tiresias.core.features.feature import Explained, Feature
from slurm_tiresias.core.features.lost_work import loses_all
from slurm_tiresias.core.features.news import Happened, Remember
from slurm_tiresias.core.features.window import is_recent
from slurm_tiresias.core.job import Job, most_service_gpu_s
from slurm_tiresias.model import JobAccount, JobState, Lane, RunRecord
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.interactive import InteractiveConfig

WINDOW_S: Final = 86_400.0
"""The window over which the GPU hours of a user are counted."""


BLOCKED: Final = "Slurm itself keeps it waiting, and until it may start it has no place in the lane"

LOOKS_EVERY_S: Final = 60.0
"""How often a refused job is looked at where nothing happens: limits are asked for in minutes."""


class InteractiveLane(Feature):
    """Sets ``lane`` and ``lane_because``.

    A run stays in the lane in which it started, even if its owner forbids its requeue later. (Slurm
    itself does that to a waiting job that it ends because its node is gone.)
    """

    def __init__(self, config: Config, runs: Iterable[tuple[str, RunRecord]] = ()) -> None:
        """``runs`` are those of the lane that have ended before, with their users."""
        self._config = config.interactive
        self._acts = config.controller.mode != "shadow"
        self._ended = {(run.key, run.start_s): (user, run) for user, run in runs}
        """The ended runs that still count, with their users, by job and start."""
        self._waiting: dict[str, Job] = {}
        """Waiting jobs at a prompt."""
        self._running: dict[str, Job] = {}
        """Running jobs of the lane."""
        self._ticked_s = -math.inf

    def run_ended(self, account: JobAccount, run: RunRecord) -> None:
        if account.lane is Lane.INTERACTIVE:
            self._ended[run.key, run.start_s] = account.user, run

    def follow(self, job: Job, now_s: float) -> None:
        self.forget(job)
        cannot_be_requeued = job.cannot_be_requeued or loses_all(job)
        if job.lane is Lane.PREEMPTIBLE and not (cannot_be_requeued or job.lane_because):
            return
        waits = job.state is JobState.PENDING
        if not cannot_be_requeued:
            self._put(job, Lane.PREEMPTIBLE, "")
        elif waits and job.at_a_prompt:
            self._waiting[job.job_id] = job
            lane = Lane.IDLE_ONLY if job.lane is Lane.PREEMPTIBLE else job.lane
            self._put(job, lane, job.lane_because)
        elif waits or (job.lane is Lane.PREEMPTIBLE and job.at_a_prompt):
            self._put(job, Lane.IDLE_ONLY, cannot_be_requeued)
        elif job.lane is Lane.INTERACTIVE and job.state is JobState.RUNNING:
            self._running[job.job_id] = job
            job.lane_because = ""
        else:
            only_idle = job.lane is Lane.IDLE_ONLY
            job.lane_because = cannot_be_requeued if only_idle else ""

    def forget(self, job: Job) -> None:
        self._waiting.pop(job.job_id, None)
        self._running.pop(job.job_id, None)

    def tick(self, now_s: float) -> Iterable[Job]:
        self._ticked_s = now_s
        if not self._waiting:
            return
        refused = dict.fromkeys(self._waiting, BLOCKED)
        may_start = (job for job in self._waiting.values() if not (job.held or job.not_eligible))
        refused |= why_refused(map(_applicant, may_start), self._use(now_s), self._config)
        for job_id, why in refused.items():
            job = self._waiting[job_id]
            if self._put(job, Lane.IDLE_ONLY if why else Lane.INTERACTIVE, why):
                yield job

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        return None if job.lane is Lane.PREEMPTIBLE else Explained({"lane": job.lane.value})

    @property
    def next_change_s(self) -> float:
        if not self._waiting:
            return math.inf
        refused = any(job.lane is Lane.IDLE_ONLY for job in self._waiting.values())
        return self._ticked_s + LOOKS_EVERY_S if refused else math.inf

    def _put(self, job: Job, lane: Lane, because: str) -> bool:
        """Put a job into a lane; return whether anything has changed."""
        before = job.lane
        changed = job.set(lane=lane, lane_because=because)
        if lane is not before:
            self.report(Remember(job.job_id, {"lane": lane}))
            if self._acts and lane is Lane.INTERACTIVE:
                self.report(Happened(job.job_id, "admitted", "goes first, as a job at a prompt"))
        return changed

    def _use(self, now_s: float) -> Mapping[str, LaneUse]:
        """Return how much of the lane each user has, not counting waiting jobs."""
        use: dict[str, LaneUse] = {}
        for of, (user, run) in list(self._ended.items()):
            if run.end_s is None or not is_recent(run.end_s, now_s, WINDOW_S):
                del self._ended[of]
                continue
            served_gpu_s = used_gpu_s(run.gpus, run.end_s - run.elapsed_s, run.end_s, now_s)
            use[user] = use.get(user, LaneUse()).plus(0, served_gpu_s)
        for job in self._running.values():
            since_s = now_s if job.running_since_s is None else job.running_since_s
            limit_s = math.inf if job.time_limit_s is None else job.time_limit_s
            most_gpu_s = used_gpu_s(job.width, since_s, max(now_s, since_s + limit_s), now_s)
            use[job.user] = use.get(job.user, LaneUse()).plus(job.width, most_gpu_s)
        return use


class LaneUse(NamedTuple):
    """A user's share of the lane: GPUs now, and the service of the last ``WINDOW_S`` plus what
    running jobs may still use."""

    gpus: float = 0
    service_gpu_s: float = 0.0

    def plus(self, gpus: float, service_gpu_s: float) -> LaneUse:
        return LaneUse(self.gpus + gpus, self.service_gpu_s + service_gpu_s)


@dataclass(frozen=True, slots=True)
class Applicant:
    """A job at a prompt that waits and could start."""

    key: str
    user: str
    gpus: float
    time_limit_s: float | None
    whole_nodes: bool
    """Whether it takes whole nodes, so that it may hold more GPUs than it requests."""
    in_lane: bool
    """Whether it was admitted before."""
    order: tuple[float, ...]
    """Sort key: the order of submission."""


def used_gpu_s(
    gpus: float, since_s: float, until_s: float, now_s: float, window_s: float = WINDOW_S
) -> float:
    """Return the part of a run's service from ``since_s`` to ``until_s`` that counts: the part
    after the beginning of the window that ends now."""
    return gpus * max(0.0, until_s - max(since_s, now_s - window_s))


def why_refused(
    applicants: Iterable[Applicant], use: Mapping[str, LaneUse], config: InteractiveConfig
) -> Mapping[str, str]:
    """Return for each job at a prompt why it is not in the lane, in words; "" if it is.

    Parameters
    ----------
    applicants
        The jobs that wait. Those admitted before keep their places; the others follow in the order
        of their submission.
    use
        By user, what jobs have of the lane that run or have run. Users without any may be missing.
    config
        The bound.
    """
    taken = dict(use)
    refused: dict[str, str] = {}
    for one in sorted(applicants, key=lambda one: (not one.in_lane, one.order)):
        of_user = taken.get(one.user, LaneUse())
        why = refused[one.key] = _why_refused(one, of_user, config)
        if not why:
            most_gpu_s = most_service_gpu_s(one.gpus, one.time_limit_s)
            taken[one.user] = of_user.plus(one.gpus, most_gpu_s)
    return refused


def _why_refused(one: Applicant, use: LaneUse, config: InteractiveConfig) -> str:
    if config.gpus_per_user == 0:
        return "jobs at a prompt have no lane on this site (interactive.gpus_per_user is 0)"
    if one.whole_nodes:
        return "jobs at a prompt that take whole nodes (--exclusive) have no lane"
    if one.gpus > config.gpus_per_user:
        return (
            f"a user has at most {config.gpus_per_user} at a prompt that go first "
            "(interactive.gpus_per_user): ask for fewer GPUs"
        )
    if use.gpus + one.gpus > config.gpus_per_user:
        return (
            f"its user's other jobs at a prompt have {use.gpus:g} of the {config.gpus_per_user} "
            "that go first (interactive.gpus_per_user)"
        )
    left_gpu_s = config.gpu_hours_per_user * 3600.0 - use.service_gpu_s
    if most_service_gpu_s(one.gpus, one.time_limit_s) <= left_gpu_s:
        return ""
    minutes = max(0, math.floor(left_gpu_s / one.gpus / 60.0))
    hours = f"{config.gpu_hours_per_user:g} GPU hours in 24 hours (interactive.gpus_per_user)"
    if minutes == 0:
        return f"its user's jobs at a prompt have used up {hours}"
    limit = "has no time limit" if one.time_limit_s is None else "may run for too long"
    return f"it {limit}, and its user has {hours}: ask for --time={minutes} or less"


def _applicant(job: Job) -> Applicant:
    request, in_lane = job.request, job.lane is Lane.INTERACTIVE
    order = (job.submitted_s, *job.id_key)
    limit_s = job.time_limit_s
    return Applicant(
        job.job_id, job.user, job.gpus_asked, limit_s, request.exclusive, in_lane, order
    )
