"""The table ``[interactive]``."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.settings.declare import Table, setting


@dataclass(frozen=True)
class InteractiveConfig(Table):
    """How much of the top tier salloc and srun get (docs/how-to/limits.md)."""

    gpus_per_user: int = setting(
        1,
        "GPUs of one user's salloc and srun jobs that start in the top tier, preempt lower tiers "
        "and are not preempted, for eight hours each in any 24 hours. A running job counts with "
        "its whole time limit. Further jobs, and those without a limit, use idle GPUs only. 0: all "
        "use idle GPUs only.",
        unit="GPUs",
        minimum=0,
    )

    @property
    def gpu_hours_per_user(self) -> float:
        """The GPU hours that these jobs of one user may use in any 24 hours."""
        return 8.0 * self.gpus_per_user
