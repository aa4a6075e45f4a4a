"""A run is protected before a save that is due."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from slurm_tiresias.core.features.protection import Protected, Shield
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import Protection
from slurm_tiresias.settings import Config

WAIT_FOR_SAVE_S = 7200.0
FIRST_TIER_WAIT_S = 1800.0
"""How far ahead a save may be for a job below the first tier, and for one of the first tier, to
wait for it. On the paper's 480 jobs, half an hour for the first tier makes the average JCT 7 %
shorter than ten minutes do; longer waits gain nothing, and cost the median on Philly's jobs."""

LATE: Final = 0.1
"""How long after its expected time a save is still waited for, as a share of the time between
saves."""

OPEN_TO_LOWER_TIERS: Final = 0.1
OPEN_TO_ALL: Final = 0.5
"""How long after each save a job is unprotected, as a share of the time between two saves: from
jobs below the first tier, and from those of the first tier. The latter wait only if the next save
is nearer than the last one."""

LEAST_OPEN_CYCLES: Final = 6
"""A job is unprotected for at least this many cycles after each save, so that one of them can
preempt it."""


def protect(job: Job, config: Config) -> Sequence[Protected]:
    """Return when a run is protected because its next save is due.

    A preemption wastes what the job has done since its last save; waiting for the next save delays
    the job that needs the GPUs. A delay matters most to a short job, so jobs of the first tier wait
    for a shorter time than others. After each save the job may be preempted for a while.
    """
    at_stake = job.at_stake
    if at_stake is None or at_stake.save_due_s is None:
        return ()
    due_s, since_s = at_stake.save_due_s, at_stake.unsaved_since_s
    every_s = due_s - since_s
    if not 0.0 < every_s < math.inf:
        return ()
    until_s = due_s + LATE * every_s
    least_open_s = LEAST_OPEN_CYCLES * config.controller.interval_s
    protections: list[Protected] = []
    for shield, most_s, open_share in (
        (Shield.FROM_LOWER_TIERS, WAIT_FOR_SAVE_S, OPEN_TO_LOWER_TIERS),
        (Shield.FROM_ALL, FIRST_TIER_WAIT_S, OPEN_TO_ALL),
    ):
        from_s = max(due_s - most_s, since_s + max(open_share * every_s, least_open_s))
        if from_s < due_s:
            protections.append(Protected(Protection.SAVE_DUE, from_s, until_s, shield))
    return protections
