"""``scripts/dev chaos load``: ten thousand jobs, a submission storm, and a mass cancel."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import click
import orjson

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from scripts.testbed.slurmctld import SUBMITTERS, submit_many
from scripts.tools.chaos.outcome import fail, record
from slurm_tiresias.status.published import FILE_NAME

NODES = 16
INTERVAL_S = 1.0
CYCLES_AN_HOUR = 360
"""Cycles per hour at the default interval of 10 s."""

MOST_GROWTH = 1.05
"""Largest growth of the controller's memory from the second third of the cycles to the last."""

ENOUGH_CYCLES = 90
"""Fewest cycles to judge growth by, since Python allocates memory in chunks."""

PATIENCE_S = 900.0
ACCOUNTED_WITHIN_S = 60.0
SETTINGS = {"controller": {"mode": "enforce", "interval_s": INTERVAL_S}}


@dataclass(frozen=True, slots=True)
class Load:
    """The load on the cluster."""

    running: int
    pending: int
    cycles: int
    storm: int
    tasks: int


@dataclass(slots=True)
class Watch:
    """The controller observed from outside: when it published, and its memory then."""

    state: Path
    pid: int
    published_s: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)

    def look(self) -> None:
        at_s = self.state.stat().st_mtime
        if not self.published_s or at_s != self.published_s[-1]:
            self.published_s.append(at_s)
            self.memory_mb.append(_memory_mb(self.pid))

    def longest_gap_s(self, since: int) -> float:
        """Return the longest time between two cycles since the given one."""
        times = self.published_s[since:]
        return max((b - a for a, b in pairwise(times)), default=0.0)

    def growth(self, cycles: int) -> float:
        """Return the peak memory of the last third of the cycles relative to the second third."""
        third = cycles // 3
        return max(self.memory_mb[2 * third : cycles]) / max(self.memory_mb[third : 2 * third])


@click.command()
@click.option("--running", default=1000, show_default=True, type=click.IntRange(16, 2000))
@click.option("--pending", default=10_000, show_default=True, type=click.IntRange(10, 50_000))
@click.option(
    "--cycles",
    default=CYCLES_AN_HOUR,
    show_default=True,
    type=click.IntRange(9, 10_000),
    help="Number of cycles over which memory must not grow; the default is an hour of real ones.",
)
@click.option("--storm", default=1000, show_default=True, help="Jobs submitted in a burst.")
@click.option(
    "--tasks",
    default=5000,
    show_default=True,
    help="Number of tasks of each of two arrays submitted after it.",
)
def load(running: int, pending: int, cycles: int, storm: int, tasks: int) -> None:
    """Thousands of jobs: what they cost, whether memory grows, a storm, and a mass cancel."""
    text, wrong = measured(Load(running, pending, cycles, storm, tasks))
    if wrong:
        fail(wrong)
    record("Load", text)


def measured(what: Load) -> tuple[str, list[str]]:
    """Return the text of the result, and a list of problems."""
    each = -(-what.running // NODES)
    most = 2 * (what.running + what.pending + what.storm + 2 * what.tasks)
    options = (
        *(f"--nodes={NODES}", f"--gpus={each}", f"--cpus={each}", f"--memory-mb={each * 100}"),
        f"--slurm-conf-line=MaxJobCount={most}",
        f"--slurm-conf-line=MaxArraySize={what.tasks + 1}",
        "--slurm-conf-line=SchedulerParameters=disable_job_shrink,batch_sched_delay=1",
    )
    with short_folder() as folder, started_cluster(folder, *options) as cluster:
        _fill(cluster, what)
        log = folder / "controller.log"
        controller = RealController(cluster, folder, SETTINGS, defaults={}, log_file=log).start()
        try:
            assert controller.process is not None
            watch = Watch(controller.state_dir / FILE_NAME, controller.process.pid)
            _run_on(cluster, watch, what.cycles)
            stormed = _storm(cluster, watch, what)
            cancelled = _cancel_all(cluster, watch)
            wrong = [*controller.faults(), *_lost(cluster, what)]
        finally:
            controller.end()
    if what.cycles >= ENOUGH_CYCLES and watch.growth(what.cycles) > MOST_GROWTH:
        wrong.append(f"memory grew {watch.growth(what.cycles):.2f} times")
    told = (
        f"{what.running:,} jobs of one GPU each run on {NODES} nodes, {what.pending:,} wait, in a "
        f"real slurmctld with accounting; the controller's interval is {INTERVAL_S:g} s."
    )
    return "\n\n".join((told, _memory_told(watch, what), stormed, cancelled)), wrong


# The cluster and its jobs


def _fill(cluster: RealCluster, what: Load) -> None:
    """Submit jobs that fill the cluster, and more that follow one by one as those end."""
    script = cluster.folder / "job"
    script.write_text("#!/bin/sh\nexec sleep $((300 + $(od -An -N2 -tu2 /dev/urandom) % 1800))\n")
    _submit(cluster, what.running)
    taken = "all GPUs taken"
    cluster.wait_until(lambda: _count(cluster, "RUNNING") >= what.running, taken, PATIENCE_S)
    _submit(cluster, what.pending)


def _submit(cluster: RealCluster, jobs: int) -> None:
    submit_many(jobs, lambda _number: _sbatch(cluster))


def _sbatch(cluster: RealCluster, *options: str) -> None:
    common = ("--gpus=1", "--mem=1", "--output=/dev/null", *options)
    cluster.run("sbatch", *common, str(cluster.folder / "job"))


def _count(cluster: RealCluster, state: str) -> int:
    return len(cluster.run("squeue", "-h", "-r", "-o", "%i", "-t", state).split())


def _memory_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None, "a process that runs has memory"
    return int(found[1]) / 1024


# The load on the controller


def _run_on(cluster: RealCluster, watch: Watch, cycles: int) -> None:
    """Wait for as many cycles as an hour has at the default interval."""
    while len(watch.published_s) < cycles:
        enough = min(cycles, len(watch.published_s) + 30)
        _until(cluster, watch, lambda: len(watch.published_s) >= enough, "its cycles go on")  # noqa: B023
        click.echo(
            f"{len(watch.published_s)} of {cycles} cycles, {watch.memory_mb[-1]:.0f} MB", err=True
        )


def _storm(cluster: RealCluster, watch: Watch, what: Load) -> str:
    first, began_s = len(watch.published_s), time.monotonic()
    with _watching(watch):
        _submit(cluster, what.storm)
        for _ in range(2):
            _sbatch(cluster, f"--array=0-{what.tasks - 1}")
    took_s = time.monotonic() - began_s
    waiting = _count(cluster, "PENDING")
    _until(
        cluster, watch, lambda: _shown_waiting(watch) >= 0.99 * waiting, "all of them to be seen"
    )
    return (
        f"A storm: {what.storm:,} jobs and two arrays of {what.tasks:,} tasks, submitted within "
        f"{took_s:.0f} s by {SUBMITTERS} at a time. The longest pause between two published cycles "
        f"was {watch.longest_gap_s(first - 1):.1f} s; {time.monotonic() - began_s - took_s:.1f} s "
        f"after the last of them all {waiting:,} waiting jobs stood in `status`."
    )


def _cancel_all(cluster: RealCluster, watch: Watch) -> str:
    first, began_s = len(watch.published_s), time.monotonic()
    with _watching(watch):
        cluster.run("scancel", "--me")
        cluster.wait_until(lambda: not cluster.run("squeue", "-h").strip(), "all ended", PATIENCE_S)
    took_s = time.monotonic() - began_s
    _until(cluster, watch, lambda: _shown_waiting(watch) == 0, "none to be seen")
    return (
        f"A mass cancel: `scancel` of all jobs took {took_s:.1f} s until the last was gone, with a "
        f"longest pause of {watch.longest_gap_s(first - 1):.1f} s between two published cycles; "
        f"{time.monotonic() - began_s - took_s:.1f} s later `status` showed none."
    )


def _shown_waiting(watch: Watch) -> int:
    tiers = orjson.loads(watch.state.read_bytes())["tiers"]
    return sum(tier["pending_jobs"] for tier in tiers)


def _until(cluster: RealCluster, watch: Watch, holds: Callable[[], bool], what: str) -> None:
    def seen() -> bool:
        watch.look()
        return holds()

    cluster.wait_until(seen, what, PATIENCE_S)


@contextmanager
def _watching(watch: Watch) -> Iterator[None]:
    """Observe the controller repeatedly during the block."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            watch.look()

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield
    finally:
        over.set()
        looker.join()


def _lost(cluster: RealCluster, what: Load) -> Iterator[str]:
    """Yield submitted jobs that accounting lacks, or shows as requeued or with a wrong end."""
    submitted = what.running + what.pending + what.storm + 2

    def rows() -> list[tuple[str, str]]:
        answer = cluster.run("sacct", "-a", "-n", "-X", "-D", "-P", "-o", "jobid,state")
        pairs = (line.split("|") for line in answer.split("\n")[:-1])
        return [(job_id.split("_")[0], state.split()[0]) for job_id, state in pairs]

    def knows_all() -> bool:
        found = rows()
        over = not any(state in ("RUNNING", "PENDING") for _, state in found)
        return over and len({job_id for job_id, _ in found}) >= submitted

    with suppress(AssertionError):  # what is missing is reported below
        cluster.wait_until(knows_all, "accounting knows all ends", ACCOUNTED_WITHIN_S)
    found = rows()
    known = len({job_id for job_id, _ in found})
    if known != submitted:
        yield f"{submitted} jobs and arrays were submitted, accounting knows {known}"
    if others := {state for _, state in found} - {"COMPLETED", "CANCELLED"}:
        yield f"some ended as {', '.join(sorted(others))}"


# The report


def _memory_told(watch: Watch, what: Load) -> str:
    third = what.cycles // 3
    ends = (min(10, what.cycles), third, 2 * third, what.cycles)
    amounts = ", ".join(f"{watch.memory_mb[end - 1]:.0f}" for end in ends)
    return (
        f"Memory: {amounts} MB after {', '.join(map(str, ends))} cycles, "
        f"{CYCLES_AN_HOUR} of which are an hour's at the default interval; the most of the last "
        f"third is {watch.growth(what.cycles):.3f} times that of the second. In the storm that "
        f"came then, with more jobs to know of, it was {max(watch.memory_mb):.0f} MB."
    )
