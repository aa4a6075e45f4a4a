"""The nominations and preemptions under way: what they wait for, and how their events are applied.

``core/lifecycle`` has their states; the job store keeps these in the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_tiresias.controller.difference import is_pending
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.lifecycles import EffectToCarryOut
from slurm_tiresias.controller.prospects import is_protected
from slurm_tiresias.controller.situation import Situations
from slurm_tiresias.core.lifecycle.nomination import (
    Expired,
    Nomination,
    NominationEvent,
    NominationState,
    Withdrawn,
)
from slurm_tiresias.core.lifecycle.preemption import (
    BackOff,
    Cause,
    Preemption,
    PreemptionEvent,
    PreemptionState,
    PreemptorGone,
)
from slurm_tiresias.model import Action, Allocation, JobProgress, JobState, JobStatus, Plan
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Observation, Slurm

RESTART_IN_S = 2
"""StartTime=now races with the revocation of the old credential and can kill the job; two seconds
later is safe (30 requeues on each of Slurm 22.05 and 24.11)."""


@dataclass(slots=True, eq=False)
class UnderWay:
    """The nominations and preemptions under way, with what all steps of acting work on."""

    slurm: Slurm
    job_store: JobStore
    config: Config
    requeue_delay_s: float
    """How long Slurm itself keeps a requeued job from starting."""
    progress_of: Callable[[str], JobProgress | None] = lambda _key: None
    """Returns a job's progress."""
    reports_of: Callable[[str], Sequence[JobProgress]] = lambda _key: ()
    """Returns the last report of each of a job's ended runs."""
    why_spared: Callable[[str, Cause], str] = lambda _key, _cause: ""
    """Returns why a job is not preempted for this cause any more."""
    ranks_last: Callable[[str], bool] = lambda _key: False
    """Whether a job has ranked last since its last requeue."""
    goes_by_gpu_s: Callable[[str], float | None] = lambda _key: None
    """Returns the estimate by which a job is ordered in its tier."""
    to_dump: Callable[[], Sequence[str]] = tuple
    """Returns which jobs are to print their stacks."""
    seen: Observation = field(default_factory=lambda: Observation(0.0, (), (), ()))
    """The present observation."""
    jobs: Mapping[str, JobStatus] = field(default_factory=dict)
    """Its jobs that have not ended."""
    suspects: Collection[str] = ()
    """The nodes that are suspected to be bad."""
    _free_gpus: Counter[str] = field(default_factory=Counter)
    """By node, the GPUs on which no job runs."""
    _situations: Situations = field(default_factory=Situations)
    _tried_in: dict[str, str] = field(default_factory=dict)
    """By nominated job, the last situation before any victim had left for it."""

    def follow(self, seen: Observation) -> None:
        """Take in an observation, once."""
        if seen is self.seen:
            return
        self.seen = seen
        self.jobs = {job.key: job for job in seen.jobs if job.state is not None}
        self._free_gpus = Counter({node.name: node.total.gpu_count for node in seen.nodes})
        for job in seen.jobs:
            if job.state is JobState.RUNNING:
                self._free_gpus.subtract(_gpus(job.allocation))
        self._situations = Situations(seen.nodes, self.jobs, self.job_store.accounts.all)
        self._tried_in = {
            one.key: (one.victims_left and self._tried_in.get(one.key)) or self.situation(one.key)
            for one in self.nominations.values()
            if one.is_active
        }

    @property
    def now_s(self) -> float:
        """The time of the present observation."""
        return self.seen.at_s

    @property
    def nominations(self) -> Mapping[str, Nomination]:
        return self.job_store.lifecycles.nominations

    def situation(self, key: str) -> str:
        """Return a job's present situation."""
        return self._situations.of(key)

    def situation_tried(self, key: str) -> str:
        """Return the situation to blame if the job's start fails now.

        It is the one before any victim left: a node drained after that says nothing about the other
        nodes, so the job must not back off from those.
        """
        return self._tried_in.get(key) or self.situation(key)

    def preemptions(
        self, *states: PreemptionState, for_job: bool | None = None
    ) -> Sequence[Preemption]:
        """Return the preemptions in these states, or in any; with ``for_job``, those that have a
        preemptor, or those that have none."""
        return [
            one
            for one in self.job_store.lifecycles.preemptions.values()
            if (not states or one.state in states) and for_job in (None, one.cause is Cause.FOR_JOB)
        ]

    def awaited_victims(self) -> Mapping[str, Sequence[Preemption]]:
        """Return, by preemptor, the running victims that must leave before it can start.

        These are its own; where they leave too few GPUs on a node, also the victims of other
        preemptors there, since a victim may leave more than its own preemptor needs.
        """
        making_room = [
            one for one in self.preemptions(for_job=True) if one.makes_room and self.runs(one.key)
        ]
        awaited: dict[str, list[Preemption]] = {}
        for one in making_room:
            awaited.setdefault(one.preemptor, []).append(one)
        for key, nomination in self.nominations.items():
            wanted = None if nomination.needs_no_victims else nomination.allocated()
            lacking = self.nodes_without_room(wanted or {}, awaited.get(key, ()))
            others = [
                one
                for one in making_room
                if one.preemptor != key and not lacking.isdisjoint(self.jobs[one.key].allocation)
            ]
            if others:
                awaited[key] = [*awaited.get(key, ()), *others]
        return awaited

    def nodes_without_room(self, wanted: Allocation, leaving: Iterable[Preemption]) -> set[str]:
        """Return the nodes that lack GPUs for an allocation even once these victims have left."""
        room = {node: self._free_gpus[node] for node in wanted}
        for one in leaving:
            for node, gpus in _gpus(self.jobs[one.key].allocation).items():
                if node in room:
                    room[node] += gpus
        return {node for node, amount in wanted.items() if room[node] < amount.gpu_count}

    def runs(self, key: str) -> bool:
        """Whether a job runs."""
        job = self.jobs.get(key)
        return job is not None and job.state is JobState.RUNNING

    def waits(self, key: str) -> bool:
        """Whether a job is pending."""
        return is_pending(self.jobs.get(key))

    def put_off_by_slurm(self, job: JobStatus) -> bool:
        """Whether only Slurm's own delay keeps a requeued job from starting."""
        waits_s = (job.eligible_s or self.now_s) - self.now_s
        longest_s = self.requeue_delay_s + RESTART_IN_S
        return RESTART_IN_S + 1 < waits_s <= longest_s and job.priority != 0

    def is_awaited(self, preemptor: str) -> bool:
        """Whether a job is pending and nominated on named nodes."""
        nomination = self.nominations.get(preemptor)
        return bool(nomination and nomination.allocation) and self.waits(preemptor)

    def is_about_to_start(self, key: str) -> bool:
        """Whether a job waits only for victims that are leaving, or for nothing at all."""
        nomination = self.nominations.get(key)
        if nomination is None or not self.waits(key):
            return False
        return nomination.state in (NominationState.ASKED, NominationState.FREE)

    def has_to_leave(self, one: Preemption, plan: Plan) -> bool:
        """Whether a victim still runs and is managed, and its preemptor still awaits its GPUs or
        the plan still preempts it for no other job."""
        decision = plan.decisions.get(one.key)
        if decision is None or not self.runs(one.key) or is_protected(self.jobs[one.key]):
            return False
        if one.cause is Cause.FOR_JOB:
            return decision.action is not Action.LEAVE and self.is_awaited(one.preemptor)
        return decision.action is Action.PREEMPT

    def tell(self, victim: str, event: PreemptionEvent) -> Sequence[EffectToCarryOut]:
        """Apply an event to a preemption, carry out its back-off, and return all its effects."""
        effects = self.job_store.lifecycles.preemption_event(victim, event)
        for effect in effects:
            if isinstance(effect, BackOff):
                self.expire(effect.preemptor, effect.at_s, effect.why)
        return effects

    def call_off(self, victim: str) -> None:
        """Call off the preemption of a job that runs: its preemptor does not need it any more."""
        self.tell(victim, PreemptorGone(victim_runs=True))

    def tell_nominated(self, key: str, event: NominationEvent) -> None:
        """Apply an event to a job's nomination."""
        self.job_store.lifecycles.nomination_event(key, event)

    def expire(self, key: str, at_s: float, why: str, *, may_pass: bool = False) -> None:
        """Let a job's nomination expire; ``may_pass``: for a reason that may go away."""
        self.tell_nominated(key, Expired(at_s, self.situation_tried(key), why, may_pass))

    def withdraw(self, key: str) -> None:
        """Withdraw a job's nomination."""
        self.tell_nominated(key, Withdrawn())


def _gpus(allocation: Allocation) -> Mapping[str, int]:
    return {node: amount.gpu_count for node, amount in allocation.items()}


def why_it_did_not_start(job: JobStatus) -> str:
    return f"did not start on its nomination (Slurm's reason: {job.reason or 'none'})"
