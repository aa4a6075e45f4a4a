"""The table ``[placement]``."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.settings.declare import Table, setting


@dataclass(frozen=True)
class PlacementConfig(Table):
    """Which nodes a job gets when there is a choice (paper page 491, section 3.3)."""

    pack_limit: float = setting(
        0.5,
        "A model is skewed, and placed on few nodes, if its largest tensor is a larger share of "
        "it than this. Values from 0.15 to 0.60 split the paper's ten models alike. Models "
        "without a profile are placed on few nodes too.",
        minimum=0,
        maximum=1,
    )
