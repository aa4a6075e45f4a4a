"""The table ``[priority]``."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.settings.declare import Table, setting

PRIORITY_WRITES = ("pinned", "site-factor")


@dataclass(frozen=True)
class PriorityConfig(Table):
    """How tiers are written to Slurm."""

    write: str = setting(
        "pinned",
        "pinned: an explicit priority, so that the tier decides everything. site-factor: a term "
        "of Slurm's multifactor priority, so that fairshare and age order the jobs of a tier.",
        choices=PRIORITY_WRITES,
    )
