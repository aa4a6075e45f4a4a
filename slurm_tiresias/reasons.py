"""What each code means in words: the one place where decisions are explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_tiresias.model import Guard, Reason


@dataclass(frozen=True, slots=True)
class ReasonText:
    """``short`` stands in tables; the rest are sentences: meaning, what ends it, what to do."""

    short: str
    means: str
    ends: str
    do: str = ""


@dataclass(frozen=True, slots=True)
class GuardText:
    """``short`` stands in tables; ``because`` ends "it is not preempted, because"."""

    short: str
    because: str


REASON_TEXTS: Mapping[Reason, ReasonText] = {
    Reason.RUNS_ON: ReasonText(
        "runs",
        "It runs and keeps its GPUs: nothing that comes before it in the order needs them.",
        "It runs until it ends, or until a job of a higher tier needs its GPUs.",
        "Save checkpoints, so that a preemption costs little.",
    ),
    Reason.STARTS: ReasonText(
        "starts",
        "GPUs are free for it and it starts now.",
        "Slurm starts it within seconds.",
    ),
    Reason.STARTS_PREEMPTING: ReasonText(
        "starts, preempting",
        "It starts now, on GPUs of jobs that come later in the order and sit in a lower tier.",
        "It starts once those jobs have saved their state and left.",
    ),
    Reason.CLAIMED: ReasonText(
        "starting",
        "Its GPUs are set aside and Slurm has been asked to start it.",
        "Slurm starts it once its GPUs are free; if it does not in time, the claim is given back.",
    ),
    Reason.PREEMPTED: ReasonText(
        "preempted",
        "It is being preempted for a job of a higher tier.",
        "It comes back by itself, with the same job id, as soon as it is its turn again.",
        "Nothing is needed to bring it back. Let it resume from its last checkpoint.",
    ),
    Reason.VACATING: ReasonText(
        "leaving",
        "It is leaving its GPUs to make room for a job of a higher tier.",
        "It waits again once it has left, and comes back by itself when it is its turn.",
        "Nothing is needed to bring it back. Let it resume from its last checkpoint.",
    ),
    Reason.COMPLETING: ReasonText(
        "ending",
        "It has ended or been requeued, and its nodes are still being cleaned up.",
        "Its nodes are free when Slurm's epilog is over.",
    ),
    Reason.NO_ROOM: ReasonText(
        "no room",
        "Too few GPUs are free where it may run, and none can be taken for it.",
        "It starts when jobs before it end, or move down below its own tier.",
        "Ask for fewer GPUs, or fewer on one node; leave the choice of nodes and GPU type open.",
    ),
    Reason.GUARDED: ReasonText(
        "guarded",
        "Jobs of lower tiers hold the GPUs it needs, but may not be preempted now.",
        "It starts when one of these jobs ends, or when what protects it runs out.",
        "Nothing is needed. Asking for fewer GPUs may let it start sooner.",
    ),
    Reason.NEVER_FITS: ReasonText(
        "never fits",
        "It asks for more than the nodes it may use have, even with every job gone.",
        "It does not start until its request or the cluster changes.",
        "Cancel it, and submit it again asking for less, or for other nodes or another GPU type.",
    ),
    Reason.NO_NODES: ReasonText(
        "no nodes",
        "None of the nodes it may use is in service.",
        "It starts when nodes come back into service; sinfo -R says why they are out.",
        "Allow it other nodes, or ask the administrators when these return.",
    ),
    Reason.RESERVED: ReasonText(
        "reserved",
        "The nodes it needs are reserved for others before it could end.",
        "It starts when the reservation is over, or when other nodes are enough for it.",
        "Ask for less time, if that is enough: scontrol update JobId=JOBID TimeLimit=MINUTES. "
        "When the reservation begins says: scontrol show reservation.",
    ),
    Reason.GIVEN_UP: ReasonText(
        "did not start",
        "GPUs were made free for it and Slurm did not start it there in time.",
        "No job is preempted for it until nodes change or preemption.retry_after_s has passed; "
        "it starts earlier if GPUs happen to be free.",
        "See Slurm's own reason with: squeue -j JOBID. It often names a limit or a constraint.",
    ),
    Reason.HELD: ReasonText(
        "held",
        "It is held, and held jobs are left alone.",
        "It takes part once it is released.",
        "Release it with: scontrol release JOBID.",
    ),
    Reason.SLURM_WAITS: ReasonText(
        "Slurm waits",
        "Slurm itself keeps it waiting: a dependency, a begin time or a limit.",
        "It takes part once Slurm's own reason is gone.",
        "See what it waits for with: scontrol show job JOBID.",
    ),
    Reason.UNMANAGED: ReasonText(
        "not managed",
        "It is not managed: it is never preempted and never moved, and Slurm alone decides on it.",
        "Slurm alone starts it, by its own priority, and it runs until it ends.",
    ),
}

GUARD_TEXTS: Mapping[Guard, GuardText] = {
    Guard.MIN_RUN: GuardText(
        "minimum run time", "it has not yet run for the minimum time since it last started"
    ),
    Guard.MAX_PREEMPTIONS: GuardText(
        "preempted often enough", "it has been preempted as often as a job may be"
    ),
    Guard.MAX_VICTIMS: GuardText(
        "victims of this cycle", "as many jobs as one cycle may preempt are preempted already"
    ),
    Guard.HELD: GuardText("held or suspended", "somebody has held or suspended it"),
    Guard.UNMANAGED: GuardText("not managed", "it is not managed by this controller"),
    Guard.SAME_TIER: GuardText(
        "same or higher tier", "it sits in the same tier as the job that waits, or in a higher one"
    ),
}


SLURM_WORDS: Mapping[str, str] = {
    "Dependency": "another job has to end first",
    "DependencyNeverSatisfied": "the job that it waits for has ended otherwise than it asked for",
    "BeginTime": "the time has not come at which it is to begin at the earliest",
    "JobArrayTaskLimit": "as many tasks of its array run as its % allows",
    "JobHeldUser": "its user has held it",
    "JobHeldAdmin": "an administrator has held it",
    "Licenses": "too few licences are free",
    "Reservation": "its reservation has not begun",
    "PartitionDown": "its partition starts no jobs now",
    "PartitionInactive": "its partition starts no jobs now",
    "PartitionTimeLimit": "it asks for more time than its partition allows",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows",
}
"""Slurm's own reasons that say little to who has not met them."""

HELD_BY_ADMIN = "JobHeldAdmin"


def slurm_reason_text(reason: str) -> str:
    """Slurm's own reason, with what it means where that is known."""
    means = SLURM_WORDS.get(reason)
    return f"{reason} ({means})" if means else reason


def what_to_do(reason: str, slurm_reason: str) -> str:
    """What a job's user can do; empty where there is nothing."""
    if reason == Reason.HELD.value and slurm_reason == HELD_BY_ADMIN:
        return "Ask the administrators, who alone can release it."
    return reason_text(reason).do


def reason_text(code: str) -> ReasonText:
    """The text of a reason; a code of a newer controller stands for itself."""
    try:
        return REASON_TEXTS[Reason(code)]
    except ValueError:
        return ReasonText(code, f"The controller says: {code}.", "This version cannot say more.")


def guard_text(code: str) -> GuardText:
    """The text of a guard; a code of a newer controller stands for itself."""
    try:
        return GUARD_TEXTS[Guard(code)]
    except ValueError:
        return GuardText(code, f"the controller says {code}")
