"""``scripts/dev chaos random-kills`` and ``kill-points``: kill -9 of the controller."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping

import click

from scripts.testbed.busy_load import Busy, kill_at_random
from scripts.testbed.kill_sweep import ALL_SETTINGS, Kill, kill_at, kill_each, points_of
from scripts.testbed.real_cluster import short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from scripts.tools.chaos.outcome import fail, record_counts

SHAPE = ("--nodes=4", "--gpus=4")
LONGEST_LIFE_S = 2.5
TOLD = {
    "kills": "kills with SIGKILL",
    "at work": "of these after the first cycle",
    "jobs": "jobs meanwhile, on 4 nodes of 4 GPUs",
    "preemptions": "preemptions",
}
CHECKED = (
    "Afterwards, of every job: it has finished and done all its work; accounting shows it requeued "
    "as often as the ledger says it was decided, and no job was requeued twice for one start "
    "of another; each of its runs stands in the ledger with the GPUs of accounting and within a "
    "second of its time (`sacct -D`). After each kill the ledger knew of every node list that had "
    "been written to a waiting job; and once the controller was paused, no job had a node list but "
    "its user's own.\n\nNothing was found wrong."
)
POINTS = (
    "Before or after a write: of a batch that goes to one scontrol, what stands before it has been "
    "done and nothing that stands after it. Before, inside or after a commit to the ledger."
)


@click.command()
@click.option("--count", default=100, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--seed", default=1, show_default=True, type=int)
def random_kills(count: int, seed: int) -> None:
    """Kill the controller at random moments of a busy run."""
    chance, done, began_s = random.Random(seed), Counter[str](), time.monotonic()

    def kill(controller: RealController, busy: Busy) -> None:
        done["at work"] += kill_at_random(controller, busy, chance, LONGEST_LIFE_S)

    done += _swept((f"kill {number}", kill) for number in range(1, count + 1))
    within = f"Each was in the first {LONGEST_LIFE_S:g} s of the controller's life."
    record_counts("Killed at random", done, TOLD, began_s, f"{within}\n\n{CHECKED}")


@click.command()
def kill_points() -> None:
    """Kill the controller before and after every write and at every commit."""
    done, began_s = Counter[str](), time.monotonic()
    for setting in ALL_SETTINGS:
        kills = (kill_at(point, setting) for point in points_of(setting))
        done += _swept(kills, setting.settings)
    lines = [f"- {one.name}: {', '.join(map(str, points_of(one)))}" for one in ALL_SETTINGS]
    text = "\n\n".join((POINTS, "\n".join(lines), CHECKED))
    record_counts("Killed at every point that matters", done, TOLD, began_s, text)


def _swept(
    kills: Iterable[tuple[str, Kill]],
    settings: Mapping[str, Mapping[str, object]] | None = None,
) -> Counter[str]:
    """Kill controllers on a new cluster; return the counts, or exit with what is wrong."""
    each = list(kills)
    with short_folder() as folder, started_cluster(folder, *SHAPE) as cluster:
        swept = kill_each(each, cluster, folder, settings)
    if swept.wrong:
        fail(swept.wrong)
    return Counter(kills=len(each), jobs=swept.jobs, preemptions=swept.preemptions)
