"""The table ``[failures]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_tiresias.settings.declare import SettingError, Table, setting

if TYPE_CHECKING:
    from slurm_tiresias.settings import Config

FLAG, SIGNAL, REQUEUE = "flag", "signal", "requeue"

HIGHEST_EXIT_CODE = 255


@dataclass(frozen=True)
class FailuresConfig(Table):
    """What is done about failed runs, bad nodes (docs/how-to/operate.md#failed-runs) and hung jobs
    (docs/how-to/limits.md#hung-jobs)."""

    restarts: int = setting(
        3,
        "How often in a row a job is restarted after failures of its node, or after any failure if "
        "it asks for that (restart=N in its hint), without a step beyond those of earlier runs. A "
        "job can ask for fewer. 0: never.",
        minimum=0,
        maximum=100,
    )
    restart_exit_codes: tuple[int, ...] = setting(
        (),
        "Jobs that end with one of these exit codes are restarted without asking for it.",
        minimum=1,
        maximum=HIGHEST_EXIT_CODE,
    )
    final_exit_codes: tuple[int, ...] = setting(
        (93,),
        "Jobs that end with one of these exit codes are never restarted.",
        minimum=1,
        maximum=HIGHEST_EXIT_CODE,
    )
    drain: float = setting(
        0.0,
        "A node whose suspicion reaches this is drained, with the evidence as the reason. Early "
        "failures of two users make a suspicion of 2. Where many jobs fail early, it takes more, "
        "as chance makes some healthy nodes look like that. Needs a controller that runs as "
        "SlurmUser or with AdminLevel=Administrator. Of a partition at most one node is drained in "
        "an hour, or 2 % of them if that is more, and never the last with a feature or a GPU type. "
        "0: off; suspected nodes are only used last.",
        minimum=0,
        maximum=100,
    )

    hung: str = setting(
        FLAG,
        "What happens to a job that hangs. flag: it is only shown. signal: if it uses the job "
        "library, it also prints the stacks of its threads (SIGWINCH). requeue: it also gets its "
        "checkpoint signal and its grace and is requeued, at most 3 times in a row without getting "
        "further.",
        choices=(FLAG, SIGNAL, REQUEUE),
    )

    def check(self, config: Config) -> None:
        if both := set(self.restart_exit_codes) & set(self.final_exit_codes):
            raise SettingError(
                "failures.restart_exit_codes",
                f"has exit code {min(both)}, which is in failures.final_exit_codes too",
                "Remove it from one of the two",
            )
