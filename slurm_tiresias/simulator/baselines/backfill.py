"""Stock Slurm as sites run it: priorities by age, its main scheduler, and its backfill.

The model follows ``sched/backfill`` and ``select/cons_tres`` of Slurm 22.05.8 and was checked
against replays on a real Slurm (scripts/records/fidelity.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.placement.node_set import NodeSet, node_set, numbers
from slurm_tiresias.model import Node
from slurm_tiresias.simulator.baselines.where import Where, by_name
from slurm_tiresias.simulator.engine import Scheduler, SimJob

DEFAULT_LIMIT_S = 86400.0
"""Time limit of jobs whose trace has none: a day, as the default of their partition. Few users
request less than the default, and a limit derived from the duration would be clairvoyant."""

MANY_CPUS = 1000
"""CPUs of each node apart from those that come with its idle GPUs."""

FIRST_WINDOW_S = 30.0
"""Jobs due to end within this time of each other count as ending together when Slurm looks for a
pending job's start; the time doubles with each step into the future."""


@dataclass(frozen=True, slots=True)
class SlurmParameters:
    """The parameters of slurm.conf that affect backfill, with Slurm's defaults.

    A replay that runs many times faster than its trace uses other values, and so does its
    simulation.
    """

    bf_interval_s: float = 30.0
    """Interval between backfill passes."""
    bf_resolution_s: float = 60.0
    """Reservations begin and end at multiples of this."""
    bf_window_s: float = 86400.0
    """A job that cannot start within this time gets no reservation."""
    bf_max_job_test: int = 500
    """Number of jobs considered in one pass."""
    kill_wait_s: float = 30.0
    """A job is expected to have ended this long after its time limit."""
    limit_grain_s: float = 60.0
    """Time limits are rounded up to multiples of this."""


DEFAULTS = SlurmParameters()


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Jobs with the same number of GPUs, time limit and usable nodes."""

    width: int
    limit_s: float
    nodes: NodeSet


@dataclass(frozen=True, slots=True, eq=False)
class RunningJob:
    end_s: float
    """Latest end, by its time limit."""
    nodes: NodeSet
    gpus: dict[int, int]
    """GPUs by node number."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """A span of time, and the nodes that are not reserved for pending jobs in it."""

    begin_s: float
    end_s: float
    nodes: NodeSet


Room = tuple[dict[int, int], tuple[str, ...]]
"""Where a job can start now: GPUs by node number, and the jobs that it preempts for them."""


class Backfill(Scheduler):
    """Multifactor priority and backfill; no job is preempted.

    Of the priority factors, a trace contains only age, so the queue is in the order of submission;
    fair share and job size have no weight.

    The main scheduler runs at every event. It starts jobs in queue order and stops at the first
    that does not fit. Backfill runs every ``bf_interval_s``. It goes down the queue and gives
    *each* job that cannot start a reservation: at the earliest time that the limits of running jobs
    and earlier reservations allow, on **whole nodes**, even for a job that needs one GPU of them. A
    job starts if its time limit ends before the next reservation on its nodes begins.

    A job gets the nodes with the most idle GPUs that it can use. Among equal nodes it prefers the
    smallest row of neighbouring nodes that is large enough, and there the fullest node.
    """

    def __init__(self, nodes: Sequence[Node], parameters: SlurmParameters) -> None:
        self._names = sorted(node.name for node in nodes)
        self._free = FreeGpus([n.total.gpu_count for n in sorted(nodes, key=attrgetter("name"))])
        self._where = Where(nodes)
        self._parameters = parameters
        self._queue: list[tuple[SimJob, Asked]] = []
        self._classes: dict[tuple[int, float, NodeSet], Asked] = {}
        self._running: dict[str, RunningJob] = {}
        self._changed = False
        self._pass_at_s = math.inf
        """When backfill next runs; infinite if nothing has changed since its last pass."""

    def waits(self, job: SimJob, now_s: float) -> None:
        self._enqueue(job, self._class_of(job), now_s)
        self._changed = True

    def ended(self, job: SimJob) -> None:
        self._free.add(self._running.pop(job.job_id).gpus)
        self._changed = True

    def choose(self, now_s: float) -> Iterable[Start]:
        starts: list[Start] = []
        if self._changed:
            self._changed = False
            while self._queue:
                _, first = self._queue[0]
                room = self._room(first, first.nodes)
                if room is None:
                    break
                starts.append(self._start(0, room, now_s))
            interval_s = self._parameters.bf_interval_s
            next_pass_s = max(now_s, math.ceil(now_s / interval_s) * interval_s)
            self._pass_at_s = min(self._pass_at_s, next_pass_s)
        if self._pass_at_s <= now_s:
            self._pass_at_s = math.inf
            starts += self._backfill(now_s)
        return starts

    def next_wake_s(self, now_s: float) -> float:
        return self._pass_at_s if self._queue else math.inf

    def _class_of(self, job: SimJob) -> Asked:
        grain_s = self._parameters.limit_grain_s
        limit_s = math.ceil((job.trace.limit_s or DEFAULT_LIMIT_S) / grain_s) * grain_s
        asked = (job.gpus, limit_s, self._where[job.ask])
        return self._classes.setdefault(asked, Asked(*asked))

    def _enqueue(self, job: SimJob, asked: Asked, now_s: float) -> None:
        self._queue.append((job, asked))

    def _room(self, asked: Asked, nodes: NodeSet) -> Room | None:
        """Return where a job can start now; None if it cannot."""
        chosen = choose_gpus(self._free, nodes, asked.width)
        return None if chosen is None else (chosen, ())

    def _most_gpus(self, asked: Asked, nodes: NodeSet) -> int:
        """Return how many GPUs of these nodes a job could get now."""
        return self._free.on(nodes)

    def _foreseen(self, asked: Asked) -> tuple[FreeGpus, list[RunningJob]]:
        """Return what a job that waits finds idle, and the running jobs for which it waits."""
        return self._free.copy(), list(self._running.values())

    def _start(self, place: int, room: Room, now_s: float) -> Start:
        job, asked = self._queue.pop(place)
        chosen, victims = room
        for victim in victims:
            self._free.add(self._running.pop(victim).gpus)
        self._free.add({number: -gpus for number, gpus in chosen.items()})
        self._running[job.job_id] = RunningJob(now_s + asked.limit_s, node_set(chosen), chosen)
        allocation = by_name((self._names[number], count) for number, count in chosen.items())
        return Start(job.job_id, allocation, victims)

    # Backfill

    def _backfill(self, now_s: float) -> Iterator[Start]:
        """Run one pass; it ends when no remaining job could start."""
        plan = _Plan(now_s, self._parameters)
        untested = Counter(asked for _, asked in self._queue)
        could_start = list(untested)
        place = 0
        for _ in range(self._parameters.bf_max_job_test):
            while could_start and not (
                untested[could_start[-1]] and self._fits_now(could_start[-1], plan)
            ):
                could_start.pop()
            if not could_start:
                return
            asked = self._queue[place][1]
            untested[asked] -= 1
            room = self._now_or_reserved(asked, plan)
            if room is None:
                place += 1
            else:
                yield self._start(place, room, now_s)

    def _fits_now(self, asked: Asked, plan: _Plan) -> bool:
        nodes = plan.free_nodes(plan.now_s, asked.limit_s) & asked.nodes
        return self._most_gpus(asked, nodes) >= asked.width

    def _now_or_reserved(self, asked: Asked, plan: _Plan) -> Room | None:
        """Return where the job starts now; None if it does not, and reserve nodes."""
        at_s: float | None = plan.now_s
        while at_s is not None:
            nodes, later_s = plan.look(at_s, asked)
            found = self._earliest(asked, nodes, plan.now_s) if nodes else None
            if found is None:
                at_s = later_s
                continue
            start_s, room = max(found[0], at_s), found[1]
            if start_s <= plan.now_s:
                return room
            if later_s is not None and start_s > later_s:
                at_s = later_s
            elif plan.reserve(start_s, asked.limit_s, node_set(room[0])):
                return None
            else:
                at_s = start_s
        return None

    def _earliest(self, asked: Asked, nodes: NodeSet, now_s: float) -> tuple[float, Room] | None:
        """Return when and where a job can start on these nodes, by the running jobs' limits."""
        room = self._room(asked, nodes)
        if room is not None:
            return now_s, room
        free, running = self._foreseen(asked)
        running.sort(key=attrgetter("end_s"))
        for gone in _together([other for other in running if other.nodes & nodes]):
            for other in gone:
                free.add(other.gpus)
            chosen = choose_gpus(free, nodes, asked.width)
            if chosen is not None:
                end_s = gone[-1].end_s
                if end_s <= now_s:
                    end_s = max(end_s + self._parameters.kill_wait_s, now_s + 1.0)
                return end_s, (chosen, ())
        return None


class FreeGpus:
    """Idle GPUs by node number."""

    def __init__(self, gpus: list[int]) -> None:
        self._gpus = gpus
        self._with: dict[int, NodeSet] = {}
        """The nodes by number of idle GPUs."""
        for number, count in enumerate(gpus):
            self._with[count] = self._with.get(count, 0) | 1 << number

    def __getitem__(self, number: int) -> int:
        return self._gpus[number]

    def add(self, gpus: Mapping[int, int]) -> None:
        for number, more in gpus.items():
            before = self._gpus[number]
            self._gpus[number] = count = before + more
            self._with[before] &= ~(1 << number)
            self._with[count] = self._with.get(count, 0) | 1 << number

    def on(self, nodes: NodeSet) -> int:
        """Return the number of idle GPUs on these nodes."""
        return sum(count * (there & nodes).bit_count() for count, there in self._with.items())

    def none(self) -> NodeSet:
        """Return the nodes without an idle GPU."""
        return self._with.get(0, 0)

    def copy(self) -> FreeGpus:
        copied = FreeGpus([])
        copied._gpus, copied._with = self._gpus.copy(), self._with.copy()
        return copied


def choose_gpus(free: FreeGpus, nodes: NodeSet, width: int) -> dict[int, int] | None:
    """Choose GPUs by node number; None if the job does not fit."""
    if free.on(nodes) < width:
        return None
    rows = list(_rows(free, nodes, width))
    chosen: list[int] = []
    left = width
    while left > 0:
        row = _best(rows, left)
        rows.remove(row)
        alone = [number for number in row.nodes if free[number] >= left]
        if alone:
            chosen.append(min(alone, key=lambda number: _size(free[number], width)))
            break
        for number in row.nodes:
            if left > 0:
                chosen.append(number)
                left -= free[number]
    return _shared_out(free, sorted(chosen), width)


class _Plan:
    """The reservations made in one backfill pass."""

    def __init__(self, now_s: float, parameters: SlurmParameters) -> None:
        self.now_s = now_s
        self._resolution_s = parameters.bf_resolution_s
        self._window_end_s = now_s + parameters.bf_window_s
        self._slots = [_Slot(self._whole(now_s), self._whole(self._window_end_s), -1)]

    def _whole(self, at_s: float) -> float:
        return math.floor(at_s / self._resolution_s) * self._resolution_s

    def free_nodes(self, start_s: float, limit_s: float) -> NodeSet:
        """Return the nodes without a reservation between the start and the time limit."""
        nodes = -1
        for slot in self._slots:
            if slot.begin_s > start_s + limit_s:
                break
            if slot.end_s > start_s:
                nodes &= slot.nodes
        return nodes

    def look(self, start_s: float, asked: Asked) -> tuple[NodeSet, float | None]:
        """Return the unreserved nodes for a job that starts at ``start_s``, and the next time at
        which a reservation on a usable node ends (None if there is none)."""
        free = self.free_nodes(start_s, asked.limit_s) & asked.nodes
        seen = asked.nodes
        for slot, following in zip(self._slots, self._slots[1:], strict=False):
            if slot.end_s > start_s:
                seen &= slot.nodes
                if following.nodes & asked.nodes & ~seen:
                    return free, slot.end_s
            if slot.begin_s > start_s + asked.limit_s:
                break
        return free, None

    def reserve(self, start_s: float, limit_s: float, nodes: NodeSet) -> bool:
        """Reserve the nodes for a job; False if they are reserved already. A start beyond the
        window needs no reservation."""
        if start_s > self._window_end_s:
            return True
        begin_s, end_s = self._whole(start_s), self._whole(start_s + limit_s)
        if any(
            slot.end_s > begin_s and slot.begin_s < end_s and nodes & ~slot.nodes
            for slot in self._slots
        ):
            return False
        begin_s = max(begin_s, self._slots[0].begin_s)
        end_s = max(end_s, begin_s + self._resolution_s)
        self._slots = list(_merged(self._without(nodes, begin_s, end_s)))
        return True

    def _without(self, nodes: NodeSet, begin_s: float, end_s: float) -> Iterator[_Slot]:
        for slot in self._slots:
            if slot.end_s <= begin_s or slot.begin_s >= end_s:
                yield slot
                continue
            if slot.begin_s < begin_s:
                yield _Slot(slot.begin_s, begin_s, slot.nodes)
            within = max(slot.begin_s, begin_s), min(slot.end_s, end_s)
            yield _Slot(*within, slot.nodes & ~nodes)
            if slot.end_s > end_s:
                yield _Slot(end_s, slot.end_s, slot.nodes)


def _merged(slots: Iterable[_Slot]) -> Iterator[_Slot]:
    """Merge consecutive slots with the same nodes."""
    for nodes, alike in groupby(slots, key=attrgetter("nodes")):
        first, *others = alike
        yield _Slot(first.begin_s, others[-1].end_s if others else first.end_s, nodes)


def _together(running: Sequence[RunningJob]) -> Iterator[Sequence[RunningJob]]:
    """Yield running jobs by end time, in the groups that Slurm treats as ending together."""
    if not running:
        return
    window_s = FIRST_WINDOW_S
    first_s = (math.floor(running[0].end_s / window_s) + 1) * window_s
    begin = 0
    while begin < len(running):
        end = begin + 1
        while end < len(running) and running[end].end_s <= first_s + window_s:
            end += 1
        yield running[begin:end]
        window_s *= 2
        while end < len(running) and running[end].end_s > first_s + window_s:
            window_s *= 2
        begin = end


@dataclass(frozen=True, slots=True)
class _Row:
    """Neighbouring nodes on each of which the job could use the same number of idle GPUs."""

    useful: int
    gpus: int
    size: int
    nodes: tuple[int, ...]


def _rows(free: FreeGpus, nodes: NodeSet, width: int) -> Iterator[_Row]:
    def row_of(place: tuple[int, int]) -> tuple[int, int]:
        index, number = place
        return number - index, min(free[number], width)

    places = enumerate(numbers(nodes & ~free.none()))
    for (_, useful), row in groupby(places, key=row_of):
        neighbours = tuple(number for _, number in row)
        gpus = [free[number] for number in neighbours]
        size = sum(_size(count, width) for count in gpus)
        yield _Row(useful, sum(gpus), size, neighbours)


def _size(free: int, width: int) -> int:
    """Return the size by which Slurm compares nodes: the CPUs that the job could use there.

    All nodes are equal for a job with one task; for others the number of nodes decides first, then
    their idle GPUs.
    """
    return 1 if width == 1 else MANY_CPUS + free


def _best(rows: Iterable[_Row], left: int) -> _Row:
    """Return the smallest sufficient row among the most useful nodes, or else the largest row."""

    def rank(row: _Row) -> tuple[int, bool, int]:
        enough = row.gpus >= left
        return row.useful, enough, -row.size if enough else row.size

    return max(rows, key=rank)


def _shared_out(free: FreeGpus, chosen: Sequence[int], width: int) -> dict[int, int]:
    """Distribute the GPUs over the nodes in order; each node gets at least one."""
    gpus: dict[int, int] = {}
    for number, others in zip(chosen, reversed(range(len(chosen))), strict=True):
        gpus[number] = min(free[number], width - others)
        width -= gpus[number]
    return gpus
