"""The event engine: one workload, one cluster, one scheduler, all at simulated time.

The scheduler is asked for a plan whenever something has changed: a job came, ended, crossed a
threshold, became eligible or lost its protection; or, with an interval, at the next tick after
that, as the controller polls. Plans come from ``decide`` itself wherever a policy runs in
production (``schedulers.py``).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from slurm_tiresias.model import (
    Allocation,
    Job,
    JobState,
    Node,
    PlacementStyle,
    Plan,
    Request,
    Snapshot,
)
from slurm_tiresias.simulator.workload import TraceJob


class Scheduler(Protocol):
    """Whatever turns a snapshot into a plan."""

    def plan(self, snapshot: Snapshot) -> Plan: ...

    def next_change_s(self, job: Job) -> float:
        """Running seconds until a running job's own progress may change the plan."""
        ...


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
    """When decisions are taken. ``interval_s`` 0: at every event."""

    interval_s: float = 0.0
    requeue_delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
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


@dataclass(slots=True)
class _Live:
    """A job that has come and not ended."""

    trace: TraceJob
    request: Request
    style: PlacementStyle | None
    skew: float | None
    work_s: float
    """Progress still to be made."""
    attained_gpu_s: float = 0.0
    executed_s: float = 0.0
    promoted_at_gpu_s: float = 0.0
    promoted_at_executed_s: float = 0.0
    waited_s: float = 0.0
    lost_s: float = 0.0
    spread_s: float = 0.0
    preemptions: int = 0
    promotions: int = 0
    runs: list[tuple[float, float]] = field(default_factory=list)
    queued_s: float = 0.0
    tier: int = 0
    tier_entered_s: float | None = None
    first_started_s: float | None = None
    started_s: float | None = None
    overhead_s: float = 0.0
    """Of this run: what comes before any progress."""
    speed: float = 1.0
    spread: bool = False
    allocation: Allocation = field(default_factory=dict)
    version: int = 0
    change_s: float = -math.inf
    """When its own progress may next change the plan."""

    def end_s(self) -> float:
        assert self.started_s is not None
        return self.started_s + self.overhead_s + self.work_s / self.speed

    def stop(self, now_s: float) -> None:
        """Book what this run has brought."""
        assert self.started_s is not None
        ran_s = now_s - self.started_s
        self.runs.append((self.started_s, now_s))
        self.attained_gpu_s += ran_s * self.trace.gpus
        self.executed_s += ran_s
        self.lost_s += min(ran_s, self.overhead_s)
        if self.spread:
            self.spread_s += ran_s
        self.work_s -= max(0.0, ran_s - self.overhead_s) * self.speed
        self.started_s = None
        self.allocation = {}
        self.queued_s = now_s
        self.change_s = -math.inf
        self.version += 1


class Simulation:
    """One run. ``request`` says what a job of the trace asks for on this cluster."""

    def __init__(
        self,
        jobs: tuple[TraceJob, ...],
        nodes: tuple[Node, ...],
        scheduler: Scheduler,
        physics: Physics,
        timing: Timing,
        describe: Callable[[TraceJob], tuple[Request, PlacementStyle | None, float | None]],
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._arrivals = jobs
        self._nodes = nodes
        self._scheduler = scheduler
        self._physics = physics
        self._timing = timing
        self._describe = describe
        self._progress = progress
        self._live: dict[str, _Live] = {}
        self._events: list[tuple[float, int, str]] = []
        """(when, version of the job, job id): a version that has passed makes an event void."""
        self._arrived = 0
        self._outcomes: list[Outcome] = []

    def run(self) -> tuple[Outcome, ...]:
        """Simulate until every job has ended; outcomes in the order of the trace."""
        while self._arrived < len(self._arrivals) or self._live:
            now_s = self._next_s()
            if math.isinf(now_s):
                break  # nothing can ever happen again: those that never fit wait for ever
            self._end_jobs(now_s)
            self._admit(now_s)
            self._decide(now_s)
            self._progress(len(self._outcomes))
        order = {job.job_id: number for number, job in enumerate(self._arrivals)}
        return tuple(sorted(self._outcomes, key=lambda outcome: order[outcome.job.job_id]))

    def _next_s(self) -> float:
        while self._events:
            _, version, key = self._events[0]
            live = self._live.get(key)
            if live is not None and live.version == version:
                break
            heapq.heappop(self._events)
        event_s = self._events[0][0] if self._events else math.inf
        more = self._arrived < len(self._arrivals)
        arrival_s = self._arrivals[self._arrived].submitted_s if more else math.inf
        return self._tick(min(event_s, arrival_s))

    def _tick(self, at_s: float) -> float:
        interval_s = self._timing.interval_s
        if interval_s <= 0 or math.isinf(at_s):
            return at_s
        return math.ceil(at_s / interval_s) * interval_s

    def _end_jobs(self, now_s: float) -> None:
        """End every job whose work is done; drop the events that have come."""
        while self._events and self._events[0][0] <= now_s:
            _, version, key = heapq.heappop(self._events)
            live = self._live.get(key)
            if live is None or live.version != version or live.started_s is None:
                continue
            end_s = live.end_s()
            if end_s <= now_s:
                live.stop(end_s)
                self._outcomes.append(_outcome(live, end_s))
                del self._live[key]

    def _admit(self, now_s: float) -> None:
        while self._arrived < len(self._arrivals):
            trace = self._arrivals[self._arrived]
            if trace.submitted_s > now_s:
                return
            self._arrived += 1
            request, style, skew = self._describe(trace)
            self._live[trace.job_id] = _Live(
                trace, request, style, skew, trace.duration_s, queued_s=trace.submitted_s
            )

    def _decide(self, now_s: float) -> None:
        snapshot = Snapshot(
            now_s, self._nodes, tuple(self._job(live, now_s) for live in self._live.values())
        )
        plan = self._scheduler.plan(snapshot)
        for key in plan.promotions:
            self._promote(self._live[key])
        for decision in plan.preemptions:
            self._preempt(self._live[decision.job_id], now_s)
        for decision in plan.starts:
            self._start(self._live[decision.job_id], decision.start_on, now_s)
        self._follow_tiers(plan, snapshot, now_s)

    def _job(self, live: _Live, now_s: float) -> Job:
        running = live.started_s is not None
        ran_s = now_s - live.started_s if live.started_s is not None else 0.0
        attained_gpu_s = live.attained_gpu_s + ran_s * live.trace.gpus
        executed_s = live.executed_s + ran_s
        done_s = max(0.0, ran_s - live.overhead_s) * live.speed
        eligible_s = live.queued_s + (self._timing.requeue_delay_s if live.preemptions else 0.0)
        return Job(
            job_id=live.trace.job_id,
            state=JobState.RUNNING if running else JobState.PENDING,
            request=live.request,
            submitted_s=live.trace.submitted_s,
            attained_gpu_s=attained_gpu_s,
            attained_since_promotion_gpu_s=attained_gpu_s - live.promoted_at_gpu_s,
            executed_since_promotion_s=executed_s - live.promoted_at_executed_s,
            waited_s=0.0 if running else now_s - live.queued_s,
            first_started_s=live.first_started_s,
            tier_entered_s=live.tier_entered_s,
            queued_s=live.queued_s,
            running_since_s=live.started_s,
            allocation=live.allocation,
            preemptions=live.preemptions,
            not_eligible="" if running or now_s >= eligible_s else "BeginTime",
            skew=live.skew,
            style=live.style,
            remaining_s=live.work_s - done_s,
        )

    def _promote(self, live: _Live) -> None:
        live.promotions += 1
        live.promoted_at_gpu_s = live.attained_gpu_s
        live.promoted_at_executed_s = live.executed_s

    def _preempt(self, live: _Live, now_s: float) -> None:
        live.stop(now_s)
        live.preemptions += 1
        if self._timing.requeue_delay_s > 0:
            self._at(now_s + self._timing.requeue_delay_s, live)

    def _start(self, live: _Live, allocation: Allocation, now_s: float) -> None:
        live.waited_s += now_s - live.queued_s
        live.started_s = now_s
        live.allocation = allocation
        live.speed = self._physics.speed(live.trace, allocation)
        live.spread = self._physics.is_spread(live.trace, allocation)
        live.overhead_s = self._physics.restart_s(live.trace) if live.preemptions else 0.0
        if live.first_started_s is None:
            live.first_started_s = now_s
        live.version += 1
        self._at(live.end_s(), live)

    def _follow_tiers(self, plan: Plan, snapshot: Snapshot, now_s: float) -> None:
        """Note who has come into which tier, and when the next of the running ones will."""
        for job in snapshot.jobs:
            live = self._live[job.job_id]
            tier = plan.decisions[job.job_id].tier or 0
            if tier != live.tier:
                live.tier, live.tier_entered_s = tier, now_s
            if live.started_s is not None and live.change_s <= now_s:
                live.change_s = now_s + self._scheduler.next_change_s(self._job(live, now_s))
                if live.change_s < live.end_s():
                    self._at(live.change_s, live)

    def _at(self, when_s: float, live: _Live) -> None:
        heapq.heappush(self._events, (when_s, live.version, live.trace.job_id))


def _outcome(live: _Live, end_s: float) -> Outcome:
    assert live.first_started_s is not None
    return Outcome(
        job=live.trace,
        first_start_s=live.first_started_s,
        end_s=end_s,
        waited_s=live.waited_s,
        preemptions=live.preemptions,
        lost_s=live.lost_s,
        promotions=live.promotions,
        runs=tuple(live.runs),
        spread_s=live.spread_s,
    )
