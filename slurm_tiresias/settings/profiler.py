"""The table ``[profiler]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_tiresias.settings.declare import Table, check_absolute, setting

if TYPE_CHECKING:
    from slurm_tiresias.settings import Config


@dataclass(frozen=True)
class ProfilerConfig(Table):
    """How the program finds out which models are skewed (docs/how-to/placement.md)."""

    collect_dir: str = setting(
        "",
        "Directory for the nodes' observations of messages and GPU use: the one that "
        "plugstack.conf names with collect=. The nodes also read there which models are known. "
        "Empty: nothing is learned from running jobs.",
    )
    least_message_mb: float = setting(
        50.0,
        "A model is skewed only if its largest tensor or message has at least this size. "
        "Gradients in buckets of 25 MB are larger only if a single tensor is.",
        unit="megabytes of 1048576 bytes",
        minimum=0,
        maximum=1e6,
    )
    fit_models: int = setting(
        10,
        "Programs that must have been observed in both placements before placement.pack_limit is "
        "fitted to the measured cost of spreading (paper page 491). 0: never.",
        unit="programs",
        minimum=0,
    )

    def check(self, config: Config) -> None:
        if self.collect_dir:
            check_absolute("profiler.collect_dir", self.collect_dir, "directory")
