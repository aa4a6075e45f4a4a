"""The cost of the job library in a training loop: of a call, and of a report that is due."""

from __future__ import annotations

import os
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import click

from scripts.tools.bench.record import record
from scripts.tools.document import markdown
from slurm_tiresias.job.channel import FILE_VARIABLE
from slurm_tiresias.job.record import RECORD_BYTES
from slurm_tiresias.job.session import SEND_EVERY_S, Session

CALLS, ROUNDS = 200_000, 15
SENDS = 2_000


@click.command("job-library")
def job_library() -> None:
    """The cost of the job library in a training loop."""
    rows = [[name, f"{_least_us(call):.2f}"] for name, call in _calls()]
    rows.append(["a report that is due, into a file on a disk", f"{_send_us():.1f}"])
    text = (
        f"Microseconds of a call, CPU time, the least of {ROUNDS} rounds of {CALLS:,} calls; of a "
        f"report that is due the median of {SENDS:,} by the clock. A report is due every "
        f"{SEND_EVERY_S:g} s at the most."
    )
    header = ("call", "µs")
    record("The library for jobs", markdown(header, rows), text)


def _calls() -> Iterator[tuple[str, Callable[[], object]]]:
    outside = Session({})
    outside.report(1, 5000)
    yield "report(), outside of a job", lambda: outside.report(7, 5000)
    with tempfile.TemporaryDirectory() as folder:
        inside = Session({FILE_VARIABLE: str(_channel(folder))}, clock=lambda: 1.0)
        inside.report(1, 5000)
        yield "report(), nothing due", lambda: inside.report(7, 5000)
        inside.requests.listens = True
        yield "save_due()", lambda: inside.save_due(30.0)
        yield "leaving()", inside.leaving
    steps = outside.steps(10**12, lambda _step: None)
    yield "a step of steps(), reported and asked about", lambda: next(steps)


def _channel(folder: str) -> Path:
    path = Path(folder) / "progress"
    path.write_bytes(bytes(RECORD_BYTES))
    return path


def _least_us(call: Callable[[], object]) -> float:
    timer = timeit.Timer(call, timer=time.process_time)
    return min(timer.repeat(ROUNDS, CALLS)) / CALLS * 1e6


def _send_us() -> float:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        now_s = 0.0
        session = Session({FILE_VARIABLE: str(_channel(folder))}, clock=lambda: now_s)
        took = []
        for step in range(SENDS):
            now_s += 2 * SEND_EVERY_S
            began_s = time.perf_counter()
            session.report(step, SENDS)
            took.append(time.perf_counter() - began_s)
    return median(took) * 1e6
