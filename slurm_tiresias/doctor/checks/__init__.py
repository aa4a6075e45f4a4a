"""All checks, one file per area. Each reads only ``Seen`` and prints nothing."""

from __future__ import annotations

from slurm_tiresias.doctor.checks import (
    accounting,
    cluster,
    controller,
    plugins,
    preemption,
    scheduling,
)
from slurm_tiresias.doctor.finding import Check

CHECKS: tuple[Check, ...] = tuple(
    found
    for area in (cluster, preemption, scheduling, accounting, plugins, controller)
    for found in vars(area).values()
    if isinstance(found, Check)
)
