"""The event engine: runs one workload on one cluster under one scheduler in simulated time.

The scheduler chooses starts after each event: a job arrives, ends, crosses a threshold, becomes
eligible or loses its protection. With an interval it chooses at the next tick after the event, as
the polling controller does.
"""

from __future__ import annotations

import gc
import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, Protocol

from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.features.at_stake import work_at_stake
from slurm_tiresias.core.features.program_costs import Measured
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import NOWHERE, Allocation, JobState, PlacementStyle, Request
from slurm_tiresias.simulator.saves import measured, reported
from slurm_tiresias.simulator.workload import TraceJob

ENDS_BETWEEN_PROGRESS = 100
"""Number of jobs that end between two progress reports."""

NO_FAILURE = (math.inf, "")


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A request and its placement style, shared by all jobs with the same request."""

    request: Request
    style: PlacementStyle


class SimJob(Job):
    """A job that has arrived and not ended, with what the core does not know of it."""

    def __init__(self, trace: TraceJob, number: int, ask: Ask, physics: Physics) -> None:
        super().__init__(
            trace.job_id,
            ask.request,
            user=trace.user,
            name=trace.name,
            bank_account=trace.account,
            submitted_s=trace.submitted_s,
            time_limit_s=trace.limit_s,
            queued_s=trace.submitted_s,
            settled_s=trace.submitted_s,
            tier=0,
            style=ask.style,
            # The order of arrival breaks ties, because the ids of a trace need not be ascending.
            id_key=(float(number),),
        )
        self.trace = trace
        self._physics = physics
        self.save_every_s = physics.save_every_s(trace)
        self.tells_saves = physics.tells_saves(trace)
        self.reports = False
        """Whether it reports its progress."""
        self.number = number
        self.ask = ask
        self.work_s = self.remaining_s = trace.duration_s
        """Remaining work in seconds at speed 1.0, as of ``settled_s``."""
        self.runs: list[tuple[float, float]] = []
        self.end_s = math.inf
        self.overhead_s = 0.0
        """Restart overhead left in this run, in seconds, before the job makes progress."""
        self.speed = 1.0
        self.spread = False
        self.lost_s = 0.0
        self.unsaved_s = 0.0
        """Running time since its last save or, if later, since this run began to make progress."""
        self.first_s = 0.0
        """When this run begins to make progress."""
        self.saved_s: float | None = None
        """When this run last saved; None if it has not, or saves when it is asked to."""
        self.measured: Measured | None = None
        """What its last preemption cost."""
        self.again_s = 0.0
        """Running time whose work was lost in preemptions and repeated."""
        self.failures = 0
        """How often a run of it failed with a node."""
        self.spread_s = 0.0
        self.version = 0
        """Incremented at each start and stop; queued events with an older version are void."""

    @property
    def service_gpu_s(self) -> float:
        """Total attained service in GPU-seconds."""
        return self.attained_gpu_s

    def settle(self, now_s: float) -> None:
        """Bring the service and remaining work of a running job up to date."""
        ran_s = now_s - self.settled_s
        if ran_s <= 0.0:
            return
        super().settle(now_s)
        if self.spread:
            self.spread_s += ran_s
        if self.overhead_s > 0.0:
            lost_s = min(ran_s, self.overhead_s)
            self.overhead_s -= lost_s
            self.lost_s += lost_s
            ran_s -= lost_s
        self.work_s -= ran_s * self.speed
        self.remaining_s = self.work_s
        if self.save_every_s > 0.0:
            before_s = self.unsaved_s
            self.unsaved_s = math.fmod(before_s + ran_s, self.save_every_s)
            if before_s + ran_s >= self.save_every_s:
                self.saved_s = now_s - self.unsaved_s
        if self.tells_saves:
            self.follow_stake()

    def start(self, start_s: float, allocation: Allocation) -> None:
        self.state = JobState.RUNNING
        self.running_since_s = self.settled_s = start_s
        if self.first_started_s is None:
            self.first_started_s = start_s
        self.allocation = allocation
        physics = self._physics
        self.speed = physics.speed(self.trace, allocation)
        self.spread = physics.is_spread(self.trace, allocation)
        self.overhead_s = (
            physics.restart_s(self.trace) if self.preemptions or self.failures else 0.0
        )
        self.first_s = start_s + self.overhead_s
        self.unsaved_s, self.saved_s = 0.0, None
        self.end_s = start_s + self.overhead_s + self.work_s / self.speed
        self.version += 1
        self.follow_stake()

    def stop(self, now_s: float) -> None:
        """End a run, because the job is preempted or done."""
        assert self.running_since_s is not None
        self.settle(now_s)
        start_s = self.running_since_s
        if self.runs and self.runs[-1][1] == start_s:
            start_s, _ = self.runs.pop()  # restarted without a gap, so the two runs count as one
        self.runs.append((start_s, now_s))
        self.state = JobState.PENDING
        self.running_since_s = None
        self.allocation = NOWHERE
        self.at_stake = None
        self.queued_s = now_s
        self.version += 1

    def preempt(self, now_s: float) -> None:
        """End a run by a preemption, which loses the work since the last save."""
        self.stop(now_s)
        self.preemptions += 1
        restart_s = self._physics.restart_s(self.trace)
        self.measured = measured(restart_s, self.unsaved_s, self.saved_s, self.save_every_s)
        self._lose(self.unsaved_s)

    def fail(self, now_s: float) -> None:
        """End a run by a failure of its node. Programs that save on request could not."""
        self.stop(now_s)
        self.failures += 1
        saves = self.save_every_s > 0.0
        self._lose(self.unsaved_s if saves else max(0.0, now_s - self.first_s))

    def _lose(self, work_s: float) -> None:
        self.again_s += work_s
        self.work_s += work_s * self.speed
        self.remaining_s = self.work_s

    @property
    def next_save_s(self) -> float:
        """When it saves next, as of ``settled_s``; infinite if it saves only when asked to."""
        if self.save_every_s <= 0.0:
            return math.inf
        return self.settled_s + self.overhead_s + self.save_every_s - self.unsaved_s

    def follow_stake(self) -> None:
        """Follow what a preemption would lose, by what the job reports and its program's costs."""
        assert self.running_since_s is not None
        progress = None
        if self.tells_saves or self.reports:
            saves = (self.saved_s, self.save_every_s) if self.tells_saves else (None, 0.0)
            progress = reported(self.preemptions, self.settled_s, self.first_s, *saves)
        self.at_stake = work_at_stake(self.running_since_s, progress, self.program_costs)


class Scheduler(Protocol):
    """A scheduler that is notified of all events and chooses which jobs start.

    The default methods suit a scheduler that considers only the queue, and only when a job arrives
    or ends.
    """

    def waits(self, job: SimJob, now_s: float) -> None:
        """Add a job that may be started: it has arrived, or is eligible again after a preemption.

        Also called again at ``next_change_s`` while it waits.
        """
        ...

    def runs(self, job: SimJob, now_s: float) -> None:
        """Record that a start chosen by ``choose`` has taken place."""
        return

    def moved(self, job: SimJob, now_s: float) -> None:
        """Update a running job at the time that ``next_change_s`` returned for it."""
        return

    def preempted(self, job: SimJob, now_s: float) -> None:
        """Record that a victim has left; ``waits`` is called once it may start again."""
        return

    def ended(self, job: SimJob) -> None: ...

    def ended_in_grace(self, job: SimJob) -> None:
        """Record that a victim has ended before it had to leave."""
        return

    def failed(self, job: SimJob, now_s: float) -> None:
        """Record that a run ends with its node; ``waits`` is called once it may start again."""
        job.end_s = now_s
        self.ended(job)

    def choose(self, now_s: float) -> Iterable[Start]:
        """Choose the jobs that start now, with the victims whose GPUs they take."""
        ...

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        """When a job's progress or waiting time may next change what is chosen."""
        return math.inf

    def next_wake_s(self, now_s: float) -> float:
        """When to choose again even if no event happens; infinite if not needed."""
        return math.inf


class Physics(Protocol):
    """The effect of placement and preemption on a job's progress."""

    def speed(self, job: TraceJob, allocation: Allocation) -> float:
        """Progress per second; 1.0 for a job at its normal speed."""
        ...

    def is_spread(self, job: TraceJob, allocation: Allocation) -> bool:
        """Whether the job is on more nodes than it needs."""
        ...

    def restart_s(self, job: TraceJob) -> float:
        """Running time in seconds lost to one preemption, for saving and loading."""
        ...

    def save_every_s(self, job: TraceJob) -> float:
        """Running time between two saves; 0 if the job saves when it is asked to."""
        ...

    def tells_saves(self, job: TraceJob) -> bool:
        """Whether the job reports its saves."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """When decisions are made and take effect, in seconds.

    ``interval_s`` is the polling interval; 0 means a decision at every event. ``requeue_delay_s``
    is how long Slurm keeps a requeued job from starting again. ``preempting_delay_s`` is the time
    from the decision until the victims have left and the preemptor starts; the victims run on
    meanwhile.
    """

    interval_s: float = 0.0
    requeue_delay_s: float = 0.0
    preempting_delay_s: float = 0.0


class Outcome(NamedTuple):
    """The result of one job."""

    job: TraceJob
    first_start_s: float
    end_s: float
    waited_s: float
    preemptions: int
    lost_s: float
    """Running time spent on restarts, not on progress."""
    promotions: int = 0
    runs: tuple[tuple[float, float], ...] = ()
    """Start and end of each run, in seconds of the workload's clock."""
    spread_s: float = 0.0
    """Running time on more nodes than it needed."""
    again_s: float = 0.0
    """Running time whose work was lost in preemptions and failures, and repeated."""
    failures: int = 0
    """How often its runs failed with a node."""

    @property
    def jct_s(self) -> float:
        """Job completion time: from submission to end."""
        return self.end_s - self.job.submitted_s


class Simulation:
    """One simulation. ``ask`` returns the request of a trace job on this cluster."""

    def __init__(
        self,
        jobs: tuple[TraceJob, ...],
        scheduler: Scheduler,
        physics: Physics,
        timing: Timing,
        ask: Callable[[TraceJob], Ask],
        progress: Callable[[int], None] = lambda _: None,
        until: Callable[[float], bool] = lambda _now_s: False,
        failures: Iterator[tuple[float, str]] = iter(()),  # noqa: B008 - empty
    ) -> None:
        """Prepare a simulation, which ends early once ``until``, asked after each decision, says
        so. ``failures`` are the times and the nodes of failures."""
        self._until = until
        self._failures = failures
        self._failure = next(failures, NO_FAILURE)
        self._scheduler = scheduler
        self._physics = physics
        self._timing = timing
        self._ask = ask
        self._progress = progress
        self._live: dict[str, SimJob] = {}
        self._events: list[tuple[float, int, int, SimJob]] = []
        """Heap of (time, job number, job version, job)."""
        self._outcomes: list[tuple[int, Outcome]] = []
        self.expect(jobs)

    @property
    def live(self) -> Iterable[SimJob]:
        """The jobs that have arrived and not ended."""
        return self._live.values()

    def expect(self, jobs: tuple[TraceJob, ...]) -> None:
        """Let these jobs arrive, in the order of their submission."""
        self._arrivals = jobs
        self._arrived = 0
        self._next_arrival_s = jobs[0].submitted_s if jobs else math.inf

    def resume(self, job: SimJob) -> None:
        """Add a job that runs or waits when the simulation begins; the scheduler knows it."""
        self._live[job.job_id] = job
        if job.state is JobState.RUNNING:
            self._look_ahead(job, job.settled_s)

    def run(self, now_s: float = -math.inf) -> tuple[Outcome, ...]:
        """Simulate until no events are left; return the outcomes in the order of the trace."""
        told = 0
        with _without_garbage_collection():
            if self._live:
                self._decide(now_s)
            while (now_s := self._next_s(now_s)) < math.inf:
                self._happen(now_s)
                while self._next_arrival_s <= now_s:
                    self._admit(now_s)
                self._decide(now_s)
                if self._until(now_s):
                    break
                if len(self._outcomes) >= told + ENDS_BETWEEN_PROGRESS:
                    told = len(self._outcomes)
                    self._progress(told)
        self._progress(len(self._outcomes))
        return tuple(outcome for _, outcome in sorted(self._outcomes, key=itemgetter(0)))

    def _decide(self, now_s: float) -> None:
        """Choose, and carry it out, until that has changed nothing that needs another choice."""
        changed = True
        while changed:
            changed = False
            for start in self._scheduler.choose(now_s):
                self._carry_out(start, now_s)
                changed = True
            changed = changed and self._scheduler.next_wake_s(now_s) <= now_s

    def _next_s(self, now_s: float) -> float:
        events = self._events
        while events and events[0][3].version != events[0][2]:
            heapq.heappop(events)
        next_s = min(self._next_arrival_s, self._failure[0] if self._live else math.inf)
        if events and events[0][0] < next_s:
            next_s = events[0][0]
        elif next_s == math.inf and not self._live:
            return math.inf
        interval_s = self._timing.interval_s
        wake_s = self._scheduler.next_wake_s(now_s)
        if wake_s <= now_s:
            wake_s = now_s + interval_s if interval_s > 0 else math.inf
        if wake_s < next_s:
            next_s = wake_s
        return next_s if interval_s <= 0 or next_s == math.inf else _tick(next_s, interval_s)

    def _happen(self, now_s: float) -> None:
        """Process the events of jobs that are due: ends, threshold crossings, eligibility."""
        events = self._events
        while events and events[0][0] <= now_s:
            _, _, version, job = heapq.heappop(events)
            if job.version != version:
                continue
            if job.state is not JobState.RUNNING:
                self._eligible(job, now_s)
            elif job.end_s <= now_s:
                self._scheduler.ended(job)
                self._conclude(job)
            else:
                job.settle(now_s)
                self._scheduler.moved(job, now_s)
                self._look_ahead(job, now_s)
        while self._failure[0] <= now_s:
            self._fail(self._failure[1], now_s)
            self._failure = next(self._failures, NO_FAILURE)

    def _fail(self, node: str, now_s: float) -> None:
        """End the runs on a node."""
        for job in list(self._live.values()):
            since_s = job.running_since_s
            if since_s is not None and since_s < now_s < job.end_s and node in job.allocation:
                self._scheduler.failed(job, now_s)
                job.fail(now_s)
                self._requeued(job, now_s, now_s)

    def _requeued(self, job: SimJob, at_s: float, now_s: float) -> None:
        eligible_s = at_s + self._timing.requeue_delay_s
        if eligible_s > now_s:
            self._at(eligible_s, job)
        else:
            self._eligible(job, now_s)

    def _admit(self, now_s: float) -> None:
        trace = self._arrivals[self._arrived]
        job = SimJob(trace, self._arrived, self._ask(trace), self._physics)
        self._live[job.job_id] = job
        self._arrived += 1
        more = self._arrived < len(self._arrivals)
        self._next_arrival_s = self._arrivals[self._arrived].submitted_s if more else math.inf
        self._eligible(job, now_s)

    def _conclude(self, job: SimJob) -> None:
        job.stop(job.end_s)
        del self._live[job.job_id]
        assert job.first_started_s is not None
        outcome = Outcome(
            job.trace,
            job.first_started_s,
            job.end_s,
            job.end_s - job.trace.submitted_s - job.run_s,
            job.preemptions,
            job.lost_s,
            job.promotions,
            tuple(job.runs),
            job.spread_s,
            job.again_s,
            job.failures,
        )
        self._outcomes.append((job.number, outcome))

    def _carry_out(self, start: Start, now_s: float) -> None:
        start_s = now_s + self._timing.preempting_delay_s if start.victims else now_s
        for victim in start.victims:
            self._preempt(self._live[victim], start_s, now_s)
        job = self._live[start.job_id]
        job.start(start_s, start.allocation)
        self._scheduler.runs(job, now_s)
        self._look_ahead(job, start_s)

    def _preempt(self, job: SimJob, at_s: float, now_s: float) -> None:
        if job.end_s <= at_s:
            self._scheduler.ended_in_grace(job)
            self._conclude(job)
            return
        job.preempt(at_s)
        self._scheduler.preempted(job, now_s)
        self._requeued(job, at_s, now_s)

    def _eligible(self, job: SimJob, now_s: float) -> None:
        """Report a waiting job that may start or whose rank may change, and schedule its next
        change."""
        self._scheduler.waits(job, now_s)
        change_s = self._next_change_s(job, now_s)
        if change_s < math.inf:
            self._at(change_s, job)

    def _look_ahead(self, job: SimJob, now_s: float) -> None:
        """Schedule the next event of a running job: its end or an earlier change of rank."""
        self._at(min(job.end_s, self._next_change_s(job, now_s)), job)

    def _next_change_s(self, job: SimJob, now_s: float) -> float:
        change_s = self._scheduler.next_change_s(job, now_s)
        # Rounding may leave the job just short of the threshold; the next float reaches it.
        return change_s if change_s > now_s else math.nextafter(now_s, math.inf)

    def _at(self, when_s: float, job: SimJob) -> None:
        heapq.heappush(self._events, (when_s, job.number, job.version, job))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: a simulation makes millions of objects and no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _tick(at_s: float, interval_s: float) -> float:
    """Return the first multiple of the interval at or after a time, despite rounding errors."""
    ticks = math.ceil(at_s / interval_s)
    return ticks * interval_s if ticks * interval_s >= at_s else (ticks + 1) * interval_s
