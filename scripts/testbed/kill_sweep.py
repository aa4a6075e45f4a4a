"""Kill one controller after the other on a busy cluster, at random or at every kill point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from scripts.testbed.busy_load import (
    SETTINGS,
    Busy,
    count_preemptions,
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

NOT_REACHED = frozenset(
    {"commit-rebuild-1", "commit-account-1", "commit-obey-1"}
    | {"restart", "update-excluded", "set-node"}
)
"""Points in a command, where job ids come again, in an order for one job, and after failures of
jobs and nodes. They have their own tests; after failures, the random interleavings kill at each
write (``lifecycle``)."""


def points_of(setting: Setting) -> Sequence[KillPoint]:
    """Return the points that are tested in this setting."""
    return [
        point
        for point in everywhere()
        if ELSEWHERE.get(point.name, AT_WORK) == setting and point.name not in NOT_REACHED
    ]


ALL_SETTINGS = (AT_WORK, BY_SITE_FACTOR, PAUSED, RELEASED, IN_SHADOW)


Kill = Callable[[RealController, Busy], object]
"""Starts a controller, and returns when it has been killed."""


def kill_at(point: KillPoint, setting: Setting) -> tuple[str, Kill]:
    """Return the name and the way to kill a controller at this point."""

    def kill(controller: RealController, busy: Busy) -> None:
        if setting.commands:
            controller.cli("resume")  # the one before may have been paused
        run_until_it_dies(
            controller, faulty(point), busy, *setting.options, commands=setting.commands
        )

    return f"{setting.name}, {point}", kill


@dataclass(frozen=True, slots=True)
class Swept:
    """What several kills have come to: violations, jobs and preemptions."""

    wrong: Sequence[str]
    jobs: int
    preemptions: int


def kill_each(
    kills: Iterable[tuple[str, Kill]],
    cluster: RealCluster,
    folder: Path,
    settings: Mapping[str, Mapping[str, object]] | None = None,
) -> Swept:
    """Kill one controller in each of these ways, and let another one finish all jobs."""
    controller = RealController(cluster, folder, {**SETTINGS, **(settings or {})})
    controller.write_config()
    busy = Busy(cluster, folder)
    wrong: list[str] = []
    for name, kill in kills:
        click.echo(f"{name}; {len(busy.jobs)} jobs so far", err=True)
        kill(controller, busy)
        wrong += (f"{name}: {what}" for what in not_remembered(controller, busy))
    wrong += drain(controller, busy)
    return Swept(wrong, len(busy.jobs), count_preemptions(controller, busy))
