"""Discretized LAS in rounds, as the scheduler of Muri's testbed runs Tiresias.

The rules are those of ``dlas_sim_jobs`` in ``cluster_exp/run.py`` of github.com/Rivendile/Muri:

* Decisions are made every six minutes, and only if a job has arrived, ended or crossed a threshold.
  The GPUs of a job that ends between two rounds stay idle until the second.
* A job that has crossed a threshold joins the end of the next queue. No job is promoted.
* The queues are walked in order; a job that does not fit is passed over. Behind each walk, the jobs
  of a queue that run stand in front of those that wait.
* Each walk packs an empty cluster, consolidated, in the first nodes that fit.

There, a round with changes restarts every running job. Here, a job is preempted only if others
start and it is not chosen any more, or if the chosen jobs fit only once it has moved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.features.tiers import left_in_tier, tier_of
from slurm_tiresias.core.placement.free_resources import FreeResources
from slurm_tiresias.model import Allocation, JobState, Node
from slurm_tiresias.simulator.baselines.head_of_line import first_fit
from slurm_tiresias.simulator.baselines.where import Where, preempting
from slurm_tiresias.simulator.engine import Ask, Scheduler, SimJob

ROUND_S = 360.0


class Dlas(Scheduler):
    """Queues by attained service, cut at ``thresholds_gpu_s``, and rounds of ``ROUND_S``."""

    def __init__(self, thresholds_gpu_s: Sequence[float], nodes: Sequence[Node]) -> None:
        self._thresholds_gpu_s = thresholds_gpu_s
        self._free = FreeResources(nodes)
        self._where = Where(nodes)
        self._queues: list[dict[str, SimJob]] = [{} for _ in range(len(thresholds_gpu_s) + 1)]
        self._queue_of: dict[str, int] = {}
        self._held: Mapping[str, Allocation] = {}
        """By job, as of the last round; some of the jobs may have ended since."""
        self._ineligible: set[str] = set()
        """Victims that may not start again yet."""
        self._round_s = math.inf
        """When the next round is due; infinite if nothing has changed since the last."""

    def waits(self, job: SimJob, now_s: float) -> None:
        self._ineligible.discard(job.job_id)
        if job.job_id not in self._queue_of:
            self._join(job, 0)
        self._changes(now_s)

    def moved(self, job: SimJob, now_s: float) -> None:
        self._changes(now_s)

    def ended(self, job: SimJob) -> None:
        del self._queues[self._queue_of.pop(job.job_id)][job.job_id]
        self._changes(job.end_s)

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        if job.state is not JobState.RUNNING:
            return math.inf
        return now_s + left_in_tier(job.service_gpu_s, self._thresholds_gpu_s) / job.width

    def next_wake_s(self, now_s: float) -> float:
        return self._round_s

    def choose(self, now_s: float) -> Iterable[Start]:
        if now_s < self._round_s:
            return []
        self._round_s = math.inf
        running = self._running()
        self._demote(running.values(), now_s)
        before = {job_id: self._held[job_id] for job_id in running}
        self._give_back(self._held)
        after = self._pack(chain.from_iterable(queue.values() for queue in self._queues))
        after = self._beside(before, after)
        starts = [job_id for job_id in after if after[job_id] != before.get(job_id)]
        victims = [job_id for job_id in before if after.get(job_id) != before[job_id]]
        if victims and not starts:
            # The engine preempts jobs only for others that start.
            self._give_back(after)
            self._take(after := before)
            victims = []
        self._held = after
        self._ineligible.update(job_id for job_id in victims if job_id not in after)
        self._waiting_last()
        return preempting([Start(job_id, after[job_id]) for job_id in starts], victims)

    def _changes(self, at_s: float) -> None:
        self._round_s = min(self._round_s, ROUND_S * math.ceil(at_s / ROUND_S))

    # The queues

    def _join(self, job: SimJob, queue: int) -> None:
        self._queue_of[job.job_id] = queue
        self._queues[queue][job.job_id] = job

    def _running(self) -> Mapping[str, SimJob]:
        """Return the jobs chosen in the last round that have neither ended nor failed."""
        alive = (job_id for job_id in self._held if job_id in self._queue_of)
        jobs = {job_id: self._queues[self._queue_of[job_id]][job_id] for job_id in alive}
        return {job_id: job for job_id, job in jobs.items() if job.state is JobState.RUNNING}

    def _demote(self, running: Iterable[SimJob], now_s: float) -> None:
        for job in sorted(running, key=lambda job: job.number):
            job.settle(now_s)
            queue = tier_of(job.service_gpu_s, self._thresholds_gpu_s)
            if queue != self._queue_of[job.job_id]:
                del self._queues[self._queue_of[job.job_id]][job.job_id]
                self._join(job, queue)

    def _waiting_last(self) -> None:
        for number, queue in enumerate(self._queues):
            order = sorted(queue, key=lambda job_id: job_id not in self._held)
            self._queues[number] = {job_id: queue[job_id] for job_id in order}

    # On the nodes

    def _pack(self, jobs: Iterable[SimJob]) -> Mapping[str, Allocation]:
        """Take the GPUs of the jobs that fit, in this order."""
        taken: dict[str, Allocation] = {}
        refused: set[Ask] = set()
        for job in jobs:
            if job.ask in refused or job.job_id in self._ineligible:
                continue
            chosen = first_fit(job, self._where[job.ask], self._free)
            if chosen is None:
                refused.add(job.ask)
                continue
            taken[job.job_id] = self._free.lay(chosen, job.ask.request)
            self._free.take(taken[job.job_id])
        return taken

    def _beside(
        self, before: Mapping[str, Allocation], packed: Mapping[str, Allocation]
    ) -> Mapping[str, Allocation]:
        """Leave the running jobs among the chosen where they are, if the others fit beside them."""
        self._give_back(packed)
        stay = {job_id: before[job_id] for job_id in packed if job_id in before}
        self._take(stay)
        join = [self._queues[self._queue_of[i]][i] for i in packed if i not in before]
        joined = self._pack(join)
        if len(joined) == len(join):
            return {**stay, **joined}
        self._give_back({**stay, **joined})
        self._take(packed)
        return packed

    def _take(self, allocations: Mapping[str, Allocation]) -> None:
        for allocation in allocations.values():
            self._free.take(allocation)

    def _give_back(self, allocations: Mapping[str, Allocation]) -> None:
        for allocation in allocations.values():
            self._free.give(allocation)
