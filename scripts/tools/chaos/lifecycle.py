"""``scripts/dev chaos lifecycle``: random interleavings of events, on the in-memory Slurm."""

from __future__ import annotations

import io
import os
import time
import traceback
from collections import Counter
from contextlib import redirect_stdout
from itertools import count

import click
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from scripts.testbed.lifecycle.machine import DONE, Lifecycle
from scripts.tools.chaos.outcome import Batch, in_batches, record_counts

EXAMPLES = 100
"""Examples per batch; the time limit is checked between batches."""

STEPS = 25
TOLD = {
    "rounds": "interleavings",
    "cycles": "cycles",
    "submit": "submissions",
    "starts": "starts",
    "preemptions": "preemptions",
    "kills": "controllers killed between two effects",
    "restart": "restarts of the controller",
    "failover": "failovers",
    "superseded": "controllers that went on when another one had taken over",
    "slurmctld": "restarts of slurmctld that had forgotten something",
    "reused ids": "ids given to other jobs",
    "clock": "steps of Slurm's clock",
    "failed cycles": "cycles that failed",
}

SOUND = (
    "At every step: no job was lost, none requeued twice for one start; held jobs stayed held and "
    "suspended ones suspended; no node list was left on a job that was not about to start; no run "
    "was ended for a job that could not start, or while it was protected, or before it had heard "
    "its signal and had its grace; a controller that had been stopped while another "
    "one took over changed nothing. And when nothing more happened: the cluster came to rest; no "
    "preemption had been in vain without being on record; the ledger had the service that "
    "accounting has, of each job's own rows where ids were given out again; a release left neither "
    "priorities nor lists."
)


@click.command()
@click.option("--minutes", default=60.0, show_default=True, type=click.FloatRange(0.1))
@click.option(
    "--processes", default=lambda: len(os.sched_getaffinity(0)), type=click.IntRange(1, 256)
)
@click.option("--seed", "first", default=1, show_default=True, type=int)
def lifecycle(minutes: float, processes: int, first: int) -> None:
    """Drive the controller through random interleavings, on a Slurm in memory.

    Arrivals, ends, holds, edits, failures, lost answers, kills between any two effects, restarts
    and failovers. Ends with the shortest failing sequence, if there is one.
    """
    began_s = time.monotonic()
    done = in_batches(_run, count(first), processes, began_s + 60.0 * minutes)
    record_counts("The controller in random interleavings", done, TOLD, began_s, SOUND)


def _run(number: int) -> Batch:
    """Run one batch of interleavings in its own process."""
    DONE.clear()
    said = io.StringIO()
    failure = ""
    try:
        with redirect_stdout(said):
            run_state_machine_as_test(seed(number)(Lifecycle), settings=_settings())
    except Exception as error:
        failure = f"seed {number}:\n{said.getvalue()}\n"
        failure += "".join(traceback.format_exception(error))
    done = Counter(DONE)
    done["rounds"] = done.pop("interleavings", 0)
    return Batch(done, failure)


def _settings() -> settings:
    return settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
