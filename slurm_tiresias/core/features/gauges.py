"""The metrics of all features."""

from __future__ import annotations

from typing import Final

from slurm_tiresias.core.features import failed_runs, hung, idle_gpus, lost_work

GAUGES: Final = (
    *(*lost_work.GAUGES, *idle_gpus.GAUGES, *failed_runs.GAUGES),
    *hung.GAUGES,
)
