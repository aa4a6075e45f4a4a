"""YARN-CS as the paper describes it and the authors' simulator implements it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.placement.free_resources import FreeResources
from slurm_tiresias.core.placement.node_set import NodeSet, lowest
from slurm_tiresias.model import Node
from slurm_tiresias.simulator.baselines.where import Where
from slurm_tiresias.simulator.engine import Scheduler, SimJob


class HeadOfLine(Scheduler):
    """First come, first served, consolidated; a job that does not fit blocks all jobs behind it.

    A job gets the first node by name that can hold it. If there is none, it gets the first of the
    largest idle nodes whole, and the rest of the job is placed in the same way. It waits if that
    would take more nodes than its maximum. No job is preempted (paper page 493).
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._free = FreeResources(nodes)
        self._where = Where(nodes)
        self._queue: deque[SimJob] = deque()

    def waits(self, job: SimJob, now_s: float) -> None:
        self._queue.append(job)

    def ended(self, job: SimJob) -> None:
        self._free.give(job.allocation)

    def choose(self, now_s: float) -> Iterable[Start]:
        while self._queue:
            job = self._queue[0]
            chosen = first_fit(job, self._where[job.ask], self._free)
            if chosen is None:
                return
            allocation = self._free.lay(chosen, job.ask.request)
            self._free.take(allocation)
            self._queue.popleft()
            yield Start(job.job_id, allocation)


def first_fit(job: SimJob, nodes: NodeSet, free: FreeResources) -> Mapping[int, int] | None:
    """Return the GPUs by node number, consolidated on the first nodes; None if it does not fit."""
    if free.most_free_gpus < job.gpus:
        return None
    left = job.gpus
    chosen: dict[int, int] = {}
    while len(chosen) < (job.ask.request.max_nodes or job.gpus):
        roomy = free.with_free_gpus(nodes, left)
        if roomy:
            return chosen | {lowest(roomy): left}
        idle = (idle for _, idle, _ in free.emptiest_first(nodes) if idle)
        largest = next(idle, 0)
        if not largest:
            return None
        number = lowest(largest)
        chosen[number] = free.free_gpus(number)
        left -= chosen[number]
        nodes &= ~(1 << number)
    return None
