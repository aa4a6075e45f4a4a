"""``scripts/dev chaos kill-points``: kill -9 of the controller, once at each critical point."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from scripts.testbed.kill_points import KillPoint
from scripts.testbed.kill_sweep import ALL_SETTINGS, Setting, kill_at, points_of
from scripts.testbed.real_cluster import short_folder, started_cluster
from scripts.tools.chaos.outcome import CHECKED, fail, record

NODES, GPUS = 4, 4


@click.command()
def kill_points() -> None:
    """Kill the controller before and after every write and at every commit."""
    began_s = time.monotonic()
    swept = [(setting, *_sweep(setting)) for setting in ALL_SETTINGS]
    lines = [_line(setting, points_of(setting)) for setting in ALL_SETTINGS]
    jobs = sum(found for _, found, _ in swept)
    if wrong := [f"{setting.name}: {what}" for setting, _, found in swept for what in found]:
        fail(wrong)
    killed = sum(len(points_of(setting)) for setting in ALL_SETTINGS)
    text = (
        f"The controller killed itself with SIGKILL {killed} times, once at each point, in a run "
        f"of {jobs} jobs on {NODES} nodes of {GPUS} GPUs ({time.monotonic() - began_s:.0f} s). "
        "Before or after a write: of a batch that goes to one scontrol, what stands before it has "
        "been done and nothing that stands after it. Before, inside or after a commit to the "
        f"ledger.\n\n{chr(10).join(lines)}\n\n{CHECKED}\n\nNothing was found wrong."
    )
    record("Killed at every point that matters", text)


def _sweep(setting: Setting) -> tuple[int, list[str]]:
    """Return the number of jobs, and their violations."""

    def say(point: KillPoint) -> None:
        click.echo(f"{setting.name}: {point}", err=True)

    shape = (f"--nodes={NODES}", f"--gpus={GPUS}")
    with short_folder() as folder, started_cluster(folder, *shape) as cluster:
        return kill_at(points_of(setting), setting, cluster, folder, say)


def _line(setting: Setting, killed_at: Sequence[KillPoint]) -> str:
    """Return a line for one setting: its kill points and when they were reached."""
    moments: dict[str, list[str]] = {}
    for point in killed_at:
        moments.setdefault(point.name, []).append(point.moment)
    told = "; ".join(f"`{name}` ({', '.join(when)})" for name, when in moments.items())
    return f"- {setting.name}: {told}"
