"""The event engine: one workload, one cluster, one scheduler, all at simulated time.

The scheduler is asked who starts whenever something has changed: a job came, ended, crossed a
threshold, became eligible or lost its protection; or, with an interval, at the next tick after
that, as the controller polls.
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

from slurm_tiresias.model import Allocation, JobState, PlacementStyle, Protection, Request
from slurm_tiresias.scheduling.cluster import Start
from slurm_tiresias.simulator.workload import TraceJob

NOTHING: Allocation = {}
ENDS_BETWEEN_PROGRESS = 100
"""So many jobs end before the next word of it is given."""


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What jobs ask of the cluster, and how they are laid over it. Shared by all that ask alike."""

    request: Request
    style: PlacementStyle


class SimJob:
    """A job that has come and not ended: what a scheduler may know of it, and what it may not."""

    state = JobState.PENDING
    attained_gpu_s = 0.0
    attained_since_promotion_gpu_s = 0.0
    executed_since_promotion_s = 0.0
    inherited_gpu_s = 0.0
    tier = 0
    tier_entered_s: float | None = None
    first_started_s: float | None = None
    running_since_s: float | None = None
    end_s = math.inf
    overhead_s = 0.0
    """Of this run: what is still to come before any progress."""
    speed = 1.0
    spread = False
    allocation: Allocation = NOTHING
    preemptions = 0
    promotions = 0
    only_idle = False
    """Its user is over budget: it may use idle GPUs, and no job is preempted for it."""
    skew: float | None = None
    protected_by: Protection | None = None
    waited_before_s = 0.0
    lost_s = 0.0
    spread_s = 0.0
    version = 0
    """What it was to do next is void once this number has moved on."""

    def __init__(self, trace: TraceJob, number: int, ask: Ask) -> None:
        self.trace = trace
        self.number = number
        self.id_key = (float(number),)
        """Ids of jobs rise as they come; those of a trace need not."""
        self.ask = ask
        self.request, self.style = ask.request, ask.style
        self.job_id = trace.job_id
        self.user = trace.user
        self.name = trace.name
        self.width = self.gpus_asked = trace.gpus
        self.submitted_s = self.settled_s = trace.submitted_s
        self.queued_s: float | None = trace.submitted_s
        self.work_s = trace.duration_s
        """Progress still to be made, as of ``settled_s``."""
        self.runs: list[tuple[float, float]] = []

    @property
    def remaining_s(self) -> float:
        """Progress still to be made; only the clairvoyant may ask."""
        return self.work_s

    @property
    def run_s(self) -> float:
        """How long it has run in all."""
        return self.attained_gpu_s / self.width

    @property
    def service_gpu_s(self) -> float:
        """The GPU-time that it has had in all."""
        return self.attained_gpu_s

    def settle(self, now_s: float) -> None:
        """Bring the books of a running job up to date."""
        ran_s = now_s - self.settled_s
        if ran_s <= 0.0:
            return
        self.settled_s = now_s
        self.attained_gpu_s += ran_s * self.width
        self.attained_since_promotion_gpu_s += ran_s * self.width
        self.executed_since_promotion_s += ran_s
        if self.spread:
            self.spread_s += ran_s
        if self.overhead_s > 0.0:
            lost_s = min(ran_s, self.overhead_s)
            self.overhead_s -= lost_s
            self.lost_s += lost_s
            ran_s -= lost_s
        self.work_s -= ran_s * self.speed

    def start(self, start_s: float, allocation: Allocation, physics: Physics) -> None:
        """Begin a run."""
        assert self.queued_s is not None
        self.waited_before_s += start_s - self.queued_s
        self.state = JobState.RUNNING
        self.running_since_s = self.settled_s = start_s
        if self.first_started_s is None:
            self.first_started_s = start_s
        self.allocation = allocation
        self.speed = physics.speed(self.trace, allocation)
        self.spread = physics.is_spread(self.trace, allocation)
        self.overhead_s = physics.restart_s(self.trace) if self.preemptions else 0.0
        self.end_s = start_s + self.overhead_s + self.work_s / self.speed
        self.version += 1

    def stop(self, now_s: float) -> None:
        """End a run: preempted, or done."""
        assert self.running_since_s is not None
        self.settle(now_s)
        start_s = self.running_since_s
        if self.runs and self.runs[-1][1] == start_s:
            start_s, _ = self.runs.pop()  # it went on at once, on the same nodes or on others
        self.runs.append((start_s, now_s))
        self.state = JobState.PENDING
        self.running_since_s = None
        self.allocation = NOTHING
        self.queued_s = now_s
        self.version += 1

    def enter_tier(self, tier: int, now_s: float) -> None:
        """Note that it has come into another tier."""
        self.tier, self.tier_entered_s = tier, now_s

    def promote(self) -> None:
        """Back to the top tier (paper page 491)."""
        self.promotions += 1
        self.attained_since_promotion_gpu_s = 0.0
        self.executed_since_promotion_s = 0.0
        self.inherited_gpu_s = 0.0


class Scheduler(Protocol):
    """Decides which jobs start, told of all that changes.

    What is not overridden is right for a scheduler that looks at the queue only, and only when a
    job comes or ends.
    """

    def waits(self, job: SimJob, now_s: float) -> None:
        """A job may be started: it has come, or it is eligible again after a preemption."""
        ...

    def runs(self, job: SimJob, now_s: float) -> None:
        """A start that was chosen has taken place."""
        return

    def moved(self, job: SimJob, now_s: float) -> None:
        """A job's own progress has changed what ``next_change_s`` had foretold."""
        return

    def ended(self, job: SimJob) -> None: ...

    def choose(self, now_s: float) -> Iterable[Start]:
        """Who starts now; the GPUs of the victims are free for it."""
        ...

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        """When a job's own progress, or its waiting, may next change what is chosen."""
        return math.inf

    def next_wake_s(self, now_s: float) -> float:
        """When to choose again though nothing happens; infinite where there is no need."""
        return math.inf


class Physics(Protocol):
    """What placement and preemption cost a job."""

    def speed(self, job: TraceJob, allocation: Allocation) -> float:
        """Progress per second, 1.0 for a job that nothing slows."""
        ...

    def is_spread(self, job: TraceJob, allocation: Allocation) -> bool:
        """Whether the job is on more nodes than it needs."""
        ...

    def restart_s(self, job: TraceJob) -> float:
        """Running time lost to one preemption: saving, and loading at the next start."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """When decisions are taken. ``interval_s`` 0: at every event.

    ``requeue_delay_s`` is how long Slurm keeps a requeued job from starting again.
    ``preempting_delay_s`` is how long it takes from the decision until those who are to leave have
    left and the other starts; they run on meanwhile.
    """

    interval_s: float = 0.0
    requeue_delay_s: float = 0.0
    preempting_delay_s: float = 0.0


class Outcome(NamedTuple):
    """What became of one job."""

    job: TraceJob
    first_start_s: float
    end_s: float
    waited_s: float
    preemptions: int
    lost_s: float
    """Running time spent on restarts, not on progress."""
    promotions: int = 0
    runs: tuple[tuple[float, float], ...] = ()
    """When it held its GPUs: start and end of each run, in seconds of the workload's clock."""
    spread_s: float = 0.0
    """Of its running time, that on more nodes than it needed."""

    @property
    def jct_s(self) -> float:
        """Job completion time: from submission to end."""
        return self.end_s - self.job.submitted_s


class Simulation:
    """One run. ``ask`` says what a job of the trace asks for on this cluster."""

    def __init__(
        self,
        jobs: tuple[TraceJob, ...],
        scheduler: Scheduler,
        physics: Physics,
        timing: Timing,
        ask: Callable[[TraceJob], Ask],
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._arrivals = jobs
        self._scheduler = scheduler
        self._physics = physics
        self._timing = timing
        self._ask = ask
        self._progress = progress
        self._live: dict[str, SimJob] = {}
        self._events: list[tuple[float, int, int, SimJob]] = []
        """(when, number of the job, its version, the job)."""
        self._arrived = 0
        self._next_arrival_s = jobs[0].submitted_s if jobs else math.inf
        self._outcomes: list[tuple[int, Outcome]] = []

    def run(self) -> tuple[Outcome, ...]:
        """Simulate until nothing can happen any more; outcomes in the order of the trace."""
        now_s, told = -math.inf, 0
        with _without_garbage_collection():
            while (now_s := self._next_s(now_s)) < math.inf:
                self._happen(now_s)
                while self._next_arrival_s <= now_s:
                    self._admit(now_s)
                for start in self._scheduler.choose(now_s):
                    self._carry_out(start, now_s)
                if len(self._outcomes) >= told + ENDS_BETWEEN_PROGRESS:
                    told = len(self._outcomes)
                    self._progress(told)
        self._progress(len(self._outcomes))
        return tuple(outcome for _, outcome in sorted(self._outcomes, key=itemgetter(0)))

    def _next_s(self, now_s: float) -> float:
        events = self._events
        while events and events[0][3].version != events[0][2]:
            heapq.heappop(events)
        next_s = self._next_arrival_s
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
        """All that jobs do by themselves up to now."""
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

    def _admit(self, now_s: float) -> None:
        trace = self._arrivals[self._arrived]
        job = SimJob(trace, self._arrived, self._ask(trace))
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
            job.waited_before_s,
            job.preemptions,
            job.lost_s,
            job.promotions,
            tuple(job.runs),
            job.spread_s,
        )
        self._outcomes.append((job.number, outcome))

    def _carry_out(self, start: Start, now_s: float) -> None:
        start_s = now_s + self._timing.preempting_delay_s if start.victims else now_s
        for victim in start.victims:
            self._preempt(self._live[victim], start_s, now_s)
        job = self._live[start.job_id]
        job.start(start_s, start.allocation, self._physics)
        self._scheduler.runs(job, now_s)
        self._look_ahead(job, start_s)

    def _preempt(self, job: SimJob, at_s: float, now_s: float) -> None:
        if job.end_s <= at_s:  # it ends during its grace
            self._conclude(job)
            return
        job.stop(at_s)
        job.preemptions += 1
        eligible_s = at_s + self._timing.requeue_delay_s
        if eligible_s > now_s:
            self._at(eligible_s, job)
        else:
            self._eligible(job, now_s)

    def _eligible(self, job: SimJob, now_s: float) -> None:
        """A waiting job may start, or has waited long enough for its rank to change."""
        self._scheduler.waits(job, now_s)
        change_s = self._next_change_s(job, now_s)
        if change_s < math.inf:
            self._at(change_s, job)

    def _look_ahead(self, job: SimJob, now_s: float) -> None:
        """Note when a running job ends, or when its progress next matters before that."""
        self._at(min(job.end_s, self._next_change_s(job, now_s)), job)

    def _next_change_s(self, job: SimJob, now_s: float) -> float:
        change_s = self._scheduler.next_change_s(job, now_s)
        # A threshold missed by a rounding error is reached with the next number there is.
        return change_s if change_s > now_s else math.nextafter(now_s, math.inf)

    def _at(self, when_s: float, job: SimJob) -> None:
        heapq.heappush(self._events, (when_s, job.number, job.version, job))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A simulation makes millions of objects and no cycles; looking for some takes its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _tick(at_s: float, interval_s: float) -> float:
    """The first multiple of the interval that is not before, also where a quotient was rounded."""
    ticks = math.ceil(at_s / interval_s)
    return ticks * interval_s if ticks * interval_s >= at_s else (ticks + 1) * interval_s
