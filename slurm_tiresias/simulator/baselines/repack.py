"""SF, SRTF and SRSF: at every event the cluster is packed again, the best job first.

The rule is that of the authors' simulator. All jobs are in one list, which is sorted by cost with a
stable sort; new jobs come last among equals. A walk down the list then counts free GPUs: a job that
fits runs, and a job that does not is skipped, or preempted if it was running.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.placement.choose import place
from slurm_tiresias.core.placement.free_resources import FreeResources
from slurm_tiresias.core.placement.node_set import NodeSet
from slurm_tiresias.model import JobState, Node
from slurm_tiresias.simulator.baselines.where import Where, preempting
from slurm_tiresias.simulator.engine import Ask, Scheduler, SimJob

Cost = Callable[[int, float], float]
"""Sort key of a job, smallest first, from its GPUs and its remaining seconds.

It must be proportional to the seconds or independent of them.
"""


def fewest_gpus(gpus: int, remaining_s: float) -> float:
    """Cost of SF (paper Table 1, page 489)."""
    return gpus


def least_time(gpus: int, remaining_s: float) -> float:
    """Cost of SRTF, which is clairvoyant."""
    return remaining_s


def least_service(gpus: int, remaining_s: float) -> float:
    """Cost of SRSF, which is clairvoyant."""
    return gpus * remaining_s


class _Spot(NamedTuple):
    """The position of a job in the list: by cost, then by which job reached this cost first."""

    cost: float
    turn: int
    """Unique number that breaks ties between equal costs."""
    job: SimJob


class _Kinds:
    """Nodes grouped into kinds; all nodes of a kind may be used by the same jobs."""

    def __init__(self, nodes: Sequence[Node], free: FreeResources, where: Where) -> None:
        features = dict.fromkeys(node.features for node in nodes)
        alike = {each: kind for kind, each in enumerate(features)}
        self._of_node = {node.name: alike[node.features] for node in nodes}
        self._nodes: list[NodeSet] = [0] * len(alike)
        for name, kind in self._of_node.items():
            self._nodes[kind] |= free.nodes([name])
        self._free = free
        self._where = where

    def free_gpus(self) -> list[int]:
        """Return the idle GPUs of each kind."""
        return [self._free.gpus_free(nodes) for nodes in self._nodes]

    def held(self, job: SimJob) -> Iterable[tuple[int, int]]:
        """Return the GPUs that a job holds, by kind."""
        if len(self._nodes) == 1:
            return ((0, job.gpus),)  # as on most clusters
        return [(self._of_node[node], some.gpu_count) for node, some in job.allocation.items()]

    def usable(self, ask: Ask) -> list[int]:
        """Return the kinds that the job may use."""
        return [kind for kind, nodes in enumerate(self._nodes) if nodes & self._where[ask]]


class _Count:
    """The GPUs that a walk can still hand out, by kind of node."""

    def __init__(self, kinds: _Kinds) -> None:
        self._kinds = kinds
        self._gpus = kinds.free_gpus()

    def take_back(self, job: SimJob) -> None:
        for kind, gpus in self._kinds.held(job):
            self._gpus[kind] += gpus

    def can_give(self, job: SimJob) -> bool:
        """Give a job its GPUs if there are enough, from the kinds with the most GPUs first."""
        usable = self._kinds.usable(job.ask)
        left = job.gpus
        if sum(self._gpus[kind] for kind in usable) < left:
            return False
        for kind in sorted(usable, key=lambda kind: -self._gpus[kind]):
            some = min(left, self._gpus[kind])
            self._gpus[kind] -= some
            left -= some
        return True

    def can_keep(self, job: SimJob) -> bool:
        """Let a running job keep its GPUs if they have not been given to others."""
        before = list(self._gpus)
        for kind, gpus in self._kinds.held(job):
            self._gpus[kind] -= gpus
        if min(self._gpus) < 0:
            self._gpus = before
            return False
        return True


class Repack(Scheduler):
    """SF, SRTF or SRSF on real nodes; a job that keeps running stays on its nodes.

    The walk counts GPUs only. A job that it selects but that cannot be placed on nodes keeps
    waiting, and no job leaves unless another takes its GPUs.
    """

    def __init__(self, cost: Cost, nodes: Sequence[Node]) -> None:
        self._cost = cost
        self._free = FreeResources(nodes)
        self._where = Where(nodes)
        self._kinds = _Kinds(nodes, self._free, self._where)
        self._turns = itertools.count()
        self._spots: dict[str, _Spot] = {}
        self._running: list[_Spot] = []
        """Sorted by the cost at the last sort; the current cost may be lower."""
        self._waiting: dict[Ask, list[_Spot]] = {}
        """A heap per request: if its first job does not fit, none of the others does."""
        self._newcomers: list[SimJob] = []

    def waits(self, job: SimJob, now_s: float) -> None:
        if job.job_id in self._spots:
            self._queue(self._spots[job.job_id])
        else:
            self._newcomers.append(job)

    def runs(self, job: SimJob, now_s: float) -> None:
        insort(self._running, self._spots[job.job_id])

    def ended(self, job: SimJob) -> None:
        self._free.give(job.allocation)
        self._runs_no_more(job.job_id)
        del self._spots[job.job_id]

    def choose(self, now_s: float) -> Iterable[Start]:
        if self._all_fit():
            self._join_newcomers()
            spots = sorted(itertools.chain(*self._waiting.values()))
            self._waiting.clear()
            return self._start([spot.job for spot in spots], [])
        if not self._any_may_start():
            self._join_newcomers()
            return []
        self._sort_again(now_s)
        self._join_newcomers()
        return self._start(*self._pack())

    # The list

    def _queue(self, spot: _Spot) -> None:
        heapq.heappush(self._waiting.setdefault(spot.job.ask, []), spot)

    def _firsts(self) -> list[_Spot]:
        """Return the first waiting job of each request."""
        return [waiting[0] for waiting in self._waiting.values() if waiting]

    def _join_newcomers(self) -> None:
        for job in self._newcomers:
            cost = self._cost(job.gpus, job.work_s)
            spot = self._spots[job.job_id] = _Spot(cost, next(self._turns), job)
            self._queue(spot)
        self._newcomers.clear()

    def _runs_no_more(self, job_id: str) -> None:
        del self._running[bisect_left(self._running, self._spots[job_id])]

    def _sort_again(self, now_s: float) -> None:
        """Sort the running jobs again; the costs of waiting jobs do not change.

        A job whose cost has fallen to that of others comes after them, as before. Of two jobs that
        fell to the same cost at once, the slower one was in front.
        """
        falling = []
        for spot in self._running:
            job = spot.job
            job.settle(now_s)
            cost = self._cost(job.gpus, job.work_s)
            falling.append((cost, self._cost(job.gpus, job.speed), spot.turn, spot))
        falling.sort()
        self._running = [self._moved(spot, cost) for cost, _, _, spot in falling]
        self._running.sort()

    def _moved(self, spot: _Spot, cost: float) -> _Spot:
        if cost == spot.cost:
            return spot
        moved = self._spots[spot.job.job_id] = _Spot(cost, next(self._turns), spot.job)
        return moved

    # Shortcuts that avoid the walk

    def _all_fit(self) -> bool:
        """Whether no job was waiting and all new jobs can start, so that order does not matter."""
        if self._firsts():
            return False
        count = _Count(self._kinds)
        return all(count.can_give(job) for job in self._newcomers)

    def _any_may_start(self) -> bool:
        """Whether any job would have enough GPUs if all running jobs behind it left.

        Costs only fall, so the costs of the last sort can only overestimate the jobs behind.
        """
        waiting = [(spot.cost, spot.job) for spot in self._firsts()]
        waiting += [(self._cost(job.gpus, job.work_s), job) for job in self._newcomers]
        for cost, job in waiting:
            behind = self._running[bisect_left(self._running, cost, key=lambda spot: spot.cost) :]
            gpus_behind = sum(spot.job.gpus for spot in behind)
            if job.gpus <= self._free.most_free_gpus + gpus_behind:
                return True
        return False

    # The walk

    def _pack(self) -> tuple[list[SimJob], list[SimJob]]:
        """Return the jobs to start and the jobs to preempt, both in list order."""
        heads = self._firsts()
        behind = self._running[bisect_left(self._running, min(heads)) :]
        count = _Count(self._kinds)
        for spot in behind:
            count.take_back(spot.job)
        starting, leaving = [], []
        for job in self._in_order(heads, behind):
            if job.state is JobState.RUNNING:
                if not count.can_keep(job):
                    leaving.append(job)
            elif count.can_give(job):
                heapq.heappop(self._waiting[job.ask])
                starting.append(job)
        return starting, leaving

    def _in_order(self, heads: list[_Spot], running: Iterable[_Spot]) -> Iterator[SimJob]:
        """Yield the running jobs and the waiting jobs that may fit, in list order.

        A waiting job follows an equal request only if that job was taken off its heap; otherwise it
        cannot fit either.
        """
        heads = [*heads, *running]
        heapq.heapify(heads)
        while heads:
            spot = heapq.heappop(heads)
            yield spot.job
            waiting = self._waiting.get(spot.job.ask)
            if spot.job.state is JobState.PENDING and waiting and waiting[0] is not spot:
                heapq.heappush(heads, waiting[0])

    # On the nodes

    def _start(self, starting: Sequence[SimJob], leaving: Sequence[SimJob]) -> list[Start]:
        for job in leaving:
            self._free.give(job.allocation)
        starts = [start for job in starting if (start := self._on_nodes(job))]
        victims = [job.job_id for job in leaving if not self._stays(job)]
        for victim in victims:
            self._runs_no_more(victim)
        return preempting(starts, victims)

    def _on_nodes(self, job: SimJob) -> Start | None:
        nodes = self._where[job.ask]
        allocation = place(job.ask.request, nodes, self._free, job.ask.style)
        if allocation is None:
            self._queue(self._spots[job.job_id])
            return None
        self._free.take(allocation)
        return Start(job.job_id, allocation)

    def _stays(self, job: SimJob) -> bool:
        """Let a job keep its GPUs if the jobs that were to get them could not be placed."""
        for node, amount in job.allocation.items():
            if self._free.on(node).gpu_count < amount.gpu_count:
                return False
        self._free.take(job.allocation)
        return True
