"""The table ``[interactive]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_tiresias.settings.declare import SettingError, Table, setting

if TYPE_CHECKING:
    from slurm_tiresias.settings import Config


@dataclass(frozen=True)
class InteractiveConfig(Table):
    """How much of the top tier salloc and srun get (docs/how-to/limits.md)."""

    gpus_per_user: int = setting(
        1,
        "GPUs of one user's salloc and srun jobs that start in the top tier, preempt lower tiers "
        "and are not preempted. Further ones use idle GPUs only. 0: all use idle GPUs only.",
        unit="GPUs",
        minimum=0,
    )
    gpu_hours_per_user: float = setting(
        8.0,
        "GPU-hours that these jobs may use in any 24 hours. A running job counts with its whole "
        "time limit; a job without a limit uses idle GPUs only.",
        unit="GPU hours",
        minimum=0,
    )

    def check(self, config: Config) -> None:
        gpus, hours = self.gpus_per_user, self.gpu_hours_per_user
        if gpus > 0 and hours == 0:
            raise SettingError(
                "interactive.gpus_per_user",
                f"= {gpus} contradicts gpu_hours_per_user = 0, which gives users no time on these "
                "GPUs",
                "Write how many GPU hours they have a day, or set gpus_per_user = 0",
            )
        if 0 < gpus * 24 < hours:
            raise SettingError(
                "interactive.gpu_hours_per_user",
                f"= {hours:g} is more than gpus_per_user = {gpus} can use in 24 hours",
                f"Write at most {gpus * 24}, or raise gpus_per_user",
            )
