"""Jobs that hold GPUs and do nothing with them, by the samples of their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from slurm_tiresias.config import LEAVE, RANK_LAST, IdleGpusConfig
from slurm_tiresias.model import JobAccount, NodeUse

TOLD_EVERY_S: Final = 60.0
"""How often a node tells of its jobs where nothing has changed (``gpu_use_folder.SIGN_OF_LIFE_S``).
"""

LATE_AFTER_S: Final = 3 * TOLD_EVERY_S
"""What was told so long ago counts for nothing: the node's sampler, or the way to here, has
stopped."""

AHEAD_S: Final = 30.0
"""A node's clock may be so far ahead of Slurm's."""

MOST_IN_A_ROW: Final = 3
"""How often a job is requeued for its idle GPUs without having used one in between. Whatever keeps
it from computing, another start has not helped."""


class GpuIdleness(NamedTuple):
    """What a run does with its GPUs now, on all of its nodes."""

    gpus: int
    busy: int
    idle_since_s: float | None
    """Since when all of its GPUs have been idle; None while one is busy."""
    held_idle_gpu_s: float
    """How long it has held idle GPUs so far, each GPU counted."""
    has_been_busy: bool = True
    """Whether any of its GPUs has been used in this run, as far as the nodes told."""


def idleness(
    told: Mapping[str, NodeUse], gpus_on: Mapping[str, int], began_s: float, now_s: float
) -> GpuIdleness | None:
    """Return what a run does with its GPUs; None unless all of its nodes have told of it lately.

    Parameters
    ----------
    told
        What each node tells of this run.
    gpus_on
        How many GPUs the run holds on each node.
    began_s
        When it began, by Slurm's clock. It has not been idle for longer than that.
    """
    nodes = {node: gpus for node, gpus in gpus_on.items() if gpus > 0}
    uses = [told[node] for node in nodes if node in told]
    if not nodes or len(uses) < len(nodes):
        return None
    if not all(-AHEAD_S <= now_s - use.at_s <= LATE_AFTER_S for use in uses):
        return None
    since_s = [use.idle_since_s for use in uses if use.idle_since_s is not None]
    held_idle_gpu_s = 0.0
    for node, gpus in nodes.items():
        use = told[node]
        # A node tells at once what has changed, so nothing has since.
        on_s = min(max(0.0, now_s - use.at_s), TOLD_EVERY_S)
        busy_gpu_s = use.busy_gpu_s + min(use.busy, gpus) * on_s
        sampled_s = min(use.sampled_s + on_s, max(0.0, now_s - began_s))
        held_idle_gpu_s += max(0.0, gpus * sampled_s - busy_gpu_s)
    return GpuIdleness(
        gpus=sum(nodes.values()),
        busy=sum(min(told[node].busy, gpus) for node, gpus in nodes.items()),
        idle_since_s=min(now_s, max(began_s, *since_s)) if len(since_s) == len(uses) else None,
        held_idle_gpu_s=held_idle_gpu_s,
        has_been_busy=any(use.busy > 0 or use.busy_gpu_s > 0.0 for use in uses),
    )


def is_flagged(found: GpuIdleness, config: IdleGpusConfig, now_s: float) -> bool:
    """Whether all GPUs of a run have been idle for so long that its job is flagged."""
    since_s = found.idle_since_s
    return config.after_s > 0 and since_s is not None and now_s - since_s >= config.after_s


def ranks_last(found: GpuIdleness, config: IdleGpusConfig, now_s: float) -> bool:
    """Whether a run is preempted before all others. One busy GPU ends that, and only another
    ``idle_gpus.after_s`` without any begins it again."""
    return config.action in (RANK_LAST, LEAVE) and is_flagged(found, config, now_s)


def ranks_last_anew(account: JobAccount, idle_before_s: float, config: IdleGpusConfig) -> bool:
    """Whether a job ranks last from its start on, or while it waits: its GPUs had long been idle
    when it was requeued, for that or for another reason, and it has used none since.

    ``idle_before_s``: for how long it had used none at the end of its last run.
    """
    if config.action == LEAVE and account.idle_requeues > 0:
        return True
    return config.action in (RANK_LAST, LEAVE) and 0 < config.after_s <= idle_before_s


def is_to_leave(found: GpuIdleness, config: IdleGpusConfig, now_s: float) -> bool:
    """Whether all GPUs of a run have been idle for so long that it is preempted for that alone."""
    since_s = found.idle_since_s
    if config.action != LEAVE or since_s is None:
        return False
    return now_s - since_s >= config.leave_after_s


class NotPreempted(StrEnum):
    """Why a run is not preempted for its idle GPUs alone."""

    ONCE_IN_A_RUN = "signalled-in-this-run"
    OFTEN_ENOUGH = "requeued-often-enough"
    """``MOST_IN_A_ROW`` times."""


def why_not_preempted(account: JobAccount, restarts: int) -> NotPreempted | None:
    """Return why a job's run after ``restarts`` restarts is not preempted for its idle GPUs alone,
    however long they have been idle; None if it may be."""
    if account.idle_requeues >= MOST_IN_A_ROW:
        return NotPreempted.OFTEN_ENOUGH
    return NotPreempted.ONCE_IN_A_RUN if account.idle_signalled_run == restarts else None


def why_spared(found: GpuIdleness | None, config: IdleGpusConfig, now_s: float) -> str:
    """Return why a run is not preempted for its idle GPUs any more, in words."""
    if found is None:
        return "its nodes have not reported its GPU use lately"
    if found.busy:
        return f"{found.busy} of its {found.gpus} GPUs {'is' if found.busy == 1 else 'are'} used"
    if not is_to_leave(found, config, now_s):
        return "its GPUs have been used meanwhile, or their sampler was restarted"
    return "it may not be preempted any more"
