"""``scripts/dev chaos sites``: random sites and random requests, in memory or on real clusters."""

from __future__ import annotations

import os
import time
from collections import Counter
from itertools import count

import click

from scripts.testbed.sites import in_memory, on_slurm
from scripts.tools.chaos.outcome import Batch, in_batches, record_counts

IN_A_BATCH = 100
TOLD = {
    "rounds": "sites, each with its jobs from the first to the last",
    "submit": "submissions",
    "starts": "runs",
    "preemptions": "preemptions",
    "cycles": "cycles of the controller",
    "drain": "nodes drained",
    "fail": "nodes failed",
    "hold": "jobs held by their users",
    "forget": "kills of slurmctld, which forgot what it had not saved",
    "lost": "jobs that it showed as running after their end, cancelled",
    "lose-state": "losses of all of its state",
    "reused ids": "ids given to other jobs",
    "clock": "steps of Slurm's clock",
}
ALWAYS = (
    "At every cycle and at the end held what holds in the random interleavings (above), as far as "
    "nothing fails between the controller and Slurm. "
)
"""What is checked in memory only."""

SOUND = (
    "No job was held by Slurm for a node list that the controller had written (where the request "
    "shows nothing of what it needs: not twice). None was requeued twice for a job that had not "
    "started, while nodes and requests stayed as they were. None was taken for an earlier job with "
    "its id. Every site came to rest; once the "
    "controller was stopped no list was left, and no job had waited that Slurm then started by "
    "itself."
)


@click.command()
@click.option("--rounds", default=100_000, show_default=True, type=click.IntRange(1))
@click.option("--real", is_flag=True, help="Use real clusters, for --minutes.")
@click.option("--minutes", default=60.0, show_default=True, type=click.FloatRange(0.1))
@click.option(
    "--processes", default=lambda: len(os.sched_getaffinity(0)), type=click.IntRange(1, 256)
)
@click.option("--seed", "first", default=0, show_default=True, type=int)
def sites(rounds: int, real: bool, minutes: float, processes: int, first: int) -> None:
    """Drive random requests through random sites, on a Slurm in memory.

    Partitions, tiers, limits, features, GRES, switches, states and settings are drawn from the
    seed; so are the requests, including some that are opaque to the controller.
    """
    began_s = time.monotonic()
    if real:
        done = in_batches(_real, count(first), processes, began_s + 60.0 * minutes)
    else:
        starts = range(first, first + rounds, IN_A_BATCH)
        done = in_batches(_in_memory, starts, processes)
    title = "Random sites on real clusters" if real else "Random sites in memory"
    record_counts(title, done, TOLD, began_s, SOUND if real else ALWAYS + SOUND)


def _in_memory(first: int) -> Batch:
    done: Counter[str] = Counter()
    for seed in range(first, first + IN_A_BATCH):
        one = in_memory.play(seed)
        done.update(one.counts)
        done["rounds"] += 1
        if one.found:
            return Batch(done, one.told())
    return Batch(done, "")


def _real(seed: int) -> Batch:
    one = on_slurm.play(seed)
    return Batch(one.counts + Counter(rounds=1), one.told() if one.found else "")
