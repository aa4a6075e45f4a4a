"""What a plan makes of the nominations and preemptions, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slurm_tiresias.controller.acting.under_way import (
    UnderWay,
    is_running,
    why_it_did_not_start,
)
from slurm_tiresias.controller.difference import is_pending, why_left_to_slurm
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.lifecycle.nomination import Nominated, allocation_text
from slurm_tiresias.core.lifecycle.preemption import Cause, GpusIdle, Planned, Spared
from slurm_tiresias.model import Action, Decision, JobStatus, Plan, Reason


class Intents:
    """Records what a plan intends."""

    def __init__(
        self, job_store: JobStore, under_way: UnderWay, why_spared: Callable[[str], str]
    ) -> None:
        self._job_store = job_store
        self._under_way = under_way
        self._why_spared = why_spared

    def record(self, plan: Plan, jobs: Mapping[str, JobStatus], now_s: float) -> None:
        """Record the nominations and preemptions of a plan, and end those that it does not have any
        more."""
        self._nominate(plan, jobs, now_s)
        for decision in plan.preemptions:
            if self._job_store.accounts.of(decision.job_id) is not None:
                idle = decision.reason is Reason.IDLE_GPUS
                event = GpusIdle() if idle else Planned(decision.preempted_for)
                self._under_way.tell(decision.job_id, event)
        self._spare_victims_elsewhere(jobs)
        self._spare_busy_jobs(plan, jobs, now_s)

    def _nominate(self, plan: Plan, jobs: Mapping[str, JobStatus], now_s: float) -> None:
        """Nominate the jobs that the plan starts, and withdraw nominations it no longer has."""
        vacated = self._nodes_being_vacated(plan, jobs)
        for key, decision in plan.decisions.items():
            if decision.action is not Action.START:
                nomination = self._job_store.lifecycles.nominations.get(key)
                if nomination is not None and nomination.is_active and is_pending(jobs.get(key)):
                    self._drop_nomination(key, decision, jobs[key], now_s)
            elif self._job_store.accounts.of(key) is not None:
                named = bool(decision.victims) or (
                    self._names_its_nodes(jobs[key]) and vacated.isdisjoint(decision.start_on)
                )
                if decision.victims or decision.reason is Reason.STARTS:
                    allocation = allocation_text(decision.start_on) if named else ""
                    event = Nominated(now_s, allocation, bool(decision.victims))
                    self._job_store.lifecycles.nomination_event(key, event)

    def _names_its_nodes(self, job: JobStatus) -> bool:
        """Whether a start on idle GPUs names its nodes.

        A job of one chunk does not need them: Slurm places it on the node with the tightest fit, as
        we would. A job of several chunks does, since Slurm assigns nodes in order of their names. A
        job that did not start on the nodes named for it is left to Slurm from then on.
        """
        nomination = self._job_store.lifecycles.nominations.get(job.key)
        record = self._job_store.accounts.of(job.key)
        left_to_slurm = record is None or why_left_to_slurm(job, record)
        if left_to_slurm or job.spec.request.chunks == 1:
            return False
        return nomination is None or not nomination.expirations

    def _nodes_being_vacated(self, plan: Plan, jobs: Mapping[str, JobStatus]) -> set[str]:
        """Return the nodes that victims vacate, until the preemptor has started there.

        Jobs placed on the leftover GPUs of these nodes get no node list: Slurm might try such a job
        before the preemptor, find the node in use, and withhold it from all later jobs.
        """
        leaving = {decision.job_id for decision in plan.preemptions if decision.preempted_for}
        leaving |= {
            one.key
            for one in self._under_way.preemptions(cause=Cause.FOR_JOB)
            if one.makes_room or self._under_way.is_awaited(one.preemptor, jobs)
        }
        return {node for key in leaving if key in jobs for node in jobs[key].allocation}

    def _drop_nomination(self, key: str, decision: Decision, job: JobStatus, now_s: float) -> None:
        """Withdraw a nomination that the plan dropped, or expire it if a victim has left or Slurm
        has its own reason to let the job wait."""
        slurm_waits = decision.reason is Reason.SLURM_WAITS
        if slurm_waits or self._job_store.lifecycles.nominations[key].victims_left:
            of_nodes = job.reason.strip("()").startswith("ReqNodeNotAvail")
            may_pass = slurm_waits and not of_nodes
            self._under_way.expire(key, now_s, why_it_did_not_start(job), may_pass=may_pass)
        else:
            self._under_way.withdraw(key)

    def _spare_victims_elsewhere(self, jobs: Mapping[str, JobStatus]) -> None:
        """Drop victims on nodes where their preemptor is no longer placed (one was drained)."""
        for one in self._under_way.preemptions(cause=Cause.FOR_JOB):
            nomination = self._job_store.lifecycles.nominations.get(one.preemptor)
            job = jobs.get(one.key)
            allocation = nomination.allocated() if nomination and one.makes_room else None
            if allocation is None or job is None or not is_running(job):
                continue
            if allocation.keys().isdisjoint(job.allocation):
                self._under_way.call_off(one.key)

    def _spare_busy_jobs(self, plan: Plan, jobs: Mapping[str, JobStatus], now_s: float) -> None:
        """Drop preemptions for idle GPUs that the plan does not have any more."""
        for one in self._under_way.preemptions(cause=Cause.IDLE_GPUS):
            decision = plan.decisions.get(one.key)
            goes = decision is not None and decision.action is Action.PREEMPT
            if one.makes_room and is_running(jobs.get(one.key)) and not goes:
                self._under_way.tell(one.key, Spared(now_s, self._why_spared(one.key)))
