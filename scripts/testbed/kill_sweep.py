"""Kill a controller at every kill point, each in a setting in which the point is reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.testbed.busy_load import (
    SETTINGS,
    Busy,
    drain,
    faulty,
    not_remembered,
    run_until_it_dies,
)
from scripts.testbed.kill_points import KillPoint, everywhere
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController


@dataclass(frozen=True, slots=True)
class Setting:
    """How a controller is started, and the commands that it is sent."""

    name: str
    options: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


AT_WORK = Setting("at work")
BY_SITE_FACTOR = Setting("by site factor", settings={"priority": {"write": "site-factor"}})
PAUSED = Setting("paused", commands=("pause", "resume"))
RELEASED = Setting("released", commands=("hand-back", "resume"))
IN_SHADOW = Setting("in shadow", options=("--shadow",))

ELSEWHERE: Mapping[str, Setting] = {
    "update-site_factor": BY_SITE_FACTOR,
    "unpin": RELEASED,
    "commit-hand_back-1": RELEASED,
    "commit-pause-1": PAUSED,
    "commit-record-1": IN_SHADOW,
}
"""The settings for points that are not reached in ``AT_WORK``."""

NOT_REACHED = frozenset({"commit-rebuild-1", "commit-account-1"})
"""Points in a command, and where job ids come again. They have their own tests."""


def points_of(setting: Setting) -> Sequence[KillPoint]:
    """Return the points that are tested in this setting."""
    return [
        point
        for point in everywhere()
        if ELSEWHERE.get(point.name, AT_WORK) == setting and point.name not in NOT_REACHED
    ]


ALL_SETTINGS = (AT_WORK, BY_SITE_FACTOR, PAUSED, RELEASED, IN_SHADOW)


def kill_at(
    points: Sequence[KillPoint],
    setting: Setting,
    cluster: RealCluster,
    folder: Path,
    say: Callable[[KillPoint], None] = lambda _point: None,
) -> tuple[int, list[str]]:
    """Kill one controller at each point in turn; return the number of jobs, and the violations
    found after all have ended."""
    controller = RealController(cluster, folder, {**SETTINGS, **setting.settings})
    controller.write_config()
    busy = Busy(cluster, folder)
    wrong: list[str] = []
    for point in points:
        say(point)
        program = faulty(point)
        run_until_it_dies(controller, program, busy, *setting.options, commands=setting.commands)
        wrong += (f"{point}: {what}" for what in not_remembered(controller, busy))
        if setting.commands:
            controller.cli("resume")
    return len(busy.jobs), [*wrong, *drain(controller, busy)]
