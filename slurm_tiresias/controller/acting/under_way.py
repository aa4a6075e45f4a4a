"""The nominations and preemptions under way: what they wait for, and how their events are applied.

``core/lifecycle`` has their states; the job store keeps these in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_tiresias.controller.difference import is_pending
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.lifecycles import EffectToCarryOut
from slurm_tiresias.controller.manage import is_protected
from slurm_tiresias.controller.situation import Situations
from slurm_tiresias.core.lifecycle.nomination import Expired, NominationState, Withdrawn
from slurm_tiresias.core.lifecycle.preemption import (
    BackOff,
    Cause,
    Preemption,
    PreemptionEvent,
    PreemptionState,
    PreemptorGone,
)
from slurm_tiresias.model import Action, JobState, JobStatus, Plan
from slurm_tiresias.slurm.protocol import Observation


class UnderWay:
    """The nominations and preemptions under way."""

    def __init__(self, job_store: JobStore) -> None:
        self._job_store = job_store
        self._situations = Situations()
        """The situations of the last review."""
        self._tried_in: dict[str, str] = {}
        """By nominated job, the last situation before any victim had left for it."""

    def follow(self, seen: Observation, jobs: Mapping[str, JobStatus]) -> None:
        """Take in the situations of an observation."""
        self._situations = Situations(seen.nodes, jobs, self._job_store.accounts.all)
        self._tried_in = {
            one.key: (one.victims_left and self._tried_in.get(one.key)) or self.situation(one.key)
            for one in self._job_store.lifecycles.nominations.values()
            if one.is_active
        }

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
        self, *states: PreemptionState, cause: Cause | None = None
    ) -> Sequence[Preemption]:
        """Return the preemptions in these states, or in any, and of a cause if one is given."""
        return [
            one
            for one in self._job_store.lifecycles.preemptions.values()
            if (not states or one.state in states) and cause in (None, one.cause)
        ]

    def is_awaited(self, preemptor: str, jobs: Mapping[str, JobStatus]) -> bool:
        """Whether a job is pending and nominated on named nodes."""
        nomination = self._job_store.lifecycles.nominations.get(preemptor)
        on_nodes = nomination is not None and bool(nomination.allocation)
        return on_nodes and is_pending(jobs.get(preemptor))

    def is_about_to_start(self, key: str, jobs: Mapping[str, JobStatus]) -> bool:
        """Whether a job waits only for victims that are leaving, or for nothing at all."""
        nomination = self._job_store.lifecycles.nominations.get(key)
        if nomination is None or not is_pending(jobs.get(key)):
            return False
        return nomination.state in (NominationState.ASKED, NominationState.FREE)

    def has_to_leave(self, one: Preemption, plan: Plan, jobs: Mapping[str, JobStatus]) -> bool:
        """Whether a victim still runs and is managed, and its preemptor still awaits its GPUs or
        the plan still preempts it for idle GPUs."""
        job, decision = jobs.get(one.key), plan.decisions.get(one.key)
        if job is None or decision is None or not is_running(job) or is_protected(job):
            return False
        match one.cause:
            case Cause.FOR_JOB:
                managed = decision.action is not Action.LEAVE
                return managed and self.is_awaited(one.preemptor, jobs)
            case Cause.IDLE_GPUS:
                return decision.action is Action.PREEMPT

    def tell(self, victim: str, event: PreemptionEvent) -> Sequence[EffectToCarryOut]:
        """Apply an event to a preemption, carry out its back-off, and return all its effects."""
        effects = self._job_store.lifecycles.preemption_event(victim, event)
        for effect in effects:
            if isinstance(effect, BackOff):
                self.expire(effect.preemptor, effect.at_s, effect.why)
        return effects

    def call_off(self, victim: str) -> None:
        """Call off the preemption of a job that runs: its preemptor does not need it any more."""
        self.tell(victim, PreemptorGone(victim_runs=True))

    def expire(self, key: str, at_s: float, why: str, *, may_pass: bool = False) -> None:
        """Let a job's nomination expire; ``may_pass``: for a reason that may go away."""
        event = Expired(at_s, self.situation_tried(key), why, may_pass)
        self._job_store.lifecycles.nomination_event(key, event)

    def withdraw(self, key: str) -> None:
        """Withdraw a job's nomination."""
        self._job_store.lifecycles.nomination_event(key, Withdrawn())


def is_running(job: JobStatus | None) -> bool:
    return job is not None and job.state is JobState.RUNNING


def why_it_did_not_start(job: JobStatus) -> str:
    return f"did not start on its nomination (Slurm's reason: {job.reason or 'none'})"
