"""The metrics of all features."""

from __future__ import annotations

from typing import Final

from slurm_tiresias.core.features import idle_gpus

GAUGES: Final = (*idle_gpus.GAUGES,)
