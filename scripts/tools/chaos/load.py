"""``scripts/dev chaos load``: ten thousand jobs, a submission storm, and a mass cancel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import click
import orjson

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController, logged_cycles
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
        controller = RealController(cluster, folder, SETTINGS, defaults={}, log_file=log)
        controller.start("-v")
        try:
            memory_mb = _memory_over(controller, what.cycles)
            stormed = _storm(controller, what)
            cancelled = _cancel_all(controller)
            memory_mb.append(controller.memory_mb("VmHWM"))
            wrong = [*controller.faults(), *_lost(cluster, what)]
        finally:
            controller.end()
    if what.cycles >= ENOUGH_CYCLES and _growth(memory_mb, what.cycles) > MOST_GROWTH:
        wrong.append(f"memory grew {_growth(memory_mb, what.cycles):.2f} times")
    told = (
        f"{what.running:,} jobs of one GPU each run on {NODES} nodes, {what.pending:,} wait, in a "
        f"real slurmctld with accounting; the controller's interval is {INTERVAL_S:g} s."
    )
    return "\n\n".join((told, _memory_told(memory_mb, what), stormed, cancelled)), wrong


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


# The load on the controller


def _memory_over(controller: RealController, cycles: int) -> list[float]:
    """Return the controller's memory after each of its next cycles."""
    memory_mb: list[float] = []
    while len(memory_mb) < cycles:
        _next_cycle(controller)
        memory_mb.append(controller.memory_mb("VmRSS"))
        if len(memory_mb) % 30 == 0:
            click.echo(f"{len(memory_mb)} of {cycles} cycles, {memory_mb[-1]:.0f} MB", err=True)
    return memory_mb


def _next_cycle(controller: RealController) -> None:
    published = controller.state_dir / FILE_NAME
    before_s = published.stat().st_mtime
    controller.wait_until(
        lambda: published.stat().st_mtime != before_s, "its cycles go on", PATIENCE_S
    )


def _growth(memory_mb: Sequence[float], cycles: int) -> float:
    """Return the peak memory of the last third of the cycles relative to the second third."""
    third = cycles // 3
    return max(memory_mb[2 * third : cycles]) / max(memory_mb[third : 2 * third])


def _longest_pause_s(controller: RealController, since_s: float) -> float:
    """Return the longest time between two cycles, from the last one before then."""
    assert controller.log_file is not None
    ended_s = [cycle.ended_s for cycle in logged_cycles(controller.log_file.read_text())]
    first = max(sum(end_s < since_s for end_s in ended_s) - 1, 0)
    return max((b - a for a, b in pairwise(ended_s[first:])), default=0.0)


def _storm(controller: RealController, what: Load) -> str:
    cluster, began_s = controller.cluster, time.time()
    _submit(cluster, what.storm)
    for _ in range(2):
        _sbatch(cluster, f"--array=0-{what.tasks - 1}")
    took_s = time.time() - began_s
    waiting = _count(cluster, "PENDING")
    controller.wait_until(
        lambda: _shown_waiting(controller) >= 0.99 * waiting, "all of them to be seen", PATIENCE_S
    )
    return (
        f"A storm: {what.storm:,} jobs and two arrays of {what.tasks:,} tasks, submitted within "
        f"{took_s:.0f} s by {SUBMITTERS} at a time. The longest pause between two cycles was "
        f"{_longest_pause_s(controller, began_s):.1f} s; {time.time() - began_s - took_s:.1f} s "
        f"after the last of them all {waiting:,} waiting jobs stood in `status`."
    )


def _cancel_all(controller: RealController) -> str:
    cluster, began_s = controller.cluster, time.time()
    cluster.run("scancel", "--me")
    cluster.wait_until(lambda: not cluster.run("squeue", "-h").strip(), "all ended", PATIENCE_S)
    took_s = time.time() - began_s
    controller.wait_until(
        lambda: _shown_waiting(controller) == 0, "none of them to be seen", PATIENCE_S
    )
    return (
        f"A mass cancel: `scancel` of all jobs took {took_s:.1f} s until the last was gone, with a "
        f"longest pause of {_longest_pause_s(controller, began_s):.1f} s between two cycles; "
        f"{time.time() - began_s - took_s:.1f} s later `status` showed none."
    )


def _shown_waiting(controller: RealController) -> int:
    tiers = orjson.loads((controller.state_dir / FILE_NAME).read_bytes())["tiers"]
    return sum(tier["pending_jobs"] for tier in tiers)


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


def _memory_told(memory_mb: Sequence[float], what: Load) -> str:
    third = what.cycles // 3
    ends = (min(10, what.cycles), third, 2 * third, what.cycles)
    amounts = ", ".join(f"{memory_mb[end - 1]:.0f}" for end in ends)
    return (
        f"Memory: {amounts} MB after {', '.join(map(str, ends))} cycles, "
        f"{CYCLES_AN_HOUR} of which are an hour's at the default interval; the most of the last "
        f"third is {_growth(memory_mb, what.cycles):.3f} times that of the second. In the storm "
        f"that came then, with more jobs to know of, it was {max(memory_mb):.0f} MB."
    )
