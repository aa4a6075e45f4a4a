"""The table ``[manage]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_tiresias.settings.declare import SettingError, Table, setting

if TYPE_CHECKING:
    from slurm_tiresias.settings import Config


@dataclass(frozen=True)
class ManageConfig(Table):
    """Which jobs are managed. Others are never preempted; they lose a priority of a tier."""

    partitions: tuple[str, ...] = setting(
        ("gpu",),
        "Partitions whose GPU jobs are managed. A job is managed if it can run in these "
        "partitions only.",
    )
    exclude_users: tuple[str, ...] = setting((), "Users whose jobs are not managed.")
    exclude_accounts: tuple[str, ...] = setting((), "Accounts whose jobs are not managed.")
    exclude_qos: tuple[str, ...] = setting((), "QOS whose jobs are not managed.")

    def check(self, config: Config) -> None:
        if not self.partitions:
            raise SettingError(
                "manage.partitions",
                "is empty: no job would be managed",
                "Name at least one partition",
            )
