"""The table ``[preemption]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from slurm_tiresias.settings.declare import SettingError, Table, setting

if TYPE_CHECKING:
    from slurm_tiresias.settings import Config

LONGEST_GRACE_S = 3600
SIGNALS = re.compile("HUP|INT|QUIT|USR1|USR2|ALRM|TERM|URG|CONT|XCPU|PROF|VTALRM|WINCH|PWR")
"""The signals that a program can catch."""
_CHECKPOINT = re.compile(r"(?:SIG)?([A-Z][A-Z0-9]{1,5})@([0-9]{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint signal of a job, and its grace in seconds before it is requeued."""

    signal: str
    """Without SIG; "" for no signal."""
    grace_s: float


@lru_cache(maxsize=4096)
def parse_checkpoint(value: str) -> Checkpoint | None:
    """Parse ``USR1@60``; return None for anything else."""
    found = _CHECKPOINT.fullmatch(value)
    if found is None or SIGNALS.fullmatch(found[1]) is None or int(found[2]) > LONGEST_GRACE_S:
        return None
    return Checkpoint(found[1], float(found[2]))


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
    checkpoint: str = setting(
        "",
        "Signal sent to every process of a job before its requeue, so that it can save, and the "
        "seconds between the two, as in the job's option: USR1@60, at most 3600. A program that "
        "does not handle the signal may die of it. All victims of one preemptor are requeued "
        "together, once the last has saved or its time is over. Empty: none; the requeue itself "
        "sends SIGTERM and, KillWait later, SIGKILL.",
    )
    max_grace_s: float = setting(
        120.0,
        "The longest grace period for a job that names its own signal and time "
        "(--tiresias-checkpoint). The time beyond that of checkpoint counts for budget_share; "
        "beyond that budget a user gets that of checkpoint. A job without a signal that uses the "
        "job library is asked to save by SIGURG, which other programs ignore, and is requeued once "
        "it has saved, after this time or a minute at the latest. 0: neither.",
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
        if self.checkpoint and parse_checkpoint(self.checkpoint) is None:
            raise SettingError(
                "preemption.checkpoint",
                f"= {self.checkpoint[:40]!r} is not SIGNAL@SECONDS",
                "Write a signal that programs can catch and at most 3600 s, like USR1@60",
            )

    @property
    def default(self) -> Checkpoint:
        """The signal and the grace of a job that asks for none."""
        return parse_checkpoint(self.checkpoint) or Checkpoint("", 0.0)

    @property
    def signal(self) -> str:
        return self.default.signal

    @property
    def grace_s(self) -> float:
        return self.default.grace_s
