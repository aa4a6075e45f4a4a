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

    def check(self, config: Config) -> None:
        if self.collect_dir:
            check_absolute("profiler.collect_dir", self.collect_dir, "directory")
