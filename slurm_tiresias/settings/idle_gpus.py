"""The settings of ``core/features/idle_gpus.py``."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.errors import ConfigError
from slurm_tiresias.settings import setting

FLAG, RANK_LAST, LEAVE = "flag", "rank-last", "leave"


@dataclass(frozen=True)
class IdleGpusConfig:
    """What is done about jobs that do not use their GPUs (docs/how-to/limits.md#idle-gpus)."""

    after_s: float = setting(
        0.0,
        "A job is flagged when all GPUs of its run have been idle this long: no process of the "
        "job on them, or no kernel ran. Needs profiler.collect_dir and the service on the nodes; "
        "a job without samples from all its nodes is not flagged. 0: off.",
        unit="seconds",
        minimum=0,
        maximum=7 * 86400,
    )
    action: str = setting(
        FLAG,
        "flag: only show it, to the job's user and to administrators. rank-last: also preempt the "
        "job before all others, even for jobs of its own tier, until it uses a GPU again. leave: "
        "also preempt it after leave_after_s even if no other job waits. All protections from "
        "preemption apply.",
        choices=(FLAG, RANK_LAST, LEAVE),
    )
    leave_after_s: float = setting(
        0.0,
        'With action = "leave": a job whose GPUs have been idle this long gets its checkpoint '
        "signal and its grace, and is requeued. A sample with a busy GPU before the requeue spares "
        "it. This happens once in a run, and at most 3 times in a row if the job uses no GPU in "
        "between. Until it uses one it ranks last, waiting or running. Longer than after_s.",
        unit="seconds",
        minimum=0,
        maximum=7 * 86400,
    )

    def check(self, collect_dir: str) -> None:
        """Raise ``ConfigError`` if the settings contradict each other, or no samples arrive in
        ``profiler.collect_dir``."""
        if self.action != FLAG and not self.after_s:
            raise ConfigError(
                f'idle_gpus.action = "{self.action}" is set, but idle_gpus.after_s = 0 disables it',
                "Say after how many seconds in idle_gpus.after_s, or leave action out",
            )
        if self.action == LEAVE and not self.leave_after_s > self.after_s:
            raise ConfigError(
                f'idle_gpus.action = "{LEAVE}" needs leave_after_s above after_s = '
                f"{self.after_s:g}, and it is {self.leave_after_s:g}",
                "Write a longer time in idle_gpus.leave_after_s: jobs are flagged before that",
            )
        if self.leave_after_s and self.action != LEAVE:
            raise ConfigError(
                f'idle_gpus.leave_after_s is set, but action = "{self.action}" lets jobs stay',
                f'Write action = "{LEAVE}", or leave leave_after_s out',
            )
        if self.after_s and not collect_dir:
            raise ConfigError(
                "idle_gpus.after_s is set without profiler.collect_dir, so no sample arrives",
                "Name the folder that the nodes write to, or set idle_gpus.after_s = 0",
            )
