"""Gandiva's time slicing, by the rules of the authors' simulator of it.

Jobs that ask alike share groups of nodes and take turns on them. What the paper compares to (Table
5, page 495) is this simulator and not Gandiva itself, so its rules are kept, odd ones included:

* It looks at the cluster in steps of 10 s; an arrival cuts a step short and begins the next. What
  ends inside a step holds its GPUs until the step is over.
* Turns change at steps that fall on a full minute. Once a job has arrived off the beat there are
  none until another arrives on it.
* Jobs of a width are to have the share of the cluster that their share of the demand is. Groups
  are made and given up to that end at every step.
* How busy a group is goes by the jobs ever dealt to it since it was last rearranged.
* A waiting job is tried only when a group has come free, and of two in a row that could both
  start only the first does.

Where nodes differ, which the reference does not know, jobs that name a type of GPU have groups of
their own, and a group takes the largest nodes there are. Suspending and resuming take Gandiva about
a second; here they cost nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter

from slurm_tiresias.model import Allocation, Node
from slurm_tiresias.placement.features import matches
from slurm_tiresias.scheduling.cluster import Start
from slurm_tiresias.simulator.baselines.where import by_name
from slurm_tiresias.simulator.engine import Scheduler, SimJob

STEP_S = 10.0
TURN_S = 60.0


class _Steps:
    """The moments at which the cluster is looked at; they follow from the arrivals."""

    def __init__(self, arrivals_s: Iterable[float]) -> None:
        self._arrivals_s = sorted(set(arrivals_s))

    def at_or_after(self, at_s: float) -> float:
        since_s, next_s = self._between(at_s)
        return min(next_s, since_s + STEP_S * math.ceil((at_s - since_s) / STEP_S))

    def after(self, at_s: float) -> float:
        since_s, next_s = self._between(at_s)
        return min(next_s, since_s + STEP_S * (math.floor((at_s - since_s) / STEP_S) + 1))

    def next_turn_s(self, now_s: float) -> float:
        """The next step on a full minute; infinite where an arrival comes first, or none ever."""
        since_s, next_s = self._between(now_s)
        turn_s = TURN_S * (math.floor(now_s / TURN_S) + 1)
        return turn_s if turn_s < next_s and since_s % STEP_S == 0 else math.inf

    def _between(self, at_s: float) -> tuple[float, float]:
        """The last arrival, and the next."""
        index = bisect_right(self._arrivals_s, at_s)
        later_s = self._arrivals_s[index] if index < len(self._arrivals_s) else math.inf
        return self._arrivals_s[index - 1], later_s


@dataclass(frozen=True, order=True, slots=True)
class _JobClass:
    """Jobs that may share a group: of one width, and with the same demands on the nodes."""

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
    """Jobs put into it since it was last rearranged, whether they are still there or not."""

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
    """Time slicing over ``nodes``, of which several may go by one name (see ``real_nodes``).

    ``arrivals_s`` are the submissions that are to come.
    """

    def __init__(self, nodes: Sequence[Node], arrivals_s: Iterable[float]) -> None:
        self._free = list(nodes)
        self._gpus = _gpus(nodes)
        self._steps = _Steps(arrivals_s)
        self._groups: dict[_JobClass, list[_Group]] = {}
        """Of each class the least used group first."""
        self._live: set[str] = set()
        self._newcomers: list[SimJob] = []
        self._pending: list[SimJob] = []
        self._over: set[str] = set()
        self._runs_in: dict[str, _Group] = {}
        self._settled = True
        """Whether another step would change nothing but turns."""

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
        """Those who ran go behind the others, on the full minute; those who are done go."""
        for groups in self._groups.values():
            for group in groups:
                if now_s % TURN_S == 0 and len(group.jobs) > group.slots:
                    group.jobs = group.jobs[group.slots :] + group.jobs[: group.slots]
                if self._over:
                    group.jobs = [job for job in group.jobs if job.job_id not in self._over]
        self._over.clear()

    def _give_up_empty_groups(self) -> bool:
        """Whether there were any."""
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
            at += 1  # also past the one that has just moved up: the reference does so

    def _joins(self, job: SimJob) -> bool:
        """Put a job into a group: one with room, a new one, or one to be shared."""
        job_class = _JobClass(job.width, job.ask.request.features)
        groups = self._groups.setdefault(job_class, [])
        chosen = None
        if groups:
            # Only the first is asked; it then comes last of those that are as used as it is.
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
        able = [node for node in self._free if _serves(node.features, job_class.features)]
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
        """Bring the groups of every class nearer to its share; whether any had to change."""
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
        """Make groups while nodes last; all jobs are dealt anew over groups of several nodes, and
        where there were too few."""
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
        """Give up the least used groups, all but one at the most; whether there were any."""
        groups = self._groups[job_class]
        unwanted = min(unwanted, len(groups) - 1)
        given_up, groups[:unwanted] = groups[:unwanted], []
        for group in given_up:
            self._free += group.nodes
        _deal([job for group in given_up for job in group.jobs], groups)
        return bool(given_up)

    # What the engine is told

    def _switch(self) -> list[Start]:
        """Suspend those whose turn is over or who have moved, then resume those who are to run."""
        to_run = {
            job.job_id: group
            for groups in self._groups.values()
            for group in groups
            for job in group.running
        }
        victims = [i for i, group in self._runs_in.items() if to_run.get(i) is not group]
        starts = [i for i, group in to_run.items() if self._runs_in.get(i) is not group]
        if victims and not starts:
            # A job is suspended only for a start: one of those that run on is started over.
            starts = list(to_run)[:1]
            victims += starts
        self._runs_in = to_run
        found = [Start(job_id, _lay(to_run[job_id])) for job_id in starts]
        return [Start(s.job_id, s.allocation, tuple(victims)) for s in found[:1]] + found[1:]


@lru_cache
def _serves(features: frozenset[str], wanted: str) -> bool:
    return matches(wanted, features)


def _gpus(nodes: Iterable[Node]) -> int:
    return sum(node.total.gpu_count for node in nodes)


def _lay(group: _Group) -> Allocation:
    """The node is filled that comes first."""
    taken: list[tuple[str, int]] = []
    left = group.job_class.width
    for node in group.nodes:
        taken.append((node.name, min(node.total.gpu_count, left)))
        left -= taken[-1][1]
    return by_name(taken)


def _deal(jobs: Iterable[SimJob], groups: list[_Group]) -> None:
    """Each to the group that is then least used."""
    for job in jobs:
        groups[0].add(job)
        _sort(groups)


def _sort(groups: list[_Group]) -> None:
    groups.sort(key=attrgetter("dealt"))
