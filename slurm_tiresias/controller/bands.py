"""Tiers as Slurm's priorities: one wide band a tier, and above them all a band for nominations.

Slurm starts the highest priority first and lets nothing pass a job that cannot start. So the jobs
that are planned to start now stand in the nominations' band, and the head of Slurm's queue is
always a job that can start. Inside a tier's band jobs are numbered in the configured order, so that
Slurm keeps to it by itself although it resets a job's submission at every requeue.
"""

from __future__ import annotations

from collections.abc import Container

from slurm_tiresias.config import MAX_TIERS
from slurm_tiresias.lifecycle.nomination import Nomination
from slurm_tiresias.model import JobAccount

NOMINATED_ON_FREE_NODES = 4_250_000_000
"""Planned to start on named nodes that are free; before those that wait for victims to leave, for
where such a one needs the same node, Slurm passes it over for all that come after."""

NOMINATED_ON_NODES = 4_200_000_000
"""Planned to start on named nodes, from which others are about to leave."""

NOMINATED = 4_100_000_000
"""Planned to start on what is idle."""

TOP_TIER = 3_000_000_000
"""The foot of tier 0's band, where a job waits for its first run."""

BAND = 375_000_000
assert TOP_TIER == MAX_TIERS * BAND

_NEWEST = BAND - 1

SITE_FACTOR_NOMINATED_ON_NODES = 2_000_000_000
SITE_FACTOR_NOMINATED = 1_800_000_000
SITE_FACTOR_TOP_TIER = 1_600_000_000
SITE_FACTOR_BAND = 200_000_000
"""Site factors are signed 32-bit; Slurm's own weighted sum stays far below one band."""


LOWEST = {
    "pinned": TOP_TIER - (MAX_TIERS - 1) * BAND,
    "site-factor": SITE_FACTOR_TOP_TIER - (MAX_TIERS - 1) * SITE_FACTOR_BAND,
}
"""The least that any tier's priority can be, by ``priority.write``; the same in
etc/job_submit.lua."""


def is_in_a_band(priority: int, written_as: str) -> bool:
    """Whether a priority is one that this program or etc/job_submit.lua gives."""
    return priority >= LOWEST[written_as]


def starts_managed(priority: int, written_as: str) -> bool:
    """Whether a job that started with this priority was given it at birth or for its start.

    By exact numbers where that is possible: a site's own priorities may reach into the bands.
    """
    if written_as == "pinned":
        return priority in (TOP_TIER, NOMINATED, NOMINATED_ON_NODES, NOMINATED_ON_FREE_NODES)
    factors = (SITE_FACTOR_TOP_TIER, SITE_FACTOR_NOMINATED, SITE_FACTOR_NOMINATED_ON_NODES)
    return any(bears_site_factor(priority, factor) for factor in factors)


def nomination_priority(nomination: Nomination | None) -> int:
    """The pinned priority of a job that is about to start."""
    if nomination is None or not nomination.allocation:
        return NOMINATED
    return NOMINATED_ON_NODES if nomination.free_s is None else NOMINATED_ON_FREE_NODES


def nomination_site_factor(nomination: Nomination | None) -> int:
    """The site factor of a job that is about to start."""
    on_nodes = nomination is not None and nomination.allocation
    return SITE_FACTOR_NOMINATED_ON_NODES if on_nodes else SITE_FACTOR_NOMINATED


def is_nominated(priority: int, written_as: str) -> bool:
    """Whether a priority is that of a job that is about to start; by ``priority.write``."""
    if written_as == "pinned":
        return priority >= NOMINATED
    factors = (SITE_FACTOR_NOMINATED, SITE_FACTOR_NOMINATED_ON_NODES)
    return any(bears_site_factor(priority, factor) for factor in factors)


def tier_priority(record: JobAccount, tier: int, order: str) -> int:
    """The pinned priority of a job that waits or runs in a tier.

    Jobs that never started share the foot of the band, where Slurm's own order is theirs: by
    submission. Under ``newest`` they share its top.
    """
    foot = TOP_TIER - tier * BAND
    if record.start_number is None:
        return foot + (_NEWEST if order == "newest" else 0)
    if order == "newest":
        return foot + record.entry_number % _NEWEST
    number = record.start_number if order == "first-start" else record.entry_number
    return foot + _NEWEST - number % _NEWEST


def tier_site_factor(tier: int) -> int:
    """The site factor of a tier; Slurm's own factors order the jobs in it."""
    return SITE_FACTOR_TOP_TIER - tier * SITE_FACTOR_BAND


class ShownFactors:
    """Whether the priorities that Slurm shows bear the site factors that were written.

    Slurm's own sum may lie outside of the band (``--nice``, heavy weights). So what it shows once a
    factor was written again is taken for right, until it changes by as much as another factor
    would change it.
    """

    def __init__(self) -> None:
        self._odd: dict[str, tuple[int, int | None]] = {}
        """By job: the factor, and the priority shown since that was written again."""

    def shows(self, key: str, priority: int, site_factor: int | None) -> bool:
        """Whether a job's priority bears the factor that was written; told of it once a cycle."""
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
    """Whether a priority that Slurm shows can be its own sum plus this site factor."""
    return site_factor <= priority < site_factor + SITE_FACTOR_BAND
