"""Whether a preempted job gets time to save, is requeued soon, and keeps its log."""

from __future__ import annotations

import math

from slurm_tiresias.doctor.checks.files import CGROUP_CONF, known, scheduler, slurm_conf
from slurm_tiresias.doctor.finding import Finding, Mend, check, note, ok, warning
from slurm_tiresias.doctor.seen import Seen
from slurm_tiresias.slurm.parse_config import DEFAULT_CRED_EXPIRE_S

ENOUGH_TO_SAVE_S = 30
LONG_TO_WAIT_S = 300
SHORT_CREDENTIAL_S = 30


@check("settings")
def _preempt_mode(seen: Seen) -> Finding:
    """Slurm's own preemption and the controller's would undo each other."""
    has = known(seen)
    mode, kind = has.text("PreemptMode"), has.text("PreemptType")
    modes = f"PreemptMode={mode}, PreemptType={kind}"
    if kind != "preempt/none":
        lines = (slurm_conf("PreemptType", "preempt/none"), slurm_conf("PreemptMode", "OFF"))
        return warning(f"{modes}: Slurm preempts by itself", *lines)
    if mode.upper() != "OFF":
        return warning(f"{modes}: running jobs are suspended", slurm_conf("PreemptMode", "OFF"))
    return ok("Slurm's own preemption is off")


@check("settings")
def _job_requeue(seen: Seen) -> Finding:
    """Jobs that Slurm may not requeue cannot be preempted."""
    if known(seen).yes("JobRequeue"):
        return ok("jobs may be requeued unless they forbid it")
    return warning(
        "JobRequeue=0: only jobs that say --requeue may be", slurm_conf("JobRequeue", "1")
    )


@check("settings")
def _requeue_delay(seen: Seen) -> Finding:
    """Slurm delays the next start of a requeued job."""
    has = known(seen)
    expire_s = has.option_number("AuthInfo", "cred_expire", DEFAULT_CRED_EXPIRE_S)
    if seen.differences.has_requeue_delay:
        if "requeue_delay" in has.options("SchedulerParameters"):
            delay_s = has.option_number("SchedulerParameters", "requeue_delay", 0)
            return ok(f"a requeued job waits {delay_s:g} s (requeue_delay)")
        return note(
            f"a requeued job waits {expire_s:g} s (cred_expire) where no controller shortens it",
            scheduler(add="requeue_delay=1"),
        )
    if expire_s < SHORT_CREDENTIAL_S:
        return note(
            f"cred_expire={expire_s:g}: a prolog that takes longer than that costs the job; the "
            "controller shortens the wait of requeued jobs without it"
        )
    return ok(f"the controller keeps it short; without one it is {expire_s:g} s (cred_expire)")


@check("settings")
def _kill_wait(seen: Seen) -> Finding:
    """A preempted job saves its state between SIGTERM and SIGKILL, KillWait seconds later."""
    wait_s, preemption = known(seen).number("KillWait") or 0.0, seen.config.preemption
    need_s, job_id = seen.controller.slowest_save if seen.controller else (0.0, "")
    line = slurm_conf("KillWait", str(max(ENOUGH_TO_SAVE_S, math.ceil(need_s))))
    setting = f"KillWait={wait_s:g}"
    if need_s > wait_s + preemption.grace_s:
        return warning(
            f"{setting}: job {job_id} reports {need_s:.0f} s for a step and a save", line
        )
    if preemption.grace_s >= ENOUGH_TO_SAVE_S:
        ahead = f"{preemption.signal} comes {preemption.grace_s:g} s ahead of SIGTERM"
        return ok(f"{ahead}, {setting} after it")
    if wait_s < ENOUGH_TO_SAVE_S:
        return warning(f"{setting}: little time for a job to save its state", line)
    if wait_s > LONG_TO_WAIT_S:
        return note(f"{setting}: a job may keep its GPUs that long after SIGTERM", line)
    return ok(f"{wait_s:g} s between SIGTERM and SIGKILL")


@check("settings")
def _sigterm_reach(seen: Seen) -> Finding:
    """A program that does not receive SIGTERM cannot save."""
    kind = known(seen).word("ProctrackType")
    if kind != "proctrack/cgroup":
        return ok(f"{kind} signals every process of a job")
    in_file = seen.cgroup is not None and seen.cgroup.yes("SignalChildrenProcesses")
    if known(seen).yes("SignalChildrenProcesses") or in_file:
        return ok("every process of a job (SignalChildrenProcesses)")
    only = "under proctrack/cgroup SIGTERM reaches the batch script alone"
    if seen.differences.signals_children:
        return warning(only, Mend(CGROUP_CONF, "SignalChildrenProcesses", "yes"))
    if seen.config.preemption.signal:
        return ok(f"{only}; preemption.checkpoint reaches every process")
    return note(f"{only}: scripts have to exec their program, or set preemption.checkpoint")


@check("settings")
def _job_file_append(seen: Seen) -> Finding:
    """A preempted job restarts under the same id and would truncate its output file."""
    if known(seen).yes("JobFileAppend"):
        return ok("a job that starts again adds to its output")
    return warning(
        "JobFileAppend=0: the output of the runs before is lost", slurm_conf("JobFileAppend", "1")
    )


@check("settings")
def _job_shrink(seen: Seen) -> Finding:
    """The controller writes node lists to waiting jobs. A list that arrives just as the job starts
    would shrink the job and kill its steps."""
    if "disable_job_shrink" in known(seen).options("SchedulerParameters"):
        return ok("disable_job_shrink is set")
    return warning("disable_job_shrink is not set", scheduler(add="disable_job_shrink"))


@check("settings")
def _complete_wait(seen: Seen) -> Finding:
    """While a job completes, Slurm starts nothing in its partition for up to CompleteWait, so each
    preemption would stop the partition."""
    wait_s = known(seen).number("CompleteWait") or 0.0
    if wait_s == 0:
        return ok("CompleteWait=0")
    return note(f"CompleteWait={wait_s:g}", slurm_conf("CompleteWait", "0"))
