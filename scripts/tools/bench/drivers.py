"""The cost of one read and a thousand writes with each driver, on the installed Slurm."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

import click

from scripts.testbed.jobs import slurm
from scripts.testbed.place import DemoError, Place, bring_up, say, temporary_place
from scripts.testbed.slurmctld import cpu_s, pid_of
from scripts.tools.bench.record import record
from scripts.tools.document import markdown
from slurm_tiresias.slurm.choose import COMMANDS, PYSLURM, slurm_by
from slurm_tiresias.slurm.protocol import Commands, Slurm, Update
from slurm_tiresias.slurm.pyslurm_driver import PyslurmSlurm

NODES, GPUS = 15, 4
READINGS = 10
WRITES = 1000
WRITE_ROUNDS = 3
SETTLED_S = 2.0
PRIORITY = 1_000_000
CONFIG = '[controller]\nstate_dir = "{state_dir}"\n'


@click.command("drivers")
@click.option(
    "--jobs",
    "sizes",
    multiple=True,
    default=(2_000, 10_000),
    show_default=True,
    type=click.IntRange(1_000, 100_000),
    help="Number of waiting jobs; may be repeated.",
)
def drivers(sizes: Sequence[int]) -> None:
    """The cost of reads and writes with each driver for the installed Slurm."""
    drivers = [COMMANDS, PYSLURM] if find_spec("pyslurm") else [COMMANDS]
    rows: list[tuple[str, ...]] = []
    with temporary_place("drivers", CONFIG) as place:
        _start_cluster(place, max(sizes))
        waiting = 0
        for jobs in sorted(sizes):
            _submit(place, jobs - waiting)
            waiting = jobs
            for name in drivers:
                rows.append(_row(place, name, jobs))
                say(" | ".join(rows[-1]))
        release = slurm(place, "scontrol", "--version").split()[-1]
    header = (
        *("driver", "waiting jobs", "first reading, ms", "settled reading, ms"),
        *(f"{WRITES:,} priorities, ms", "slurmctld per settled reading, ms"),
    )
    text = (
        f"{markdown(header, rows)}\n\nSlurm {release}, jobs that ask for one GPU each, none of "
        f"which may start. Of {READINGS} settled readings, in which nothing has changed, and of "
        f"{WRITE_ROUNDS} times {WRITES:,} priorities the medians; a first reading is that of a "
        "driver just begun, which knows no job yet."
    )
    series = ".".join(release.split(".")[:2])
    record(title(series), text)


def title(series: str) -> str:
    """Return the title of the section for this release, such as ``26.05``."""
    return f"Drivers, Slurm {series}"


def _row(place: Place, name: str, jobs: int) -> tuple[str, ...]:
    with _driver(place, name) as driver:
        slurmctld = pid_of(place)
        first_s = _timed_reading(driver, jobs)
        _timed_reading(driver, jobs)
        before_s = cpu_s(slurmctld)
        settled_s = [_timed_reading(driver, jobs) for _ in range(READINGS)]
        spent_s = (cpu_s(slurmctld) - before_s) / READINGS
        keys = [job.key for job in driver.observe().jobs[:WRITES]]
        written_s = [_timed_writes(driver, keys, PRIORITY + n) for n in range(WRITE_ROUNDS)]
        label = driver.driver.name
    took = (first_s, statistics.median(settled_s), statistics.median(written_s), spent_s)
    return (label, f"{jobs:,}", *(f"{1000 * one_s:,.0f}" for one_s in took))


@contextmanager
def _driver(place: Place, name: str) -> Iterator[Slurm]:
    environment = {"SLURM_CONF": place.exports()["SLURM_CONF"]}
    driver = slurm_by(name, Commands(timeout_s=300.0, environment=environment))
    driver.cluster()
    try:
        yield driver
    finally:
        if isinstance(driver, PyslurmSlurm):
            driver.close()


def _timed_reading(driver: Slurm, jobs: int) -> float:
    began_s = time.monotonic()
    seen = driver.observe()
    took_s = time.monotonic() - began_s
    if len(seen.jobs) != jobs:
        raise DemoError(f"{len(seen.jobs)} jobs were read instead of {jobs}")
    return took_s


def _timed_writes(driver: Slurm, keys: Sequence[str], priority: int) -> float:
    writes = [Update(key, priority=priority) for key in keys]
    began_s = time.monotonic()
    failures = driver.write(writes)
    took_s = time.monotonic() - began_s
    if failures:
        raise DemoError(f"{len(failures)} writes were refused, the first: {failures[0].message}")
    time.sleep(SETTLED_S)
    return took_s


def _start_cluster(place: Place, jobs: int) -> None:
    bring_up(
        place,
        *(f"--nodes={NODES}", f"--gpus={GPUS}", "--partition=gpu"),
        f"--slurm-conf-line=MaxJobCount={2 * jobs + 1000}",
        f"--slurm-conf-line=MaxArraySize={jobs + 1}",
        "--slurm-conf-line=SchedulerParameters=disable_job_shrink",
    )


def _submit(place: Place, jobs: int) -> None:
    """Submit an array, and write to its tasks one by one, so that each gets its own record."""
    array = slurm(
        place,
        *("sbatch", "--parsable", "--gpus=1", "--mem=1", "--begin=now+30days"),
        *(f"--array=0-{jobs - 1}", "--output=/dev/null", "--wrap=sleep infinity"),
    ).strip()
    with _driver(place, COMMANDS) as driver:
        for at in range(0, jobs, WRITES):
            some = range(at, min(at + WRITES, jobs))
            driver.write([Update(f"{array}_{task}", priority=PRIORITY) for task in some])
            say(f"{some.stop:,} of {jobs:,} jobs")
    time.sleep(SETTLED_S)
