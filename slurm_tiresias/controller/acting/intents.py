"""What a plan makes of the nominations and preemptions, before anything is sent."""

from __future__ import annotations

from slurm_tiresias.controller.acting.under_way import UnderWay, why_it_did_not_start
from slurm_tiresias.controller.difference import why_left_to_slurm
from slurm_tiresias.core.lifecycle.nomination import Nominated, allocation_text
from slurm_tiresias.core.lifecycle.preemption import OWN_CAUSES, Leaves, Planned, Spared
from slurm_tiresias.model import Action, Decision, JobStatus, Plan, Reason


def record(under_way: UnderWay, plan: Plan) -> None:
    """Record the nominations and preemptions of a plan, and end those that it does not have any
    more."""
    _nominate(under_way, plan)
    for decision in plan.preemptions:
        if under_way.job_store.accounts.of(decision.job_id) is not None:
            own = OWN_CAUSES.get(decision.reason)
            event = Leaves(own) if own else Planned(decision.preempted_for)
            under_way.tell(decision.job_id, event)
    _spare_victims_elsewhere(under_way)
    # Drop preemptions for no other job that the plan does not have any more.
    for one in under_way.preemptions(for_job=False):
        going = plan.decisions.get(one.key)
        goes = going is not None and going.action is Action.PREEMPT
        if one.makes_room and under_way.runs(one.key) and not goes:
            under_way.tell(
                one.key, Spared(under_way.now_s, under_way.why_spared(one.key, one.cause))
            )


def _nominate(under_way: UnderWay, plan: Plan) -> None:
    """Nominate the jobs that the plan starts, and withdraw nominations it no longer has."""
    vacated = _nodes_being_vacated(under_way, plan)
    for key, decision in plan.decisions.items():
        if decision.action is not Action.START:
            nomination = under_way.nominations.get(key)
            if nomination is not None and nomination.is_active and under_way.waits(key):
                _drop_nomination(under_way, key, decision)
        elif under_way.job_store.accounts.of(key) is not None:
            named = bool(decision.victims) or (
                _names_its_nodes(under_way, under_way.jobs[key])
                and vacated.isdisjoint(decision.start_on)
            )
            if decision.victims or decision.reason is Reason.STARTS:
                allocation = allocation_text(decision.start_on) if named else ""
                event = Nominated(under_way.now_s, allocation, bool(decision.victims))
                under_way.tell_nominated(key, event)


def _names_its_nodes(under_way: UnderWay, job: JobStatus) -> bool:
    """Whether a start on idle GPUs names its nodes.

    A job of one chunk does not need them: Slurm places it on the node with the tightest fit, as we
    would if no node is suspected. A job of several chunks does, since Slurm assigns nodes in order
    of their names. A job that did not start on the nodes named for it is left to Slurm from then
    on.
    """
    nomination = under_way.nominations.get(job.key)
    record = under_way.job_store.accounts.of(job.key)
    left_to_slurm = record is None or why_left_to_slurm(job, record)
    if left_to_slurm or (job.spec.request.chunks == 1 and not under_way.suspects):
        return False
    return nomination is None or not nomination.expirations


def _nodes_being_vacated(under_way: UnderWay, plan: Plan) -> set[str]:
    """Return the nodes that victims vacate, until the preemptor has started there.

    Jobs placed on the leftover GPUs of these nodes get no node list: Slurm might try such a job
    before the preemptor, find the node in use, and withhold it from all later jobs.
    """
    leaving = {decision.job_id for decision in plan.preemptions if decision.preempted_for}
    leaving |= {
        one.key
        for one in under_way.preemptions(for_job=True)
        if one.makes_room or under_way.is_awaited(one.preemptor)
    }
    jobs = under_way.jobs
    return {node for key in leaving if key in jobs for node in jobs[key].allocation}


def _drop_nomination(under_way: UnderWay, key: str, decision: Decision) -> None:
    """Withdraw a nomination that the plan dropped, or expire it if a victim has left or Slurm has
    its own reason to let the job wait."""
    slurm_waits = decision.reason is Reason.SLURM_WAITS
    if slurm_waits or under_way.nominations[key].victims_left:
        job = under_way.jobs[key]
        may_pass = slurm_waits and not job.reason.strip("()").startswith("ReqNodeNotAvail")
        under_way.expire(key, under_way.now_s, why_it_did_not_start(job), may_pass=may_pass)
    else:
        under_way.withdraw(key)


def _spare_victims_elsewhere(under_way: UnderWay) -> None:
    """Drop victims on nodes where their preemptor is no longer placed (one was drained)."""
    for one in under_way.preemptions(for_job=True):
        nomination = under_way.nominations.get(one.preemptor)
        allocation = nomination.allocated() if nomination and one.makes_room else None
        if allocation is None or not under_way.runs(one.key):
            continue
        if allocation.keys().isdisjoint(under_way.jobs[one.key].allocation):
            under_way.call_off(one.key)
