"""Tiers as Slurm priorities: one wide band for each tier, and above them a band for nominations.

Slurm starts the job of highest priority first and lets no job pass one that cannot start. Therefore
the jobs planned to start now are in the nominations' band, and the head of Slurm's queue is always
a job that can start. Within a tier's band jobs go by their estimates, those without one last and
numbered in the configured order, so that Slurm keeps the order by itself although it resets a job's
submission time at every requeue.
"""

from __future__ import annotations

import math
from collections.abc import Container

from slurm_tiresias.core.lifecycle.nomination import Nomination
from slurm_tiresias.model import JobAccount, Lane
from slurm_tiresias.settings.policy import MAX_TIERS

NOMINATED_ON_FREE_NODES = 4_250_000_000
"""Nominated on named nodes that are idle. Above jobs that wait for victims: if Slurm tries one of
those first and it needs the same node, Slurm withholds the node from all later jobs."""

NOMINATED_ON_NODES = 4_200_000_000
"""Nominated on named nodes that victims are about to leave."""

NOMINATED = 4_100_000_000
"""Nominated on idle GPUs, on nodes that Slurm chooses."""

TOP_TIER = 3_000_000_000
"""The lowest priority of tier 0's band, where jobs wait for their first run."""

BAND = 375_000_000
assert TOP_TIER == MAX_TIERS * BAND

STEPS = 100
STEP = BAND // STEPS
"""A band has a step for jobs without an estimate, and above it one for each half of a power of two
of GPU-seconds, the least on top."""

_NEWEST = STEP - 1

SITE_FACTOR_NOMINATED_ON_NODES = 2_000_000_000
SITE_FACTOR_NOMINATED = 1_800_000_000
SITE_FACTOR_TOP_TIER = 1_600_000_000
SITE_FACTOR_BAND = 200_000_000
"""Site factors are signed 32-bit integers; Slurm's own weighted sum stays far below one band."""


LOWEST = {
    "pinned": TOP_TIER - (MAX_TIERS - 1) * BAND,
    "site-factor": SITE_FACTOR_TOP_TIER - (MAX_TIERS - 1) * SITE_FACTOR_BAND,
}
"""The lowest priority of any tier, by ``priority.write``; etc/job_submit.lua has the same
number."""


def is_in_a_band(priority: int, written_as: str) -> bool:
    """Whether a priority is one that this program or etc/job_submit.lua sets."""
    return priority >= LOWEST[written_as]


def starts_managed(priority: int, written_as: str) -> bool:
    """Whether this priority shows that a running job was managed when it was submitted or started,
    and could be preempted.

    Exact numbers are compared where possible: a site's own priorities may reach into the bands.
    """
    if written_as == "pinned":
        first_run = (priority - TOP_TIER) % STEP == 0 and TOP_TIER <= priority < NOMINATED
        return first_run or priority in (NOMINATED, NOMINATED_ON_NODES, NOMINATED_ON_FREE_NODES)
    factors = (SITE_FACTOR_TOP_TIER, SITE_FACTOR_NOMINATED, SITE_FACTOR_NOMINATED_ON_NODES)
    return any(bears_site_factor(priority, factor) for factor in factors)


def nomination_priority(nomination: Nomination | None, *, is_preemptible: bool = True) -> int:
    """Return the pinned priority of a job that is about to start. Jobs that cannot be preempted get
    a distinct one, so that they can be recognized if the ledger is lost (``starts_managed``)."""
    cannot_be_preempted = int(not is_preemptible)
    if nomination is None or not nomination.allocation:
        return NOMINATED + cannot_be_preempted
    on_nodes = NOMINATED_ON_NODES if nomination.free_s is None else NOMINATED_ON_FREE_NODES
    return on_nodes + cannot_be_preempted


def nomination_site_factor(nomination: Nomination | None) -> int:
    """Return the site factor of a job that is about to start."""
    on_nodes = nomination is not None and nomination.allocation
    return SITE_FACTOR_NOMINATED_ON_NODES if on_nodes else SITE_FACTOR_NOMINATED


def is_nominated(priority: int, written_as: str) -> bool:
    """Whether a priority is that of a job that is about to start, by ``priority.write``."""
    if written_as == "pinned":
        return priority >= NOMINATED
    factors = (SITE_FACTOR_NOMINATED, SITE_FACTOR_NOMINATED_ON_NODES)
    return any(bears_site_factor(priority, factor) for factor in factors)


def tier_priority(
    record: JobAccount,
    tier: int,
    order: str,
    most_service_gpu_s: float = 0.0,
    goes_by_gpu_s: float | None = None,
) -> int:
    """Return the pinned priority of a job that waits or runs in a tier.

    ``goes_by_gpu_s`` is ``Policy.goes_by_gpu_s``. Jobs of a step that never started share its
    lowest priority, where Slurm orders them by submission. Under ``newest`` they share the highest.
    Jobs of the lane for people at a prompt share the highest of the top tier. Other jobs that
    cannot be preempted come after their tier, ordered by the service that they may use at most.
    """
    foot = TOP_TIER - tier * BAND
    if record.lane is Lane.INTERACTIVE:
        return foot + BAND - 1
    if record.lane is Lane.IDLE_ONLY:
        size = int(1000 * math.log2(1.0 + min(most_service_gpu_s, 1e12)))
        return max(foot - 1 - size, LOWEST["pinned"])
    if goes_by_gpu_s is not None:
        halves = int(2.0 * math.log2(1.0 + max(0.0, goes_by_gpu_s)))
        foot += STEP * max(1, STEPS - 1 - halves)
    if record.start_number is None:
        return foot + (_NEWEST if order == "newest" else 0)
    if order == "newest":
        return foot + record.entry_number % _NEWEST
    number = record.start_number if order == "first-start" else record.entry_number
    return foot + _NEWEST - number % _NEWEST


def tier_site_factor(tier: int) -> int:
    """Return the site factor of a tier; Slurm's own factors order the jobs in it."""
    return SITE_FACTOR_TOP_TIER - tier * SITE_FACTOR_BAND


class ShownFactors:
    """Checks whether the priorities that Slurm shows contain the site factors that were written.

    Slurm's own weighted sum may be outside the band (``--nice``, large weights). So once a factor
    has been written again, the priority shown is accepted, until it changes by half a band.
    """

    def __init__(self) -> None:
        self._odd: dict[str, tuple[int, int | None]] = {}
        """By job, the factor, and the priority that Slurm has shown since the factor was written
        again."""

    def shows(self, key: str, priority: int, site_factor: int | None) -> bool:
        """Whether a job's priority contains its site factor; call once a cycle for each job."""
        if site_factor is None or bears_site_factor(priority, site_factor):
            self._odd.pop(key, None)
            return True
        factor, shown = self._odd.get(key, (None, None))
        if factor != site_factor or (shown and abs(priority - shown) >= SITE_FACTOR_BAND // 2):
            self._odd[key] = (site_factor, None)
            return False
        self._odd[key] = (site_factor, shown or priority)
        return True

    def keep(self, keys: Container[str]) -> None:
        """Forget all other jobs."""
        self._odd = {key: odd for key, odd in self._odd.items() if key in keys}


def bears_site_factor(priority: int, site_factor: int) -> bool:
    """Whether a priority can be this site factor plus Slurm's own weighted sum."""
    return site_factor <= priority < site_factor + SITE_FACTOR_BAND
