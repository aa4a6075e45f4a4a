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
    exclude: tuple[str, ...] = setting(
        (),
        "Whose jobs are not managed: a list of user=NAME, account=NAME and qos=NAME.",
    )

    def check(self, config: Config) -> None:
        if not self.partitions:
            raise SettingError(
                "manage.partitions",
                "is empty: no job would be managed",
                "Name at least one partition",
            )
        for item in self.exclude:
            kind, _, name = item.partition("=")
            if kind not in ("user", "account", "qos") or not name:
                raise SettingError(
                    "manage.exclude",
                    f"has {item[:40]!r}",
                    "Write user=NAME, account=NAME or qos=NAME",
                )
