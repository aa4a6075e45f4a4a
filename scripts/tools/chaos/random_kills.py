"""``scripts/dev chaos random-kills``: repeated kill -9 of the controller at random moments."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence

import click

from scripts.testbed.busy_load import (
    SETTINGS,
    Busy,
    Killed,
    count_preemptions,
    drain,
    kill_at_random,
    not_remembered,
)
from scripts.testbed.real_cluster import short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from scripts.tools.chaos.outcome import CHECKED, fail, record

NODES, GPUS = 4, 4
LONGEST_LIFE_S = 2.5


@click.command()
@click.option("--count", default=100, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--seed", default=1, show_default=True, type=int)
def random_kills(count: int, seed: int) -> None:
    """Kill the controller at random moments of a busy run."""
    chance = random.Random(seed)
    began_s = time.monotonic()
    shape = (f"--nodes={NODES}", f"--gpus={GPUS}")
    with short_folder() as folder, started_cluster(folder, *shape) as cluster:
        controller = RealController(cluster, folder, SETTINGS)
        controller.write_config()
        busy = Busy(cluster, folder)
        killed: list[Killed] = []
        wrong: list[str] = []
        for number in range(1, count + 1):
            killed.append(kill_at_random(controller, busy, chance, LONGEST_LIFE_S))
            wrong += (f"kill {number}: {what}" for what in not_remembered(controller, busy))
            if number % 10 == 0 or number == count:
                click.echo(f"{number} of {count} kills, {len(busy.jobs)} jobs so far", err=True)
        wrong += drain(controller, busy)
        jobs, preemptions = len(busy.jobs), count_preemptions(controller, busy)
    if wrong:
        fail(wrong)
    record("Killed at random", _told(killed, jobs, preemptions, time.monotonic() - began_s))


def _told(killed: Sequence[Killed], jobs: int, preemptions: int, took_s: float) -> str:
    median_s = statistics.median(one.lived_s for one in killed)
    at_work = sum(one.had_cycled for one in killed)
    return (
        f"The controller was killed {len(killed)} times with SIGKILL, at a random moment of the "
        f"first {LONGEST_LIFE_S:g} s of its life (median {median_s:.1f} s): {at_work} times at "
        f"work, {len(killed) - at_work} times before its first cycle was over. Meanwhile {jobs} "
        f"jobs came to {NODES} nodes of {GPUS} GPUs, and {preemptions} times one had to leave for "
        f"another. In all {took_s:.0f} s.\n\n{CHECKED}\n\nNothing was found wrong."
    )
