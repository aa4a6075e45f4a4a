"""When and why a running job may not be preempted: what protects it, of all features."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from slurm_tiresias.core.features import lost_work, min_run, save_due
from slurm_tiresias.core.features.protection import Protected, least_shield
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.rank import Key
from slurm_tiresias.model import Protection
from slurm_tiresias.settings import Config

IN_ORDER: Final[Sequence[Callable[[Job, Config], Sequence[Protected]]]] = (
    min_run.protect,
    lost_work.protect,
    save_due.protect,
)
"""If several protections hold, the first is named."""


def protections(job: Job, config: Config) -> tuple[Protected, ...]:
    """Return when a running job may not be preempted."""
    if job.protected_by is not None:
        return (Protected(job.protected_by, -math.inf, math.inf),)
    found: tuple[Protected, ...] = ()
    for protect in IN_ORDER:
        found += tuple(protect(job, config))
    return found


def protection_of(job: Job, now_s: float, config: Config, level: Key) -> Protection | None:
    """Return what protects a running job now from preemptors of a level; None if nothing does."""
    least = least_shield(level, even_protected=False)
    holding = (one for one in protections(job, config) if one.shield >= least and one.holds(now_s))
    return next((one.why for one in holding), None)
