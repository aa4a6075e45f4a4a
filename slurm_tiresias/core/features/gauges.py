"""The metrics of all features."""

from __future__ import annotations

from typing import Final

from slurm_tiresias.core.features import failed_runs, hung, idle_gpus, lost_work, max_slowdown

GAUGES: Final = (
    *(*lost_work.GAUGES, *max_slowdown.GAUGES, *idle_gpus.GAUGES, *failed_runs.GAUGES),
    *hung.GAUGES,
)
