"""The texts for all reason and protection codes: the one place where decisions are explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_tiresias.core.rank import TIERS_APART
from slurm_tiresias.model import Protection, Reason


@dataclass(frozen=True, slots=True)
class ReasonText:
    """The texts of a reason. ``short`` is for tables; the others are sentences: what it means, what
    ends it, what to do.

    ``would`` replaces ``means`` while the controller does not act, if ``means`` is then wrong.
    """

    short: str
    means: str
    ends: str
    do: str = ""
    would: str = ""


@dataclass(frozen=True, slots=True)
class ProtectionText:
    """The texts of a protection: ``short`` for tables, and ``because`` to complete "it is not
    preempted, because …"."""

    short: str
    because: str


REASON_TEXTS: Mapping[Reason, ReasonText] = {
    Reason.RUNS_ON: ReasonText(
        "runs",
        "It runs and keeps its GPUs: no job that comes before it in the order may take them now.",
        "It runs until it ends, or until a job of a higher tier needs its GPUs.",
        "Have it save checkpoints, so that a preemption costs little, and test that: "
        "tiresias-slurm drill.",
        would="It would run on: no job before it in the controller's order may take its GPUs.",
    ),
    Reason.STARTS: ReasonText(
        "starts",
        "GPUs are free for it and it starts now.",
        "Slurm starts it within seconds.",
        would="It would start now.",
    ),
    Reason.STARTS_PREEMPTING: ReasonText(
        "starts, preempting",
        "It starts now, on GPUs of jobs that come later in the order and are in a lower tier.",
        "It starts once those jobs have saved their state and left.",
        would="It would start now, on GPUs of jobs that come later in the controller's order and "
        "are in a lower tier.",
    ),
    Reason.NOMINATED: ReasonText(
        "starting",
        "Its GPUs are set aside and Slurm has been asked to start it.",
        "Slurm starts it once its GPUs are free; if it does not in time, its nomination expires.",
        would="It would start now.",
    ),
    Reason.PREEMPTED: ReasonText(
        "preempted",
        "It is being preempted for a job of a higher tier.",
        "It comes back by itself, with the same job id, as soon as it is its turn again.",
        "Nothing is needed to bring it back. Let it resume from its last checkpoint.",
        would="It would be preempted for a job of a higher tier.",
    ),
    Reason.VACATING: ReasonText(
        "leaving",
        "It is leaving its GPUs to make room for a job of a higher tier.",
        "It waits again once it has left, and comes back by itself when it is its turn.",
        "Nothing is needed to bring it back. Let it resume from its last checkpoint.",
        would="It would be preempted for a job of a higher tier.",
    ),
    Reason.IDLE_GPUS: ReasonText(
        "preempted, GPUs idle",
        "Its GPUs have long been idle, so it is preempted even if no other job waits.",
        "Once it has saved, or its grace is over, it is requeued and comes back by itself, after "
        "all others. It stays if it uses a GPU before that.",
        "Find out why its GPUs are idle. If it no longer needs them: scancel JOBID.",
        would="Its GPUs have long been idle, so it would be preempted even if no other job waited.",
    ),
    Reason.HUNG: ReasonText(
        "requeued, hung",
        "It hangs, it seems, so it is requeued even if no other job waits.",
        "Once its grace is over it is requeued, and comes back by itself.",
        "Find out where it hangs: its output has the stacks of a program with the job library.",
        would="It hangs, it seems, so it would be requeued.",
    ),
    Reason.COMPLETING: ReasonText(
        "ending",
        "It has ended or been requeued, and its nodes are still being cleaned up.",
        "Its nodes are free when Slurm's epilog is over.",
    ),
    Reason.NO_ROOM: ReasonText(
        "no room",
        "Its nodes have too few idle GPUs, and no running job may be preempted for it.",
        "It starts when jobs before it end, or move down below its own tier.",
        "Ask for fewer GPUs, or fewer on one node; leave the choice of nodes and GPU type open.",
    ),
    Reason.PROTECTED: ReasonText(
        "protected",
        "Jobs of lower tiers hold the GPUs it needs, but may not be preempted now.",
        "It starts when one of these jobs ends, or when what protects it runs out.",
        "Nothing is needed. Asking for fewer GPUs may let it start sooner.",
    ),
    Reason.NEVER_FITS: ReasonText(
        "never fits",
        "It requests more than its eligible nodes have, even without any other job.",
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
        "The nodes it needs are reserved for others before it could end, or Slurm keeps them for a "
        "job that waits in a partition of a higher PriorityTier.",
        "It starts when the reservation is over, or that job has started, or when other nodes are "
        "enough for it.",
        "Ask for less time, if that is enough: scontrol update JobId=JOBID TimeLimit=MINUTES. "
        "The beginning of the reservation is shown by: scontrol show reservation.",
    ),
    Reason.BACKS_OFF: ReasonText(
        "did not start",
        "GPUs were set aside for it, and Slurm did not start it on them.",
        "No job is preempted for it until one of its nodes or its request changes, or "
        "ten minutes have passed, longer each time; it starts earlier if GPUs happen to be idle.",
        "See Slurm's own reason with: squeue -j JOBID. It often names a limit or a constraint.",
    ),
    Reason.OVER_BUDGET: ReasonText(
        "over budget",
        "Its user's jobs have recently cost other users as much GPU time as allowed "
        "(preemption.budget_share).",
        "No job is preempted for it until less was lost in the last hour; "
        "it starts earlier if GPUs happen to be free.",
        "Nothing is needed. Fewer and longer jobs preempt less often than many short ones.",
    ),
    Reason.FAILED_BEFORE: ReasonText(
        "failed before",
        "Its last runs, or those of its user's jobs of this name, failed without progress, so no "
        "job is preempted for it.",
        "It starts on idle GPUs. A run that gets further makes it as any other job.",
        "Find out why it fails: tiresias-slurm history JOBID, and its output.",
    ),
    Reason.IDLE_ONLY: ReasonText(
        "idle GPUs only",
        "It cannot be preempted, so no job is preempted for it: it starts on idle GPUs.",
        "It starts when enough GPUs are idle that no job before it takes.",
        "A shorter time limit puts it further ahead: scontrol update JobId=JOBID "
        "TimeLimit=MINUTES.",
    ),
    Reason.HELD: ReasonText(
        "held",
        "It is held, and held jobs are left alone.",
        "It takes part once it is released.",
        "Release it with: scontrol release JOBID.",
    ),
    Reason.SHARES_LIMIT: ReasonText(
        "shares a limit",
        "Jobs ahead of it that share a limit with it are about to start, and may exhaust it: a "
        "licence, for example, or a bound of its QOS or account.",
        "Its turn comes as soon as these have started, if the limit is not reached then.",
        "Nothing is needed. The unused part of its limits is shown by: scontrol show assoc_mgr, "
        "scontrol show licenses.",
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

PROTECTION_TEXTS: Mapping[Protection, ProtectionText] = {
    Protection.MIN_RUN: ProtectionText(
        "minimum run time", "it has not yet run for the minimum time since it last started"
    ),
    Protection.MAX_VICTIMS: ProtectionText(
        "victims of this interval",
        "as many jobs as may be preempted in one controller.interval_s (100) have been",
    ),
    Protection.HELD: ProtectionText(
        "held or suspended", "it is suspended, or an administrator has held it"
    ),
    Protection.PARTITION: ProtectionText(
        "could not come back",
        "its partition would not start it again: it is down, or its limits or access were changed",
    ),
    Protection.DEADLINE: ProtectionText(
        "deadline",
        "after a restart it could not end before its deadline, and Slurm ends such a job for good",
    ),
    Protection.TRIED_FIRST: ProtectionText(
        "higher PriorityTier",
        "its partition has a higher PriorityTier: Slurm would start it again before the job that "
        "waits",
    ),
    Protection.SAVE_DUE: ProtectionText(
        "saves soon",
        "it is about to save a checkpoint, and a preemption before that would waste more GPU time "
        "than waiting for it",
    ),
    Protection.REDOING_WORK: ProtectionText(
        "redoing lost work", "it is still redoing the work that it lost at its last preemption"
    ),
    Protection.INTERACTIVE: ProtectionText(
        "at a prompt", "its user works in it at a prompt (salloc or srun)"
    ),
    Protection.NO_REQUEUE: ProtectionText(
        "cannot be requeued",
        "Slurm cannot requeue it (--no-requeue, or at a prompt), or its program lost all its work "
        "in its last preemptions",
    ),
    Protection.UNMANAGED: ProtectionText("not managed", "it is not managed by this controller"),
    Protection.NEAR_TIER: ProtectionText(
        "near or higher tier",
        "its tier is not below that of the waiting job, or not far enough: jobs of the first tier "
        f"preempt all lower tiers, others only those {TIERS_APART} tiers below their own",
    ),
}


MODE_TEXTS: Mapping[str, str] = {
    "shadow": "The controller runs in shadow mode: it decides and does nothing; Slurm schedules.",
    "paused": "The controller is paused: until tiresias-slurm resume, Slurm schedules by itself.",
    "stopped": "The controller was stopped: until it is started again, Slurm schedules by itself.",
}
"""What each mode means in which the controller does not act."""


HELD_BY_ADMIN = "JobHeldAdmin"
BAD_CONSTRAINTS = "BadConstraints"

SLURM_WORDS: Mapping[str, str] = {
    "None": "Slurm has not tried to start it yet",
    "Priority": "Slurm tries others before it",
    "Resources": "too few GPUs, CPUs or memory are free for it",
    "Dependency": "another job has to end first",
    "DependencyNeverSatisfied": "the job that it waits for did not end as the dependency requires",
    "BeginTime": "its begin time has not come yet",
    "JobArrayTaskLimit": "as many tasks of its array run as its % allows",
    "JobHeldUser": "its user has held it",
    "JobHeldAdmin": "an administrator has held it",
    BAD_CONSTRAINTS: "no nodes can satisfy its request, so Slurm holds it",
    "Licenses": "too few licences are free",
    "Reservation": "its reservation has not begun",
    "PartitionDown": "its partition starts no jobs now",
    "PartitionInactive": "its partition starts no jobs now",
    "PartitionTimeLimit": "it asks for more time than its partition allows",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows",
    "PartitionConfig": "its partition does not admit such jobs",
    "AccountNotAllowed": "its partition does not admit its account",
    "QOSNotAllowed": "its partition or account does not admit its QOS",
    "InvalidQOS": "its QOS does not exist",
    "InvalidAccount": "its account does not exist",
    "AccountingPolicy": "a limit of its user or account is reached",
    "ReservationDeleted": "its reservation was deleted",
    "ReservationInvalid": "its reservation cannot be used",
    "Constraints": "no nodes satisfy its request now",
    "MaxPoweredUpNodes": "as many nodes are powered up as the site allows",
    "NvidiaImexChannels": "no IMEX channel of the GPUs' network is free",
    "MpiPortsBusy": "too few MPI ports are free on the nodes",
    "JobHoldMaxRequeue": "it was requeued too often, so Slurm holds it",
    "Cleaning": "its last run is still being cleaned up",
    "Prolog": "a prolog still runs",
    "SchedDefer": "Slurm starts no job at its submission (defer)",
    "FedJobLock": "another cluster of the federation may start it",
    "DeadLine": "it cannot end before its deadline",
}
"""Explanations of Slurm's own pending reasons."""

SLURM_PREFIXES: Mapping[str, str] = {
    "QOS": "a limit of its QOS is reached",
    "Assoc": "a limit of its user or account is reached",
    "Max": "a limit of its user or account is reached",
    "BurstBuffer": "its burst buffer is not ready",
    "ReqNodeNotAvail": "nodes that it needs are not available",
}
"""Explanations of Slurm's own pending reasons by their prefix."""

MOST_VICTIMS_NAMED = 8

_SLURM_DOES_THE_SAME = {
    Reason.RUNS_ON.value,
    Reason.COMPLETING.value,
    Reason.HELD.value,
    Reason.SLURM_WAITS.value,
    Reason.UNMANAGED.value,
}
_WOULD = {
    Reason.STARTS.value: "would start now",
    Reason.STARTS_PREEMPTING.value: "would start now",
    Reason.NOMINATED.value: "would start now",
    Reason.PREEMPTED.value: "would be preempted",
    Reason.VACATING.value: "would be preempted",
    Reason.IDLE_GPUS.value: "would be requeued for its idle GPUs",
    Reason.HUNG.value: "would be requeued because it hangs",
}


def slurm_reason_text(reason: str) -> str:
    """Return Slurm's own reason, with its explanation if there is one."""
    by_beginning = (means for word, means in SLURM_PREFIXES.items() if reason.startswith(word))
    means = SLURM_WORDS.get(reason) or next(by_beginning, "")
    return f"{reason} ({means})" if means else reason


def slurm_does(pending: bool, slurm_state: str, slurm_reason: str) -> str:
    """Describe what Slurm does with a job, in a few words for a table."""
    return (slurm_reason or "None") if pending else slurm_state.lower()


def would_do(reason: str, victims: Sequence[str], preempted_for: str) -> str:
    """Describe what a controller that does not act would do with a job, in a few words for a table;
    "" if Slurm does the same."""
    if reason in _SLURM_DOES_THE_SAME:
        return ""
    would = _WOULD.get(reason, f"would wait: {reason_text(reason).short}")
    if victims:
        named = ", ".join(victims[:MOST_VICTIMS_NAMED])
        more = len(victims) - MOST_VICTIMS_NAMED
        would += f"; would preempt {named}" + (f" and {more} more" if more > 0 else "")
    return f"{would} for {preempted_for}" if preempted_for else would


def would_text(code: str) -> str:
    """Describe what a controller that does not act would do with a job, in a sentence."""
    text = reason_text(code)
    if text.would or code in _SLURM_DOES_THE_SAME:
        return text.would or text.means
    return f"It would wait: {text.means[:1].lower()}{text.means[1:]}"


IN_SHADOW = "in shadow mode"


def done_in_words(noted: str) -> str:
    """Put what shadow mode recorded for a job (``start on n1``, ``be preempted``) into the form
    that follows "would have"."""
    first, gap, rest = noted.partition(" ")
    return {"start": "started", "be": "been"}.get(first, first) + gap + rest


def would_have(noted: str, for_job: str = "") -> str:
    """Put what shadow mode recorded for a job into a statement: "would have started on n1 …"."""
    whom = f" for job {for_job}" if for_job else ""
    return f"would have {done_in_words(noted)}{whom} ({IN_SHADOW})"


def ends_text(code: str, *, in_last_tier: bool) -> str:
    """Say what ends the reason. Jobs in the last tier cannot move down."""
    if in_last_tier and code == Reason.NO_ROOM.value:
        return "It starts when jobs that hold what it needs end."
    return reason_text(code).ends


def what_to_do(reason: str, slurm_reason: str, *, saves: bool = False) -> str:
    """Say what a job's user can do; "" if there is nothing. ``saves``: it is known to save."""
    if reason == Reason.RUNS_ON.value and saves:
        return ""
    if reason == Reason.HELD.value and slurm_reason == HELD_BY_ADMIN:
        return "Ask the administrators, who alone can release it."
    if reason == Reason.HELD.value and slurm_reason == BAD_CONSTRAINTS:
        return (
            "Change what it asks for (scontrol update JobId=JOBID ...), and release it with: "
            "scontrol release JOBID."
        )
    return reason_text(reason).do


def reason_text(code: str) -> ReasonText:
    """Return the texts of a reason; an unknown code of a newer controller is shown as it is."""
    try:
        return REASON_TEXTS[Reason(code)]
    except ValueError:
        return ReasonText(code, f"The controller says: {code}.", "This version cannot say more.")


def protection_text(code: str) -> ProtectionText:
    """Return the texts of a protection; an unknown code of a newer controller is shown as it is."""
    try:
        return PROTECTION_TEXTS[Protection(code)]
    except ValueError:
        return ProtectionText(code, f"the controller says {code}")
