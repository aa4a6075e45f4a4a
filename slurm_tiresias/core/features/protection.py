"""When a run is protected from preemption: after its start, and before a save that is due."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Final, NamedTuple

from slurm_tiresias.model import NOTHING_LEARNED, STUCK_RUNS, Learned, WorkAtStake
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.preemption import PreemptionConfig

MOST_DOUBLINGS: Final = 64
"""Keeps a float from overflowing."""

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


class Shield(IntEnum):
    """From which preemptors a running job is protected."""

    NONE = 0
    FROM_LOWER_TIERS = 1
    """Protected from jobs of all tiers except the first."""
    FROM_ALL = 2


class Protected(NamedTuple):
    """A period in which a running job may not be preempted; it ends just before ``until_s``."""

    from_s: float
    until_s: float
    shield: Shield = Shield.FROM_ALL

    def holds(self, now_s: float) -> bool:
        return self.from_s <= now_s < self.until_s


def protected_for_s(
    preemptions: int, config: PreemptionConfig, learned: Learned = NOTHING_LEARNED
) -> float:
    """Return the minimum run time of a job's current run, in seconds since it (re)started.

    ``preemptions`` counts the earlier preemptions of the job, plus the latest consecutive ones in
    which its program lost all its work. The time grows so that a job that is preempted repeatedly,
    by chance or on purpose, gets runs long enough to save a checkpoint. For a job that saved
    nothing in its last runs it grows without bound, so that the job can end. It may start lower for
    a program that has passed a drill (``preemption.drilled_min_run_s``).
    """
    first_s = config.min_run_s
    if learned.drilled and config.drilled_min_run_s > 0:
        first_s = config.drilled_min_run_s
    times = min(max(preemptions, learned.program_lost), MOST_DOUBLINGS)
    most_s = math.inf if learned.stuck_runs >= STUCK_RUNS else config.max_min_run_s
    return max(first_s, min(first_s * config.min_run_growth**times, most_s))


def before_save(at_stake: WorkAtStake | None, config: Config) -> tuple[Protected, ...]:
    """Return when a job is protected because its next save is due.

    A preemption wastes what the job has done since its last save; waiting for the next save delays
    the job that needs the GPUs. A delay matters most to a short job, so jobs of the first tier wait
    for a shorter time than others. After each save the job may be preempted for a while.
    """
    if at_stake is None or at_stake.save_due_s is None:
        return ()
    due_s, since_s = at_stake.save_due_s, at_stake.unsaved_since_s
    every_s = due_s - since_s
    if not 0.0 < every_s < math.inf:
        return ()
    until_s = due_s + LATE * every_s
    least_open_s = LEAST_OPEN_CYCLES * config.controller.interval_s
    found = []
    for shield, most_s, open_share in (
        (Shield.FROM_LOWER_TIERS, config.preemption.wait_for_save_s, OPEN_TO_LOWER_TIERS),
        (Shield.FROM_ALL, config.preemption.first_tier_wait_s, OPEN_TO_ALL),
    ):
        from_s = max(due_s - most_s, since_s + max(open_share * every_s, least_open_s))
        if from_s < due_s:
            found.append(Protected(from_s, until_s, shield))
    return tuple(found)
