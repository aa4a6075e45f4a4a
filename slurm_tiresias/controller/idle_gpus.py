"""Follows which jobs leave their GPUs idle (``idle_gpus``)."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from typing import Final

from slurm_tiresias.config import FLAG, Config
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.features.idle_gpus import (
    GpuIdleness,
    idleness,
    is_flagged,
    is_to_leave,
    ranks_last,
    ranks_last_anew,
    why_not_preempted,
    why_spared,
)
from slurm_tiresias.core.features.victim_rate import VictimRate
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.lifecycle.preemption import Cause, Preemption
from slurm_tiresias.core.protections import protection_of
from slurm_tiresias.core.rank import IDLE_LEVEL
from slurm_tiresias.model import JobState, Lane, RecentVictims
from slurm_tiresias.profiler.gpu_use_folder import GpuUseFolder
from slurm_tiresias.store.records import RunRecord

GPUS_IDLE: Final = "gpus-idle"
"""The event of a run whose GPUs have all been idle for long."""


class IdleGpus:
    """Combines the nodes' reports of GPU use with Slurm's view of the jobs, from cycle to cycle.

    A restart loses nothing: the nodes report since when a run has been idle, and for how long in
    all.
    """

    def __init__(self, config: Config, job_store: JobStore, folder: GpuUseFolder) -> None:
        self._whole_config = config
        self._config = config.idle_gpus
        self._job_store = job_store
        self._folder = folder
        self._now: dict[str, GpuIdleness] = {}
        self._noted: dict[str, int] = {}
        """The run, by its restarts, in which each job was told last."""
        self._anew: set[str] = set()
        """Jobs that have ranked last since their last requeue."""
        self._now_s = 0.0

    def of(self, key: str) -> GpuIdleness | None:
        """Return what a job does with its GPUs now; None if it does not run, or that is unknown."""
        return self._now.get(key)

    def ranks_last_anew(self, key: str) -> bool:
        """Whether a job has ranked last since its last requeue."""
        return key in self._anew

    def apply(
        self, jobs: Iterable[Job], now_s: float, recent: RecentVictims, changed: set[str]
    ) -> RecentVictims:
        """Set ``ranks_last`` and ``leaves_idle``, and add the jobs that change to ``changed``.

        Returns the recent victims with those that leave now.
        """
        self._folder.background.step_unless_started()
        self._now, self._now_s, self._anew = {}, now_s, set()
        rate = VictimRate.of(self._whole_config)
        victims = rate.at(recent, now_s)
        for job in self._job_store.in_hand.each(jobs):
            found = None
            if job.state is JobState.RUNNING:
                found = self._look_at(job, now_s)
            last = job.managed and job.lane is Lane.PREEMPTIBLE and self._ranks_last(job, found)
            leaves = last and found is not None and self._leaves(job, found, now_s)
            if leaves and self._leaving(job.job_id) is None:
                leaves = victims.jobs < rate.most
                victims = rate.after(victims, int(leaves), now_s)
            if job.set(ranks_last=last, leaves_idle=leaves):
                changed.add(job.job_id)
        self._noted = {key: run for key, run in self._noted.items() if key in self._now}
        return victims

    def why_spared(self, key: str) -> str:
        """Return why a job is not preempted for its idle GPUs any more, in words."""
        return why_spared(self.of(key), self._config, self._now_s)

    def _ranks_last(self, job: Job, found: GpuIdleness | None) -> bool:
        account, before = self._job_store.record(job.job_id), self._before(job.job_id)
        idle_s = before.idle_s if before else 0.0
        if account is not None and ranks_last_anew(account, idle_s, self._config):
            self._anew.add(job.job_id)
        if job.state is JobState.RUNNING and found is None:
            return False  # it may be computing
        if job.job_id in self._anew:
            return True
        return found is not None and ranks_last(found, self._config, self._now_s)

    def _before(self, key: str) -> RunRecord | None:
        """Return the last run of a job that has ended."""
        return self._job_store.runs.last_ended(key)

    def _leaves(self, job: Job, found: GpuIdleness, now_s: float) -> bool:
        """Whether a job that ranks last is to be preempted even if no other job needs its GPUs."""
        account = self._job_store.record(job.job_id)
        if account is None or job.preemptor or not is_to_leave(found, self._config, now_s):
            return False
        under_way = self._leaving(job.job_id)
        if under_way is None and why_not_preempted(account, job.status.restarts):
            return False
        signalled_s = under_way.signalled_s if under_way else None
        if signalled_s is not None and (found.idle_since_s or 0.0) > signalled_s:
            return False  # it has used a GPU since then, which no cycle saw
        as_last = copy(job)
        as_last.ranks_last = True
        return protection_of(as_last, now_s, self._whole_config, IDLE_LEVEL) is None

    def _leaving(self, key: str) -> Preemption | None:
        """Return the preemption of a job for its idle GPUs, if it is under way and the job runs."""
        under_way = self._job_store.preemptions.get(key)
        if under_way is None or under_way.cause is not Cause.IDLE_GPUS:
            return None
        return under_way if under_way.makes_room else None

    def _look_at(self, job: Job, now_s: float) -> GpuIdleness | None:
        status = job.status
        nodes = self._folder.latest.get((status.raw_id, status.restarts))
        # That of jobs which are left to Slurm is not followed.
        began_s = status.start_s if job.running_since_s is None else job.running_since_s
        if nodes is None or began_s is None:
            return None
        gpus_on = {node: amount.gpu_count for node, amount in job.allocation.items()}
        found = idleness(nodes, gpus_on, began_s, now_s)
        if found is None:
            return None
        runs = self._job_store.runs
        before = self._before(job.job_id)
        if before is not None and found.has_been_busy and before.idle_s:
            before = replace(before, idle_s=0.0)
            runs.keep(before)
        if before is not None and found.idle_since_s is not None:
            # Otherwise the time would begin anew whenever the job is preempted.
            found = found._replace(idle_since_s=found.idle_since_s - before.idle_s)
        self._now[job.job_id] = found
        run = None if status.start_s is None else runs.run(job.job_id, status.start_s)
        if run is not None:
            held_gpu_s = min(found.held_idle_gpu_s, run.elapsed_s * run.gpus)
            idle_s = 0.0 if found.idle_since_s is None else now_s - found.idle_since_s
            idle_gpu_s = max(run.idle_gpu_s, held_gpu_s)
            runs.keep(replace(run, idle_gpu_s=idle_gpu_s, idle_s=idle_s))
        account = self._job_store.record(job.job_id)
        if account is not None and account.idle_requeues and found.has_been_busy:
            self._job_store.put(replace(account, idle_requeues=0))
        if job.managed and is_flagged(found, self._config, now_s):
            self._note(job, found, now_s)
        return found

    def _note(self, job: Job, found: GpuIdleness, now_s: float) -> None:
        """Note once for each run that its job does nothing with its GPUs."""
        restarts = job.status.restarts
        if self._noted.get(job.job_id) == restarts:
            return
        self._noted[job.job_id] = restarts
        goes_first = self._config.action != FLAG and job.protected_by is None
        goes_first = goes_first and job.lane is Lane.PREEMPTIBLE
        then = ", so it is preempted first" if goes_first else ""
        gpus = "its GPU" if found.gpus == 1 else f"none of its {found.gpus} GPUs"
        verb = "has not been used" if found.gpus == 1 else "has been used"
        text = f"{gpus} {verb} for {self._config.after_s:g} s{then}, restart {restarts}"
        if not self._job_store.was_noted(GPUS_IDLE, job.job_id, text):
            self._job_store.note(now_s, GPUS_IDLE, job.job_id, text)
