"""The table ``[controller]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_tiresias.settings.declare import Table, check_absolute, setting

if TYPE_CHECKING:
    from slurm_tiresias.settings import Config

MODES = ("shadow", "enforce")


@dataclass(frozen=True)
class ControllerConfig(Table):
    """How the controller runs."""

    mode: str = setting(
        "shadow",
        "shadow: decide and record, but write nothing to Slurm. enforce: act on Slurm.",
        choices=MODES,
    )
    interval_s: float = setting(
        10.0,
        "Time between two cycles.",
        unit="seconds",
        minimum=0.2,
        maximum=3600,
    )
    state_dir: str = setting(
        "/var/lib/slurm-tiresias",
        "Directory of the ledger, the lock, the socket and the published state. Only the "
        "controller writes there.",
    )
    keep_ended_jobs_days: float = setting(
        400.0,
        "How long the ledger keeps ended jobs, with their runs, preemptions and events, for "
        "history and report. Older ones are removed while the controller is idle; user, name and "
        "service of the last 100,000 stay, for policies that learn. 0: keep all, 260 MB for each "
        "million jobs.",
        unit="days",
        minimum=0,
    )
    nudge_file: str = setting(
        "/run/slurm-tiresias-controller/nudge",
        "File that Slurm's hooks write to make the controller run a cycle at once "
        "(etc/job_submit.lua, etc/nudge). Use a local file system, since slurmctld waits for the "
        "write. Empty: none.",
    )
    standby: bool = setting(
        False,
        "Whether two controllers on two hosts share this state_dir, one of them standing by "
        "(docs/how-to/operate.md). Both hosts must see its file system. The one on the host of "
        "the active slurmctld acts.",
    )

    def check(self, config: Config) -> None:
        check_absolute("controller.state_dir", self.state_dir, "directory")
        if self.nudge_file:
            check_absolute("controller.nudge_file", self.nudge_file, "file")
