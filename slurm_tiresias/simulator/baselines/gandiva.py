"""Gandiva's time slicing, by the rules of the authors' simulator of it.

Jobs with equal requests share groups of nodes and take turns on them. The paper compares to this
simulator (Table 5, page 495), not to Gandiva itself, so its rules are kept, including odd ones:

* Time advances in steps of 10 s; an arrival cuts a step short and begins the next. A job that ends
  within a step holds its GPUs until the end of the step.
* Turns change at steps that fall on a full minute. After a job has arrived at a time that is not a
  multiple of 10 s, there are no turns until another arrives at a multiple.
* The jobs of one width get the share of the cluster that matches their share of the demand. Groups
  are created and dissolved at every step to approach these shares.
* The load of a group is the number of jobs dealt to it since it was last rearranged.
* Waiting jobs are tried only when a group has become free, and of two consecutive jobs that could
  both start, only the first does.

The reference does not support different nodes. Here, jobs that name a GPU type have groups of their
own, and a group takes the largest nodes available. Suspending and resuming take Gandiva about a
second; here they cost nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter

from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.placement.features import matches
from slurm_tiresias.model import Allocation, Node
from slurm_tiresias.simulator.baselines.where import by_name, preempting
from slurm_tiresias.simulator.engine import Scheduler, SimJob
from slurm_tiresias.simulator.workload import TraceJob

STEP_S = 10.0
TURN_S = 60.0


class _Steps:
    """The times of the steps, which follow from the arrivals."""

    def __init__(self, arrivals_s: Iterable[float]) -> None:
        self._arrivals_s = sorted(set(arrivals_s))

    def at_or_after(self, at_s: float) -> float:
        since_s, next_s = self._between(at_s)
        return min(next_s, since_s + STEP_S * math.ceil((at_s - since_s) / STEP_S))

    def after(self, at_s: float) -> float:
        since_s, next_s = self._between(at_s)
        return min(next_s, since_s + STEP_S * (math.floor((at_s - since_s) / STEP_S) + 1))

    def next_turn_s(self, now_s: float) -> float:
        """Return the next step on a full minute; infinite if an arrival comes first, or if the last
        arrival was not at a multiple of ``STEP_S``."""
        since_s, next_s = self._between(now_s)
        turn_s = TURN_S * (math.floor(now_s / TURN_S) + 1)
        return turn_s if turn_s < next_s and since_s % STEP_S == 0 else math.inf

    def _between(self, at_s: float) -> tuple[float, float]:
        """Return the last arrival and the next; the latter is infinite if there is none."""
        index = bisect_right(self._arrivals_s, at_s)
        later_s = self._arrivals_s[index] if index < len(self._arrivals_s) else math.inf
        return self._arrivals_s[index - 1], later_s


@dataclass(frozen=True, order=True, slots=True)
class _JobClass:
    """Jobs that may share a group: those with the same width and required node features."""

    width: int
    features: str


@dataclass(slots=True, eq=False)
class _Group:
    """Nodes that jobs of one class share; the first ``slots`` of its jobs run."""

    job_class: _JobClass
    nodes: Sequence[Node]
    gpus: int
    slots: int
    jobs: list[SimJob] = field(default_factory=list)
    dealt: int = 0
    """Number of jobs added since it was last rearranged, including jobs that have left."""

    @classmethod
    def of(cls, job_class: _JobClass, nodes: Sequence[Node]) -> _Group:
        return cls(job_class, nodes, _gpus(nodes), _gpus(nodes) // job_class.width)

    @property
    def running(self) -> list[SimJob]:
        return self.jobs[: self.slots]

    def add(self, job: SimJob) -> None:
        self.jobs.append(job)
        self.dealt += 1


class Gandiva(Scheduler):
    """Time slicing over ``nodes``, several of which may share a name (see ``real_nodes``).

    ``jobs`` are all jobs of the workload.
    """

    def __init__(self, nodes: Sequence[Node], jobs: Iterable[TraceJob]) -> None:
        self._free = list(nodes)
        self._gpus = _gpus(nodes)
        self._steps = _Steps(job.submitted_s for job in jobs)
        self._groups: dict[_JobClass, list[_Group]] = {}
        """The groups of each class, the least used first."""
        self._live: set[str] = set()
        self._newcomers: list[SimJob] = []
        self._pending: list[SimJob] = []
        self._over: set[str] = set()
        self._runs_in: dict[str, _Group] = {}
        self._settled = True
        """Whether the next step would only change turns."""

    def waits(self, job: SimJob, now_s: float) -> None:
        if job.job_id not in self._live:
            self._live.add(job.job_id)
            self._newcomers.append(job)

    def runs(self, job: SimJob, now_s: float) -> None:
        job.end_s = self._steps.at_or_after(job.end_s)

    def ended(self, job: SimJob) -> None:
        self._live.remove(job.job_id)
        self._over.add(job.job_id)
        del self._runs_in[job.job_id]

    def choose(self, now_s: float) -> Iterable[Start]:
        self._take_turns(now_s)
        came_free = self._give_up_empty_groups()
        self._pending += [job for job in self._newcomers if not self._joins(job)]
        self._newcomers.clear()
        if came_free:
            self._try_pending()
        self._settled = not self._share_out()
        return self._switch()

    def next_wake_s(self, now_s: float) -> float:
        if not self._settled:
            return self._steps.after(now_s)
        shared = any(len(g.jobs) > g.slots for groups in self._groups.values() for g in groups)
        return self._steps.next_turn_s(now_s) if shared else math.inf

    # The end of a step

    def _take_turns(self, now_s: float) -> None:
        """On a full minute, move the jobs that ran behind the others; remove ended jobs."""
        for groups in self._groups.values():
            for group in groups:
                if now_s % TURN_S == 0 and len(group.jobs) > group.slots:
                    group.jobs = group.jobs[group.slots :] + group.jobs[: group.slots]
                if self._over:
                    group.jobs = [job for job in group.jobs if job.job_id not in self._over]
        self._over.clear()

    def _give_up_empty_groups(self) -> bool:
        """Dissolve groups without jobs; return whether there were any."""
        empty = False
        for groups in self._groups.values():
            for group in [group for group in groups if not group.jobs]:
                groups.remove(group)
                self._free += group.nodes
                empty = True
        return empty

    # Jobs that come

    def _try_pending(self) -> None:
        at = 0
        while at < len(self._pending):
            if self._joins(self._pending[at]):
                del self._pending[at]
            at += 1  # after a deletion this skips a job, as the reference does

    def _joins(self, job: SimJob) -> bool:
        """Put a job into a group with room, a new group, or a group to share; False if none."""
        job_class = _JobClass(job.gpus, job.ask.request.features)
        groups = self._groups.setdefault(job_class, [])
        chosen = None
        if groups:
            # Only the first group is checked; it then comes last among equally used groups.
            groups.append(groups.pop(0))
            if groups[-1].dealt + 1 < groups[-1].slots:
                chosen = groups[-1]
        chosen = chosen or self._new_group(job_class)
        if chosen is None and groups:
            groups.append(groups.pop(0))
            chosen = groups[-1]
        if chosen is None:
            return False
        chosen.add(job)
        _sort(groups)
        return True

    def _new_group(self, job_class: _JobClass) -> _Group | None:
        able = [node for node in self._free if _serves(job_class.features, node.features)]
        if _gpus(able) < job_class.width:
            return None
        able.sort(key=lambda node: -node.total.gpu_count)
        nodes = [able.pop(0)]
        while _gpus(nodes) < job_class.width:
            nodes.append(able.pop(0))
        for node in nodes:
            self._free.remove(node)
        group = _Group.of(job_class, nodes)
        self._groups[job_class].append(group)
        return group

    # Shares of the cluster

    def _share_out(self) -> bool:
        """Adjust the groups of each class toward its share; return whether any changed."""
        demand = {
            job_class: job_class.width * sum(len(group.jobs) for group in groups)
            for job_class, groups in self._groups.items()
        }
        total = sum(demand.values())
        changed = False
        for job_class in sorted(job_class for job_class, wanted in demand.items() if wanted):
            share = min(demand[job_class], math.floor(demand[job_class] / total * self._gpus))
            missing = share - sum(group.gpus for group in self._groups[job_class])
            if missing > 0:
                self._grow(job_class, math.ceil(missing / job_class.width))
                changed = True
            elif missing < 0:
                changed |= self._shrink(job_class, math.ceil(-missing / job_class.width))
        return changed

    def _grow(self, job_class: _JobClass, wanted: int) -> None:
        """Create groups while nodes last. All jobs of the class are dealt again if the new groups
        have several nodes or the nodes ran out."""
        last = None
        for _ in range(wanted):
            last = self._new_group(job_class)
            if last is None:
                break
        if last is None or len(last.nodes) > 1:
            jobs = []
            for group in self._groups[job_class]:
                if group.jobs:
                    jobs += group.jobs
                    group.jobs, group.dealt = [], 0
            _deal(jobs, self._groups[job_class])

    def _shrink(self, job_class: _JobClass, unwanted: int) -> bool:
        """Dissolve the least used groups but keep at least one; return whether there were any."""
        groups = self._groups[job_class]
        unwanted = min(unwanted, len(groups) - 1)
        given_up, groups[:unwanted] = groups[:unwanted], []
        for group in given_up:
            self._free += group.nodes
        _deal([job for group in given_up for job in group.jobs], groups)
        return bool(given_up)

    # Starts and suspensions

    def _switch(self) -> list[Start]:
        """Suspend jobs whose turn is over or that have moved, and resume the jobs that run next."""
        to_run = {
            job.job_id: group
            for groups in self._groups.values()
            for group in groups
            for job in group.running
        }
        victims = [i for i, group in self._runs_in.items() if to_run.get(i) is not group]
        starts = [i for i, group in to_run.items() if self._runs_in.get(i) is not group]
        if victims and not starts:
            # The engine suspends victims only with a start, so a running job is restarted.
            starts = list(to_run)[:1]
            victims += starts
        self._runs_in = to_run
        return preempting([Start(job_id, _lay(to_run[job_id])) for job_id in starts], victims)


_serves = lru_cache(matches)


def _gpus(nodes: Iterable[Node]) -> int:
    return sum(node.total.gpu_count for node in nodes)


def _lay(group: _Group) -> Allocation:
    """Fill the nodes of a group in order."""
    taken: list[tuple[str, int]] = []
    left = group.job_class.width
    for node in group.nodes:
        taken.append((node.name, min(node.total.gpu_count, left)))
        left -= taken[-1][1]
    return by_name(taken)


def _deal(jobs: Iterable[SimJob], groups: list[_Group]) -> None:
    """Add each job to the group that is least used at that point."""
    for job in jobs:
        groups[0].add(job)
        _sort(groups)


def _sort(groups: list[_Group]) -> None:
    groups.sort(key=attrgetter("dealt"))
