"""Stock Slurm as sites run it: priorities by age, and backfill around the first who waits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from slurm_tiresias.board import Start
from slurm_tiresias.model import ANY_TYPE, Allocation, Amount, Node, PlacementStyle
from slurm_tiresias.placement.choose import place
from slurm_tiresias.placement.pool import Pool
from slurm_tiresias.simulator.baselines.where import Where
from slurm_tiresias.simulator.engine import Ask, SimJob

DEFAULT_LIMIT_S = 86400.0
"""The time limit of jobs whose trace has none: that of their partition, a day. Few users ask for
less than they are given anyway, and a limit made from the duration would be clairvoyant."""

MOST_TESTED = 500
"""Jobs looked at in one pass, the default of Slurm's ``bf_max_job_test``."""


@dataclass(frozen=True, slots=True)
class _Running:
    expected_end_s: float
    """By its time limit."""
    allocation: Allocation


@dataclass(slots=True)
class _Reservation:
    """Where the first of the queue is to start, and when at the latest."""

    start_s: float
    spare: dict[str, int]
    """On each of its nodes the GPUs that will be free beside it, at its start."""


class Backfill:
    """Multifactor priority and backfill, nobody preempted.

    Of the factors of priority a trace tells only age, so the queue is in the order of submission;
    fair share and job size count nothing. The first job that does not fit is promised the earliest
    place and time that follow from the time limits of the running jobs. Any job behind it may start
    that does not put this off (EASY backfill; Slurm also keeps promises to those behind the first,
    which starts fewer). Backfill runs at every event and not twice a minute. Jobs are consolidated
    where they can be; the model makes no difference.

    ``default_limit_s`` holds for jobs without a limit of their own.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        default_limit_s: float = DEFAULT_LIMIT_S,
        most_tested: int = MOST_TESTED,
    ) -> None:
        self._pool = Pool(nodes)
        self._where = Where(nodes)
        self._default_limit_s = default_limit_s
        self._most_tested = most_tested
        self._queue: list[SimJob] = []
        self._running: dict[str, _Running] = {}
        self._room_grew = False
        self._reservation: _Reservation | None = None
        self._tested = 0
        """Of the queue so many have been refused since room grew."""
        self._refused: set[tuple[Ask, bool]] = set()
        """Since room grew: what was asked, by a job that is over in time or by one that is not."""

    def waits(self, job: SimJob, now_s: float) -> None:
        self._queue.append(job)

    def runs(self, job: SimJob, now_s: float) -> None:
        pass

    def moved(self, job: SimJob, now_s: float) -> None:
        pass

    def ended(self, job: SimJob) -> None:
        self._pool.give(job.allocation)
        del self._running[job.job_id]
        self._room_grew = True

    def choose(self, now_s: float) -> Iterable[Start]:
        return [*self._start_from_the_front(now_s), *self._backfill(now_s)]

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        return math.inf

    def next_wake_s(self, now_s: float) -> float:
        return math.inf

    def _start_from_the_front(self, now_s: float) -> list[Start]:
        if self._room_grew:
            self._room_grew, self._reservation, self._tested = False, None, 0
            self._refused.clear()
        starts: list[Start] = []
        while self._queue and not self._tested:
            allocation = self._place(self._queue[0])
            if allocation is None:
                self._tested = 1
            else:
                starts.append(self._start(0, allocation, now_s))
        return starts

    def _backfill(self, now_s: float) -> Iterator[Start]:
        """Start what fits beside the reservation; only newcomers are looked at if nobody left."""
        while self._tested < min(len(self._queue), self._most_tested):
            allocation = self._beside_the_first(self._queue[self._tested], now_s)
            if allocation is None:
                self._tested += 1
            else:
                yield self._start(self._tested, allocation, now_s)

    def _start(self, number: int, allocation: Allocation, now_s: float) -> Start:
        job = self._queue.pop(number)
        self._pool.take(allocation)
        self._running[job.job_id] = _Running(now_s + self._limit_s(job), allocation)
        return Start(job.job_id, allocation)

    def _place(self, job: SimJob) -> Allocation | None:
        if job.width > self._pool.most_free_gpus:
            return None
        nodes = self._where[job.ask]
        return place(job.ask.request, nodes, self._pool, PlacementStyle.CONSOLIDATE)

    def _limit_s(self, job: SimJob) -> float:
        return job.trace.limit_s or self._default_limit_s

    # Beside the reservation

    def _beside_the_first(self, job: SimJob, now_s: float) -> Allocation | None:
        if job.width > self._pool.most_free_gpus:
            return None
        if self._reservation is None:
            self._reservation = self._reserve(self._queue[0])
        in_time = now_s + self._limit_s(job) <= self._reservation.start_s
        if (job.ask, in_time) in self._refused:
            return None
        allocation = self._place(job) if in_time else self._place_in_spare(job, self._reservation)
        if allocation is None:
            self._refused.add((job.ask, in_time))
        return allocation

    def _place_in_spare(self, job: SimJob, reservation: _Reservation) -> Allocation | None:
        """Where it may stay for as long as it likes."""
        reserved = self._reserved_now(reservation)
        self._pool.take(reserved)
        allocation = self._place(job)
        self._pool.give(reserved)
        for node, amount in (allocation or {}).items():
            if node in reservation.spare:
                reservation.spare[node] -= amount.gpu_count
        return allocation

    def _reserved_now(self, reservation: _Reservation) -> Allocation:
        """Of the GPUs that are free now those that the first of the queue will need."""
        return {
            node: Amount({ANY_TYPE: needed})
            for node, spare in reservation.spare.items()
            if (needed := self._pool.free(node).gpu_count - spare) > 0
        }

    def _reserve(self, first: SimJob) -> _Reservation:
        """The earliest start that the running jobs' limits promise.

        It may be over: a job past its limit ends at any moment, and nobody is done before that.
        """
        running = sorted(self._running.values(), key=lambda other: other.expected_end_s)
        gone: list[_Running] = []
        allocation = None
        for other in running:
            self._pool.give(other.allocation)
            gone.append(other)
            allocation = self._place(first)
            if allocation is not None:
                break
        assert allocation is not None, "the engine is given jobs that the cluster can hold"
        spare = {
            node: self._pool.free(node).gpu_count - amount.gpu_count
            for node, amount in allocation.items()
        }
        for other in gone:
            self._pool.take(other.allocation)
        return _Reservation(gone[-1].expected_end_s, spare)
