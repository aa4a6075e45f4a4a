"""Whether a victim saves on request, and whether it has, from the reports of its program."""

from __future__ import annotations

from typing import Final

from slurm_tiresias.job.record import DONE, RUNNING, SAVING
from slurm_tiresias.job_hints import checkpoint_of
from slurm_tiresias.model import ASK_SIGNAL, JobProgress, JobStatus
from slurm_tiresias.settings.preemption import Checkpoint, PreemptionConfig

SAVE_GRACE_S = 60.0
"""How long a job may take to save when it is asked: most save in seconds, and are requeued once
they have. ``preemption.max_grace_s`` may shorten it."""

CLOCKS_DIFFER_S: Final = 2.0
"""A save answers the signal if the request that it answered came at most this long before, by the
clocks of node and slurmctld. A program with another request so shortly before is asked again by the
requeue's SIGTERM."""


def asked(config: PreemptionConfig) -> Checkpoint:
    """Return the signal that asks a job to save if it would get no signal otherwise."""
    return Checkpoint(ASK_SIGNAL, min(SAVE_GRACE_S, config.max_grace_s))


def is_asked(
    checkpoint: Checkpoint,
    restarts: int,
    progress: JobProgress | None,
    config: PreemptionConfig,
    now_s: float,
    *,
    over_budget: bool = False,
) -> bool:
    """Whether a running job is asked to save before its preemption.

    It is if neither the site nor the job sets a ``checkpoint`` signal, the present run (number
    ``restarts``) has announced that it saves on request, and its steps are short enough, since it
    checks for requests after each step. Other jobs do not wait for a save of a user who is
    ``over_budget``.
    """
    most_s = asked(config).grace_s
    if over_budget or not most_s or checkpoint.signal:
        return False
    if progress is None or progress.restarts != restarts or not progress.listens:
        return False
    if progress.lost or progress.state not in (RUNNING, SAVING):
        return False
    step_s = progress.per_step.likely_s if progress.per_step else 0.0
    return step_s < most_s and progress.quiet_since_s(now_s) is None


def checkpoint_for(
    job: JobStatus,
    progress: JobProgress | None,
    config: PreemptionConfig,
    now_s: float,
    *,
    over_budget: bool,
) -> tuple[Checkpoint, bool]:
    """Return the signal and the grace of a running job, and whether that signal asks it to save."""
    own = checkpoint_of(job.spec.admin_comment, job.spec.comment, config, over_budget)
    asks = is_asked(own, job.restarts, progress, config, now_s, over_budget=over_budget)
    return (asked(config) if asks else own), asks


def has_saved_since(progress: JobProgress | None, restarts: int, signalled_s: float) -> bool:
    """Whether this run has completed a save that it began after it got the signal."""
    if progress is None or progress.restarts != restarts or progress.answered_s is None:
        return False
    return progress.state != DONE and progress.answered_s >= signalled_s - CLOCKS_DIFFER_S
