"""Tells the core what the nodes say of the GPUs of jobs, and writes down what follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.features.idle_gpus import GpuIdleness, IdleGpus, Past
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.lifecycle.preemption import Cause
from slurm_tiresias.model import RecentVictims
from slurm_tiresias.profiler.gpu_use_folder import GpuUseFolder
from slurm_tiresias.settings import Config

GPUS_IDLE: Final = "gpus-idle"
"""The event of a run whose GPUs have all been idle for long."""


def folder_of(config: Config) -> GpuUseFolder:
    """Return the folder in which nodes report the GPU use of jobs, if that is wanted."""
    return GpuUseFolder(config.profiler.collect_dir if config.idle_gpus.after_s > 0 else "")


class GpuUses:
    """Joins the nodes' reports on GPU use with the job store, from cycle to cycle."""

    def __init__(self, feature: IdleGpus, job_store: JobStore, folder: GpuUseFolder) -> None:
        self._feature = feature
        self._job_store = job_store
        self._folder = folder
        self._noted: dict[str, int] = {}
        """The run, by its restarts, in which each job was flagged last."""

    def tell(self, jobs: Iterable[Job], now_s: float, recent: RecentVictims) -> RecentVictims:
        """Tell the core what is known of these jobs now; return the recent victims with those that
        leave now."""
        self._folder.background.step_unless_started()
        jobs, in_hand = list(jobs), self._job_store.in_hand
        news = self._feature.hear(
            in_hand.each(jobs), self._folder.latest, self._past_of, now_s, recent
        )
        for key in news.used_again:
            before, account = self._job_store.runs.last_ended(key), self._job_store.accounts.of(key)
            if before is not None:
                self._job_store.runs.keep(replace(before, idle_s=0.0))
            if account is not None:
                self._job_store.accounts.put(replace(account, idle_requeues=0))
        for job in jobs:
            if found := news.running.get(job.job_id):
                self._measure(job, found, now_s)
            if text := news.flagged.get(job.job_id):
                self._note(job, text, now_s)
        self._noted = {key: run for key, run in self._noted.items() if key in news.running}
        return news.victims

    def _past_of(self, key: str) -> Past:
        before = self._job_store.runs.last_ended(key)
        past = Past(self._job_store.accounts.of(key), before.idle_s if before else 0.0)
        under_way = self._job_store.lifecycles.preemptions.get(key)
        if under_way and under_way.cause is Cause.IDLE_GPUS and under_way.makes_room:
            return past._replace(is_leaving=True, signalled_s=under_way.signalled_s)
        return past

    def _measure(self, job: Job, found: GpuIdleness, now_s: float) -> None:
        runs, start_s = self._job_store.runs, job.status.start_s
        run = None if start_s is None else runs.run(job.job_id, start_s)
        if run is not None:
            held_gpu_s = min(found.held_idle_gpu_s, run.elapsed_s * run.gpus)
            idle_s = 0.0 if found.idle_since_s is None else now_s - found.idle_since_s
            idle_gpu_s = max(run.idle_gpu_s, held_gpu_s)
            runs.keep(replace(run, idle_gpu_s=idle_gpu_s, idle_s=idle_s))

    def _note(self, job: Job, text: str, now_s: float) -> None:
        """Note once for each run that its job does nothing with its GPUs."""
        restarts = job.status.restarts
        if self._noted.get(job.job_id) == restarts:
            return
        self._noted[job.job_id] = restarts
        self._job_store.events.note_once(now_s, GPUS_IDLE, job.job_id, text)
