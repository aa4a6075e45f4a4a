"""The table ``[preemption]``."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_tiresias.settings.declare import SettingError, Table, setting

if TYPE_CHECKING:
    from slurm_tiresias.settings import Config


@dataclass(frozen=True)
class PreemptionConfig(Table):
    """What protects a running job from preemption, and what warning it gets."""

    min_run_s: float = setting(
        120.0,
        "A job is not preempted before it has run this long since its last start. After "
        "preemptions it is five times what one costs the program, as measured, or else five times "
        "this for each, up to half an hour.",
        unit="seconds",
        minimum=0,
    )
    drilled_min_run_s: float = setting(
        0.0,
        "min_run_s for programs (jobs of one user and name) that passed tiresias-slurm drill in "
        "the last 90 days. It does not apply after a failed drill, or while the program's last "
        "preemption lost all its work. 0: as for all others.",
        unit="seconds",
        minimum=0,
    )
    budget_share: float = setting(
        0.1,
        "Share of the managed GPU time of the last hour that the jobs of one user may cost "
        "others by preemption. A preempted run counts with its length, up to 5 minutes, times its "
        "GPUs; a late exit (max_grace_s) counts with that time. Beyond its budget a user preempts "
        "no job, and starts on idle GPUs only. 0: no limit.",
        minimum=0,
        maximum=1,
    )
    signal: str = setting(
        "",
        "Signal sent to every process of a job before its requeue, so that it can save, e.g. "
        "USR1. A program that does not handle the signal may die of it. Empty: none; the requeue "
        "itself sends SIGTERM and, KillWait later, SIGKILL.",
    )
    grace_s: float = setting(
        0.0,
        "Time between that signal and the requeue. All victims of one preemptor are requeued "
        "together, once the last has saved or its time is over.",
        unit="seconds",
        minimum=0,
        maximum=3600,
    )
    max_grace_s: float = setting(
        120.0,
        "The longest grace period for a job that names its own signal and time "
        "(--tiresias-checkpoint). The time beyond grace_s counts for budget_share; beyond that "
        "budget a user gets grace_s. A job without a signal that uses the job library is asked to "
        "save by SIGURG, which other programs ignore, and is requeued once it has saved, after "
        "this time or a minute at the latest. 0: neither.",
        unit="seconds",
        minimum=0,
        maximum=3600,
    )

    def check(self, config: Config) -> None:
        if self.drilled_min_run_s > self.min_run_s:
            raise SettingError(
                "preemption.drilled_min_run_s",
                f"= {self.drilled_min_run_s:g} is longer than "
                f"preemption.min_run_s = {self.min_run_s:g}",
                "Write less than that: it is for programs that may be preempted sooner",
            )
        name = self.signal
        if name and f"SIG{name.removeprefix('SIG')}" not in signal.Signals.__members__:
            raise SettingError(
                "preemption.signal", f"= {name!r} is not a signal", "Write a name like USR1"
            )
        if self.grace_s > 0 and not name:
            raise SettingError(
                "preemption.grace_s",
                "is set without preemption.signal",
                "Name the signal that asks a job to save its state, or set grace_s = 0",
            )
