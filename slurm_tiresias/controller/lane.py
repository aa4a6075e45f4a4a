"""The lane for jobs at a prompt: how much of it each user has, and which waiting jobs are
admitted."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping

from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.manage import why_cannot_be_requeued
from slurm_tiresias.core.features.lanes import (
    WINDOW_S,
    Applicant,
    LaneUse,
    used_gpu_s,
    why_refused,
)
from slurm_tiresias.core.features.window import is_recent
from slurm_tiresias.core.rank import job_id_key
from slurm_tiresias.model import JobState, JobStatus, Lane
from slurm_tiresias.settings import Config
from slurm_tiresias.store.records import RunRecord

BLOCKED = "Slurm itself keeps it waiting, and until it may start it has no place in the lane"


class LaneBook:
    """Tracks the use of the lane from cycle to cycle; a new controller starts from the ledger."""

    def __init__(self, job_store: JobStore, config: Config) -> None:
        self._job_store = job_store
        self._config = config.interactive
        self._ended: dict[tuple[str, float], tuple[str, RunRecord]] | None = None
        """The ended runs that still count, with their users, by job and start."""

    def follow(self, now_s: float) -> None:
        """Take in the runs that have ended, as far as they are known. Call it in each cycle,
        because the job store forgets ended jobs once their figures are final."""
        since_s = now_s - WINDOW_S
        if self._ended is None:
            in_ledger = self._job_store.runs.in_lane(Lane.INTERACTIVE, since_s)
            self._ended = {(run.key, run.start_s): (user, run) for user, run in in_ledger}
        for key, record in self._job_store.accounts.all.items():
            if record.lane is Lane.INTERACTIVE:
                for run in self._job_store.runs.of(key):
                    if run.end_s is not None:
                        self._ended[key, run.start_s] = (record.user, run)
        over = [
            of
            for of, (_, run) in self._ended.items()
            if run.end_s is not None and not is_recent(run.end_s, now_s, WINDOW_S)
        ]
        for of in over:
            del self._ended[of]

    def admit(
        self, alive: Iterable[JobStatus], blocked: Container[str], now_s: float
    ) -> Mapping[str, str]:
        """Put waiting jobs at a prompt into the lane, or take them out, by their users' bounds.

        Parameters
        ----------
        alive
            The jobs that have not ended.
        blocked
            Those that Slurm would not start now. They do not count against the bound meanwhile.

        Returns
        -------
        Mapping
            By job, why it may use idle GPUs only.
        """
        why: dict[str, str] = {}
        applicants: list[Applicant] = []
        running: list[JobStatus] = []
        at_a_prompt: dict[str, str] = {}
        """The waiting jobs, with the reason why each is not in the lane; "" if it is."""
        for job in self._job_store.in_hand.each(alive):
            cannot = why_cannot_be_requeued(job.spec)
            record = self._job_store.accounts.of(job.key) if cannot else None
            if record is None or self._job_store.why_unmanaged(job.key):
                continue
            if not job.spec.batch and job.state is JobState.PENDING:
                at_a_prompt[job.key] = BLOCKED
                if job.key not in blocked:
                    applicants.append(_applicant(job, record.lane))
            elif record.lane is Lane.IDLE_ONLY:
                why[job.key] = cannot
            elif record.lane is Lane.INTERACTIVE and job.state is JobState.RUNNING:
                running.append(job)
        if applicants:
            at_a_prompt |= why_refused(applicants, self._use(running, now_s), self._config)
        for key, because in at_a_prompt.items():
            lane = Lane.IDLE_ONLY if because else Lane.INTERACTIVE
            self._job_store.put_in_lane(key, lane, now_s)
        why |= {key: because for key, because in at_a_prompt.items() if because}
        return why

    def _use(self, running: Iterable[JobStatus], now_s: float) -> Mapping[str, LaneUse]:
        """Return how much of the lane each user has, not counting waiting jobs."""
        use: dict[str, LaneUse] = {}
        if self._ended is None:
            self.follow(now_s)
        for user, run in (self._ended or {}).values():
            assert run.end_s is not None
            served_gpu_s = used_gpu_s(run.gpus, run.end_s - run.elapsed_s, run.end_s, now_s)
            use[user] = use.get(user, LaneUse()).plus(0, served_gpu_s)
        for job in running:
            ran_s = self._job_store.runs.ran_s(job)
            limit_s = math.inf if job.spec.time_limit_s is None else job.spec.time_limit_s
            gpus = sum(amount.gpu_count for amount in job.allocation.values())
            until_s = now_s + max(0.0, limit_s - ran_s)
            most_gpu_s = used_gpu_s(gpus, now_s - ran_s, until_s, now_s)
            use[job.spec.user] = use.get(job.spec.user, LaneUse()).plus(gpus, most_gpu_s)
        return use


def _applicant(job: JobStatus, lane: Lane) -> Applicant:
    spec = job.spec
    return Applicant(
        job.key,
        spec.user,
        spec.request.gpu_count,
        spec.time_limit_s,
        spec.request.exclusive,
        lane is Lane.INTERACTIVE,
        (spec.submit_s, *job_id_key(job.key)),
    )
