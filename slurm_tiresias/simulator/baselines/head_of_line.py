"""YARN-CS as the paper describes it and the authors' simulator runs it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from slurm_tiresias.model import Node
from slurm_tiresias.placement.free_resources import FreeResources, NodeSet, first_from
from slurm_tiresias.scheduling.cluster import Start
from slurm_tiresias.simulator.baselines.where import Where
from slurm_tiresias.simulator.engine import SimJob


class HeadOfLine:
    """First come, first served, consolidated; the first that does not fit stops all behind it.

    A job goes by the order of the nodes' names: it gets the first node that can hold it, else the
    first idle node whole, and so on with what is left of it. It waits where that would take more
    nodes than it asks for at the most. No job is preempted (paper page 493).
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._free = FreeResources(nodes)
        self._where = Where(nodes)
        self._queue: deque[SimJob] = deque()

    def waits(self, job: SimJob, now_s: float) -> None:
        self._queue.append(job)

    def runs(self, job: SimJob, now_s: float) -> None:
        pass

    def moved(self, job: SimJob, now_s: float) -> None:
        pass

    def ended(self, job: SimJob) -> None:
        self._free.give(job.allocation)

    def choose(self, now_s: float) -> Iterable[Start]:
        while self._queue:
            job = self._queue[0]
            chosen = self._first_fit(job)
            if chosen is None:
                return
            allocation = self._free.lay(chosen, job.ask.request)
            self._free.take(allocation)
            self._queue.popleft()
            yield Start(job.job_id, allocation)

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        return math.inf

    def next_wake_s(self, now_s: float) -> float:
        return math.inf

    def _first_fit(self, job: SimJob) -> Mapping[int, int] | None:
        """How many GPUs of which node, or None where the job has to wait."""
        if self._free.most_free_gpus < job.width:
            return None
        nodes, left = self._where[job.ask], job.width
        chosen: dict[int, int] = {}
        while len(chosen) < (job.ask.request.max_nodes or job.width):
            number = self._first_with_room(nodes, left)
            if number is not None:
                return chosen | {number: left}
            number = self._first_idle(nodes)
            if number is None:
                return None
            chosen[number] = self._free.free_gpus(number)
            left -= chosen[number]
            nodes &= ~(1 << number)
        return None

    def _first_with_room(self, nodes: NodeSet, gpus: int) -> int | None:
        roomy = self._free.with_free_gpus(nodes, gpus)
        return first_from(roomy, 0) if roomy else None

    def _first_idle(self, nodes: NodeSet) -> int | None:
        """The first of the largest nodes that are idle."""
        idle = (idle for _, idle, _ in self._free.emptiest_first(nodes) if idle)
        largest = next(idle, 0)
        return first_from(largest, 0) if largest else None
