"""Measures what each preemption cost once the job runs again, and learns the cost by program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import takewhile

from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.progress import ProgressTracker, progress_in
from slurm_tiresias.core.features.preemption_cost import (
    LeftRun,
    leaving_after_save,
    leaving_of,
    leaving_without_a_step,
    restart_s_of,
    resumed_step_of,
)
from slurm_tiresias.core.features.program_costs import CostHistory, Measured
from slurm_tiresias.job_hints import checkpoint_folder_of
from slurm_tiresias.model import JobProgress, JobState, JobStatus, ProgramCosts, ProgressSource
from slurm_tiresias.slurm.protocol import Observation
from slurm_tiresias.store.records import CostSource, PreemptionCost, RunRecord

LEARNED_FROM = 5000
"""The number of the latest measured preemptions from which a controller learns when it starts."""

SETTLES_S = 60.0
"""By this time after the end of a run, its last report has been collected from its nodes."""


class PreemptionCosts:
    """Follows preemptions from their requeue until their cost is known."""

    def __init__(self, job_store: JobStore, progress: ProgressTracker) -> None:
        self._job_store = job_store
        self._progress = progress
        self._history = CostHistory()
        for user, name, cost in job_store.changes.ledger.costs.last(LEARNED_FROM):
            self._learn(user, name, cost)

    def costs_of(self, user: str, name: str) -> ProgramCosts | None:
        """Return what a preemption of a program costs; None if none was ever measured."""
        return self._history.costs_of(user, name)

    def follow(self, seen: Observation) -> None:
        """Measure the costs that have become known since the last cycle."""
        self._progress.folder.checkpoint_folders = {
            job.raw_id: folder
            for job in seen.jobs
            if job.state is JobState.RUNNING
            and (folder := checkpoint_folder_of(job.spec.admin_comment, job.spec.comment))
        }
        awaited = list(self._job_store.lifecycles.costs.awaited)
        if not awaited:
            return
        keys = {cost.key for cost in awaited}
        jobs = {job.key: job for job in seen.jobs if job.key in keys}
        for cost in self._job_store.in_hand.each(awaited):
            job = jobs.get(cost.key)
            if cost.gone_s is None and job is not None and _has_left(job, cost):
                # Slurm sets a requeued job's submission time to when its last process was gone.
                cost = replace(cost, gone_s=max(cost.asked_s, job.spec.submit_s))
                self._job_store.lifecycles.costs.put(cost)
            cost = self._with_last_save(cost, job)
            if self._may_be_known(cost, job, seen.at_s):
                self._measure(cost, job, seen.at_s)

    def _with_last_save(self, cost: PreemptionCost, job: JobStatus | None) -> PreemptionCost:
        saves = self._progress.folder.latest.saves
        saved_s = saves.get((job.raw_id, cost.restarts)) if job else None
        # Later reports belong to the next run.
        latest_s = math.inf if cost.gone_s is None else cost.gone_s + 1.0
        if saved_s is None or saved_s > latest_s or saved_s <= (cost.saved_s or 0.0):
            return cost
        cost = replace(cost, saved_s=saved_s)
        self._job_store.lifecycles.costs.put(cost)
        return cost

    def _may_be_known(self, cost: PreemptionCost, job: JobStatus | None, now_s: float) -> bool:
        """Whether to look closer, which needs a query of the ledger."""
        if job is None or job.state is None:
            return True
        told = self._progress.of(cost.key)
        if told is None:
            return now_s - cost.at_s > SETTLES_S
        went_on = told.first_step_s is not None or job.restarts > cost.restarts + 1
        return told.restarts > cost.restarts and went_on

    def _measure(self, cost: PreemptionCost, job: JobStatus | None, now_s: float) -> None:
        store, changes = self._job_store, self._job_store.changes
        rows = changes.of(changes.ledger.progress, cost.key)
        told = {row.restarts: progress_in(row) for row in rows}
        latest = self._progress.of(cost.key)
        if latest is not None:
            told[latest.restarts] = latest
        source_run = _source_run(told, cost.restarts)
        if source_run is None:
            if now_s - cost.at_s > SETTLES_S:
                self._close(_by_last_save(cost))
            return
        later = [told[n] for n in sorted(told) if n > cost.restarts]
        runs = store.runs.in_order(cost.key)
        earlier = list(takewhile(lambda run: run.start_s != cost.run_start_s, runs))
        following = next(iter(runs[len(earlier) + 1 :]), None)
        goes_on = job is not None and job.state is not None
        if not later or following is None:
            settled = following is None or _is_settled(following, now_s)
            if not goes_on and (settled or job is None):
                self._close(replace(cost, source=CostSource.ENDED))
            return
        back = told.get(cost.restarts + 1)
        restart_s = _restart_s(back, source_run, following)
        if restart_s is None:
            if following.end_s is None or not (_is_settled(following, now_s) or job is None):
                return
            # The run has made no new step at all.
            restart_s = following.elapsed_s
        left = told.get(cost.restarts)
        earlier_s = sum(run.elapsed_s for run in earlier)
        resumed_step = resumed_step_of(later[0])
        run = LeftRun(cost.run_start_s, cost.asked_s, cost.gone_s, earlier_s)
        leaving = leaving_of(run, left, resumed_step) if left else leaving_without_a_step(run)
        self._close(
            replace(
                cost,
                source=source_run.source.value,
                **asdict(leaving),
                restart_s=restart_s,
                resumed_step=resumed_step,
                save_every_s=left.save_every_s if left else None,
            )
        )

    def _close(self, cost: PreemptionCost) -> None:
        self._job_store.lifecycles.costs.put(cost)
        owner = self._job_store.accounts.owner_of(cost.key)
        if cost.is_known and owner is not None:
            self._learn(*owner, cost)

    def _learn(self, user: str, name: str, cost: PreemptionCost) -> None:
        again_s = cost.again_s or 0.0
        saved = cost.answered_s is not None and not again_s
        measured = Measured(cost.restart_s, again_s, cost.save_every_s, cost.lost_all, saved)
        self._history.add(user, name, measured)


def _by_last_save(cost: PreemptionCost) -> PreemptionCost:
    """Return the cost of preempting a job that reports no progress: at most, its last save is
    known."""
    if cost.saved_s is None:
        return replace(cost, source=CostSource.SILENT)
    run = LeftRun(cost.run_start_s, cost.asked_s, cost.gone_s)
    leaving = leaving_after_save(run, cost.saved_s)
    return replace(cost, source=CostSource.FOLDER, **asdict(leaving))


def _has_left(job: JobStatus, cost: PreemptionCost) -> bool:
    return job.restarts == cost.restarts + 1 and job.state is not JobState.COMPLETING


def _source_run(told: Mapping[int, JobProgress], restarts: int) -> JobProgress | None:
    """Return the run whose reports show what leaving the run after this many restarts cost.

    That is the run itself or an earlier one: with the library, a run reports as soon as it has
    loaded its state, so a run without a report has done nothing.
    """
    if restarts in told:
        return told[restarts]
    earlier = [told[n] for n in sorted(told) if n < restarts]
    return earlier[-1] if earlier and earlier[-1].source is ProgressSource.REPORTS else None


def _restart_s(back: JobProgress | None, before: JobProgress, following: RunRecord) -> float | None:
    if back is None:
        return None
    # Use the step time of the previous run: the first step of a run may compile, and is not
    # typical.
    step_s = before.per_step.likely_s if before.per_step else 0.0
    return restart_s_of(back, following.start_s, following.elapsed_s, step_s)


def _is_settled(run: RunRecord, now_s: float) -> bool:
    return run.end_s is not None and now_s - run.end_s > SETTLES_S
