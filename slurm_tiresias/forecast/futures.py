"""Futures of a cluster: simulations that go on from the present, each with lengths and arrivals
drawn anew.

A simulation of the present is made once. Each future is then run in a fork of this process, which
shares it, and is killed if it takes too long.
"""

from __future__ import annotations

import copyreg
import logging
import math
import os
import pickle
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from random import Random
from statistics import fmean
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from slurm_tiresias.core.features.claims import REPORT_EVERY_S, claimed_gpu_s
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.placement.choose import style_of_skew
from slurm_tiresias.forecast.past import MOST_AHEAD_S, Past
from slurm_tiresias.forecast.ranges import Spread, spread_of
from slurm_tiresias.model import (
    ANY_TYPE,
    USUAL_STAKE,
    Allocation,
    Amount,
    Claim,
    JobState,
    Node,
    Request,
)
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.engine import Ask, SimJob, Simulation, Timing
from slurm_tiresias.simulator.schedulers import BEGIN_TIME, TiresiasScheduler
from slurm_tiresias.simulator.workload import TraceJob

log = logging.getLogger("tiresias-slurm")

T = TypeVar("T")

LONGER, AND_S = 20.0, 10.0
"""A future is killed after this many times its CPU time and so many seconds more: other processes
go first."""

READ_BYTES = 1 << 20
INTERVAL_S = 30.0
"""Futures decide at most so often: they need not be more exact than the pictures are new."""

FIRST_DAY = 2.5
"""Spreads are so many times as wide until a site has been seen for a day: that submissions stop in
the evening is not known before."""

REQUEUE_S = 5.0
_ONLY_THE_CONTROLLERS = {
    *("run_records", "preemption", "status_in_slurm", "account_in_ledger", "past_progress"),
    *("nominated_to", "preemptor", "cools_down", "remaining_s", "gpus_asked", "width"),
}
"""What a future begins without: nominations and preemptions that are under way are planned anew."""

_FIELDS = tuple(field.name for field in fields(Job) if field.name not in _ONLY_THE_CONTROLLERS)
_row_of = attrgetter(*_FIELDS)


def read_only(values: dict[str, Amount]) -> MappingProxyType[str, Amount]:
    """Make an allocation as ``model.NOWHERE`` is, which Python cannot pickle by itself."""
    return MappingProxyType(values)


copyreg.pickle(MappingProxyType, lambda proxy: (read_only, (dict(proxy),)))


@dataclass(frozen=True)
class Present:
    """A cluster at one instant. Rows of the facts of jobs are made in no time, unlike jobs."""

    now_s: float
    nodes: Sequence[Node]
    rows: Sequence[tuple[Any, ...]]

    @cached_property
    def jobs(self) -> list[Job]:
        """The jobs that run, and those that wait for GPUs only."""
        return [Job(**dict(zip(_FIELDS, row, strict=True))) for row in self.rows]


class Drawn(NamedTuple):
    """What came out of one future: after how long each waiting job started, of those that did
    within ``until_s``."""

    after_s: dict[str, float]
    until_s: float


def present(now_s: float, nodes: Sequence[Node], jobs: Iterable[Job]) -> Present:
    """Take down what forecasts need of these jobs."""
    return Present(now_s, nodes, [_row_of(job) for job in jobs if _takes_part(job)])


def _takes_part(job: Job) -> bool:
    if job.state is JobState.RUNNING:
        return True
    if job.not_eligible == BEGIN_TIME and job.first_started_s is not None:
        return job.managed  # It was requeued a moment ago.
    return job.state is JobState.PENDING and job.managed and not job.blocked_by_slurm


class UniformPhysics:
    """Jobs run equally fast everywhere. A preemption costs what those of the program did."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._restart_s = {
            job.job_id: job.program_costs.restart_s + job.program_costs.unsaved_s
            for job in jobs
            if job.program_costs
        }

    def speed(self, _job: TraceJob, _allocation: Allocation) -> float:
        return 1.0

    def is_spread(self, _job: TraceJob, _allocation: Allocation) -> bool:
        return False

    def restart_s(self, job: TraceJob) -> float:
        return self._restart_s.get(job.job_id, USUAL_STAKE.restart_s)

    def save_every_s(self, _job: TraceJob) -> float:
        return 0.0

    def tells_saves(self, _job: TraceJob) -> bool:
        return False


class _Resumed(SimJob):
    """A job of the present. If it waits, its length is drawn when it starts."""

    draw: Callable[[SimJob], float]

    def start(self, start_s: float, allocation: Allocation) -> None:
        if self.work_s == math.inf:
            self.work_s = self.draw(self)
        super().start(start_s, allocation)


class _Scheduler(TiresiasScheduler):
    """The core in a future: it learns nothing from what is only drawn."""

    def __init__(self, policy: Policy, config: Config, nodes: Sequence[Node]) -> None:
        super().__init__(policy, config, nodes)
        self.started_s: dict[str, float] = {}
        self.awaited: set[str] = set()
        self.share, self.chance = 0.0, Random()
        """Which share of the jobs report, and what it is drawn with for each."""

    def waits(self, job: SimJob, now_s: float) -> None:
        self._jobs[job.job_id] = job
        job.not_eligible = ""
        self._engine.update(job, now_s)

    def runs(self, job: SimJob, now_s: float) -> None:
        self._jobs[job.job_id] = job
        if job.job_id in self.awaited:
            self.awaited.remove(job.job_id)
            assert job.running_since_s is not None
            self.started_s[job.job_id] = job.running_since_s
        if job.claim is not None or job.run_s < REPORT_EVERY_S:
            job.reports = job.claim is not None or self.chance.random() < self.share
        super().runs(job, now_s)

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        """When a job reports, exactly and once in a run; infinite if it does not."""
        if job.running_since_s is None or not job.reports:
            return math.inf
        at_s = job.running_since_s + REPORT_EVERY_S
        return at_s if at_s > now_s else math.inf

    def moved(self, job: SimJob, now_s: float) -> None:
        job.claim = _exact(job, job.end_s - now_s)
        super().moved(job, now_s)

    def ended(self, job: SimJob) -> None:
        assert job.running_since_s is not None
        job.settle(job.end_s)
        del self._jobs[job.job_id]
        self._engine.remove(job.job_id)


def _exact(job: SimJob, left_s: float) -> Claim:
    return Claim(job.attained_gpu_s + left_s * job.width, math.inf)


class Futures:
    """The futures of one present."""

    def __init__(self, at: Present, config: Config, past: Past, policy: Policy) -> None:
        self.at = at
        known = at.jobs
        self.past = past
        have_run = [job for job in known if job.run_s > REPORT_EVERY_S]
        self._share = fmean(job.claim is not None for job in have_run) if have_run else 0.0
        self._chance = Random()
        self._physics = UniformPhysics(known)
        self._scheduler = _Scheduler(policy, config, at.nodes)
        self._style = style_of_skew(None, config.placement)
        self._partitions = config.manage.partitions
        self._interval_s = config.controller.interval_s
        interval_s = max(INTERVAL_S, config.controller.interval_s)
        timing = Timing(interval_s, REQUEUE_S, config.preemption.grace_s)
        self._simulation = Simulation(
            (), self._scheduler, self._physics, timing, self._ask, until=lambda s: self._until(s)
        )
        self._passing: dict[str, bool] = {}
        """Jobs that leave as soon as they have started, and whether each reports what it needs."""
        self._until: Callable[[float], bool] = lambda _now_s: False
        self.jobs = {job.job_id: self._resumed(job, number) for number, job in enumerate(known)}

    def _ask(self, job: TraceJob) -> Ask:
        request = Request(Amount({ANY_TYPE: 1}), chunks=job.gpus, partitions=self._partitions)
        return Ask(request, self._style)

    def _resumed(self, job: Job, number: int) -> SimJob:
        """Return a job as it goes on, and tell the scheduler of it."""
        trace = TraceJob(job.job_id, job.submitted_s, job.gpus, math.inf, limit_s=job.time_limit_s)
        resumed = _Resumed(trace, -1 - number, Ask(job.request, self._style), self._physics)
        for name, value in zip(_FIELDS, _row_of(job), strict=True):
            setattr(resumed, name, value)
        resumed.count_gpus()
        resumed.draw = self._draw
        now_s = self.at.now_s
        if job.state is JobState.RUNNING:
            resumed.settle(now_s)
        resumed.settled_s = now_s
        self._tell(resumed)
        return resumed

    def _draw(self, job: SimJob) -> float:
        return self.past.remaining_s(job, self._chance)

    def _tell(self, job: SimJob) -> None:
        runs = job.state is JobState.RUNNING
        (self._scheduler.runs if runs else self._scheduler.waits)(job, self.at.now_s)

    @property
    def waiting(self) -> Sequence[str]:
        """The jobs that wait."""
        return [job.job_id for job in self.jobs.values() if job.state is JobState.PENDING]

    def spread_in(self, drawn: Sequence[Drawn], job_id: str) -> Spread:
        """Return the spread of a job's start in these futures."""
        after_s = tuple(one.after_s[job_id] for one in drawn if job_id in one.after_s)
        beyond_s = tuple(one.until_s for one in drawn if job_id not in one.after_s)
        found = spread_of(after_s, beyond_s)
        return found if self.past.days >= 1.0 else replace(found, sigma=FIRST_DAY * found.sigma)

    def submit_in_passing(self, job: Job, *, reports: bool) -> None:
        """Let a job wait that leaves as soon as it has started."""
        self.jobs[job.job_id] = self._resumed(job, len(self.jobs))
        self._passing[job.job_id] = reports

    def begin(
        self, seed: str, most_s: float, awaited: Iterable[str], change: Change = lambda _: None
    ) -> Fork[Drawn]:
        """Begin one future, which ends when all ``awaited`` jobs have started, or after ``most_s``
        of CPU time. ``change`` is made to the present before."""

        def work() -> Drawn:
            self._scheduler.awaited = set(awaited)
            change(self)
            return self._run(Random(seed), most_s)

        return Fork(work, LONGER * most_s + AND_S)

    def _run(self, chance: Random, most_s: float) -> Drawn:
        self._chance = chance
        now_s, reached_s, late = self.at.now_s, self.at.now_s, False
        self._simulation.expect(self.past.arrivals(chance))
        self._scheduler.share, self._scheduler.chance = self._share, chance
        for job in self.jobs.values():
            runs = job.state is JobState.RUNNING
            if runs or self._passing.get(job.job_id):
                job.work_s = self._draw(job)
                job.end_s = now_s + job.work_s if runs else math.inf
                if not runs or claimed_gpu_s(job) is not None:
                    job.claim = _exact(job, job.work_s)
                if job.claim is not None or job.run_s < REPORT_EVERY_S:
                    self._tell(job)
            if job.job_id in self._passing:
                job.work_s = 1.0
            self._simulation.resume(job)

        def stop(*_: object) -> None:
            nonlocal late
            late = True

        def until(at_s: float) -> bool:
            nonlocal reached_s
            reached_s = at_s
            return late or at_s - now_s > MOST_AHEAD_S or not self._scheduler.awaited

        signal.signal(signal.SIGVTALRM, stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, most_s)
        self._until = until
        self._simulation.run(now_s)
        after_s = {job_id: at_s - now_s for job_id, at_s in self._scheduler.started_s.items()}
        return Drawn(after_s, reached_s - now_s)


Change = Callable[[Futures], None]


class Fork(Generic[T]):
    """Runs ``work`` in a copy of this process, which is killed if it takes longer than
    ``most_s``."""

    def __init__(self, work: Callable[[], T], most_s: float) -> None:
        self._until_s = time.monotonic() + most_s
        self._reads, writes = os.pipe()
        self._child = os.fork()
        if not self._child:
            _work(work, writes)
        os.close(writes)

    def fileno(self) -> int:
        """Return what is ready to be read once there is a result."""
        return self._reads

    @property
    def left_s(self) -> float:
        """How much time is left for the work."""
        return max(0.0, self._until_s - time.monotonic())

    def result(self) -> T | None:
        """Wait for the result; None if the work failed or took too long."""
        told = bytearray()
        while select.select([self], [], [], self.left_s)[0]:
            if not (part := os.read(self._reads, READ_BYTES)):
                break
            told += part
        else:
            os.kill(self._child, signal.SIGKILL)
        os.close(self._reads)
        _, status = os.waitpid(self._child, 0)
        return None if status else pickle.loads(told)


def _work(work: Callable[[], object], writes: int) -> NoReturn:
    try:
        with os.fdopen(writes, "wb") as to_parent:
            pickle.dump(work(), to_parent)
    except BaseException:
        log.exception("a future failed")
        os._exit(1)
    os._exit(0)
