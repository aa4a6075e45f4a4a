"""What a protection from preemption is: from when to when, and from which preemptors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from slurm_tiresias.core.rank import FIRST_LEVEL, Key
from slurm_tiresias.model import Protection


class Shield(IntEnum):
    """From which preemptors a running job is protected."""

    NONE = 0
    FROM_LOWER_TIERS = 1
    """Protected from jobs of all tiers except the first."""
    FROM_ALL = 2


class Protected(NamedTuple):
    """A period in which a running job may not be preempted; it ends just before ``until_s``."""

    why: Protection
    from_s: float
    until_s: float
    shield: Shield = Shield.FROM_ALL

    def holds(self, now_s: float) -> bool:
        return self.from_s <= now_s < self.until_s


def strongest(protections: Iterable[Protected], now_s: float) -> Shield:
    """Return the strongest of those protections that hold at a time."""
    return max((one.shield for one in protections if one.holds(now_s)), default=Shield.NONE)


def shield_now(protections: Sequence[Protected], now_s: float) -> tuple[Shield, float]:
    """Return the strongest of those protections that hold now, and when that changes; none of them
    has ended."""
    if len(protections) == 1 and protections[0].from_s <= now_s:
        return protections[0].shield, protections[0].until_s
    shield = strongest(protections, now_s)
    times_s = sorted({at_s for each in protections for at_s in (each.from_s, each.until_s)})
    later_s = (at_s for at_s in times_s if now_s < at_s < math.inf)
    changes_s = (at_s for at_s in later_s if strongest(protections, at_s) is not shield)
    return shield, next(changes_s, math.inf)


def least_shield(level: Key, *, even_protected: bool) -> int:
    """Return the least shield that protects from preemptors of a level: one more than there is, if
    protected candidates count as preemptible."""
    if even_protected:
        return Shield.FROM_ALL + 1
    return Shield.FROM_ALL if level <= FIRST_LEVEL else Shield.FROM_LOWER_TIERS
