"""Why a job runs or waits in a few words, for tables; times are marked as in ``section.py``."""

from __future__ import annotations

from slurm_tiresias.explanation import progress
from slurm_tiresias.explanation.reasons import protection_text, reason_text, slurm_does
from slurm_tiresias.model import JobState, Reason
from slurm_tiresias.status.published import PublishedJob
from slurm_tiresias.text import printable

PREEMPTED = (Reason.PREEMPTED.value, Reason.VACATING.value)
_STAYS = (Reason.RUNS_ON.value, Reason.UNMANAGED.value)


def reason(job: PublishedJob) -> str:
    """Return the short reason with its detail. For a controller that does not act, return what
    Slurm does and then what the controller would do."""
    if job.would:
        does = slurm_does(job.state == JobState.PENDING.value, job.slurm_state, job.slurm_reason)
        return printable(f"{does}; {job.would}")
    if alarm := progress.alarm(job):
        return alarm
    short = printable(reason_text(job.reason).short)
    if job.preempted_for and job.reason in PREEMPTED:
        return f"{short} for {printable(job.preempted_for)}"
    if job.ranks_last and job.state == JobState.PENDING.value:
        short = f"{short}, ranks last after idle GPUs"
    return f"{short}: {added}" if (added := _added(job)) else short


def nodes_or_reason(job: PublishedJob) -> str:
    """Return the nodes, as squeue does, or the reason if that says more."""
    if alarm := progress.alarm(job):
        return f"{alarm}; {printable(job.nodes)}" if job.nodes else alarm
    if job.would and job.nodes:
        return printable(f"{job.nodes}; {job.would}")
    return printable(job.nodes) if job.reason in _STAYS and job.nodes else reason(job)


def _added(job: PublishedJob) -> str:
    if job.reason == Reason.SLURM_WAITS.value and job.slurm_reason not in ("", "None"):
        return printable(job.slurm_reason)
    if job.reason == Reason.PROTECTED.value and job.blockers:
        first = job.blockers[0]
        more = f" +{len(job.blockers) - 1}" if len(job.blockers) > 1 else ""
        short = printable(protection_text(first.protection).short)
        return f"{printable(first.job_id)}{more}, {short}"
    return printable(job.detail)
