"""Whether a victim saves when it is asked to, and whether it has: by what its program reports."""

from __future__ import annotations

from typing import Final

from slurm_tiresias.config import PreemptionConfig
from slurm_tiresias.job.record import DONE, RUNNING, SAVING
from slurm_tiresias.job_hints import Checkpoint
from slurm_tiresias.model import JobProgress

ASK_SIGNAL: Final = "URG"
"""One of ``job.requests.SAVE_SIGNALS``. A process that does not handle it ignores it."""

CLOCKS_DIFFER_S: Final = 2.0
"""A save answers the signal if the request that it answered came at most this long before, by the
clocks of node and slurmctld. A program with another request so shortly before is asked again by the
requeue's SIGTERM."""


def asked(config: PreemptionConfig) -> Checkpoint:
    """Return how a job is asked to save that would get no signal otherwise."""
    return Checkpoint(ASK_SIGNAL, min(config.save_grace_s, config.max_grace_s))


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

    It gets no signal by its ``checkpoint``, the site's or its own; this run, after so many
    ``restarts``, has said that it saves on request; and its steps, after which it looks for
    requests, are short enough. A user ``over_budget`` has others wait for no save.
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


def has_saved_since(progress: JobProgress | None, restarts: int, signalled_s: float) -> bool:
    """Whether this run has done a save that it began after it got the signal."""
    if progress is None or progress.restarts != restarts or progress.answered_s is None:
        return False
    return progress.state != DONE and progress.answered_s >= signalled_s - CLOCKS_DIFFER_S
