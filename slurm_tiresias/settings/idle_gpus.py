"""The table ``[idle_gpus]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_tiresias.settings.declare import SettingError, Table, setting

if TYPE_CHECKING:
    from slurm_tiresias.settings import Config

FLAG, RANK_LAST, LEAVE = "flag", "rank-last", "leave"


@dataclass(frozen=True)
class IdleGpusConfig(Table):
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

    def check(self, config: Config) -> None:
        if self.action != FLAG and not self.after_s:
            raise SettingError(
                "idle_gpus.action",
                f'= "{self.action}" is set, but idle_gpus.after_s = 0 disables it',
                "Say after how many seconds in idle_gpus.after_s, or leave action out",
            )
        if self.action == LEAVE and not self.leave_after_s > self.after_s:
            raise SettingError(
                "idle_gpus.action",
                f'= "{LEAVE}" needs leave_after_s above after_s = {self.after_s:g}, and it is '
                f"{self.leave_after_s:g}",
                "Write a longer time in idle_gpus.leave_after_s: jobs are flagged before that",
            )
        if self.leave_after_s and self.action != LEAVE:
            raise SettingError(
                "idle_gpus.leave_after_s",
                f'is set, but action = "{self.action}" lets jobs stay',
                f'Write action = "{LEAVE}", or leave leave_after_s out',
            )
        if self.after_s and not config.profiler.collect_dir:
            raise SettingError(
                "idle_gpus.after_s",
                "is set without profiler.collect_dir, so no sample arrives",
                "Name the folder that the nodes write to, or set idle_gpus.after_s = 0",
            )
