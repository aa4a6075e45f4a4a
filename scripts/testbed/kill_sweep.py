"""Every place, each in a setting in which a controller comes to pass it."""

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
from scripts.testbed.kill_points import CLEARED, REFUSED, Place, everywhere
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController


@dataclass(frozen=True, slots=True)
class Setting:
    """How a controller is started, and what it is asked."""

    name: str
    options: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


AT_WORK = Setting("at work")
BY_SITE_FACTOR = Setting("by site factor", settings={"priority": {"write": "site-factor"}})
PAUSED = Setting("paused", commands=("pause", "resume"))
RELEASED = Setting("released", commands=("release", "resume"))
IN_SHADOW = Setting("in shadow", options=("--shadow",))

ELSEWHERE: Mapping[str, Setting] = {
    "update-site_factor": BY_SITE_FACTOR,
    "unpin": RELEASED,
    "commit-release-1": RELEASED,
    "commit-stand_down-1": PAUSED,
    "commit-stand_down-2": PAUSED,
    "commit-only_record-1": IN_SHADOW,
}
"""Where a controller at work does not pass."""

FAILS_FIRST: Mapping[str, Place] = {
    "commit-carry_out-3": Place("requeue", REFUSED),
    "commit-stand_down-2": Place(CLEARED, REFUSED),
}
"""Commits of nothing but what has failed, and what therefore has to fail first."""

OF_A_COMMAND = frozenset({"commit-rebuild-1"})
"""Not in the controller, but in a command that has a test of its own."""


def places_of(setting: Setting) -> Sequence[Place]:
    """The places at which a controller in this setting can be killed."""
    return [
        place
        for place in everywhere()
        if ELSEWHERE.get(place.name, AT_WORK) == setting and place.name not in OF_A_COMMAND
    ]


ALL_SETTINGS = (AT_WORK, BY_SITE_FACTOR, PAUSED, RELEASED, IN_SHADOW)


def kill_at(
    places: Sequence[Place],
    setting: Setting,
    cluster: RealCluster,
    folder: Path,
    say: Callable[[Place], None] = lambda _place: None,
) -> tuple[int, list[str]]:
    """Kill one controller after the other, each at its place; how many jobs there were, and
    everything that is wrong when they have come to their end."""
    controller = RealController(cluster, folder, {**SETTINGS, **setting.settings})
    controller.write_config()
    busy = Busy(cluster, folder)
    wrong: list[str] = []
    for place in places:
        say(place)
        first = [FAILS_FIRST[place.name]] if place.name in FAILS_FIRST else []
        program = faulty(*first, place)
        run_until_it_dies(controller, program, busy, *setting.options, commands=setting.commands)
        wrong += (f"{place}: {what}" for what in not_remembered(controller, busy))
        if setting.commands:
            controller.cli("resume")
    return len(busy.jobs), [*wrong, *drain(controller, busy)]
