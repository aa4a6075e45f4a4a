"""The cost of a controller cycle with thousands of pending jobs, on a real slurmctld."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.slurmctld import cpu_s, requests, submit_many
from scripts.tools.bench.record import count_option, record
from scripts.tools.document import markdown
from slurm_tiresias.config import parse
from slurm_tiresias.controller.cycle import ENFORCE, Cycle, Cycles, collect_seldom
from slurm_tiresias.controller.publish import nothing_yet, report
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Update
from slurm_tiresias.status import published
from slurm_tiresias.store.ledger import Ledger

NODES, GPUS = 15, 4
QUIET_CYCLES = 10
INTERVAL_S = 10.0
FOREIGN_PRIORITY = 77
"""A priority set by hand, as by an administrator; the next cycle corrects it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A cycle, and the CPU seconds that slurmctld used during it."""

    cycle: Cycle
    took_s: float
    publish_s: float
    slurmctld_cpu_s: float


@click.command("cycle")
@count_option("jobs", 10000, 100000, 100)
@count_option("changes", 1000, 100000)
def cycle(jobs: int, changes: int) -> None:
    """One cycle of the controller with thousands of waiting jobs in slurmctld."""
    options = (
        *(f"--nodes={NODES}", f"--gpus={GPUS}", "--no-accounting"),
        f"--slurm-conf-line=MaxJobCount={2 * jobs + 1000}",
        "--slurm-conf-line=SchedulerParameters=disable_job_shrink,batch_sched_delay=1",
    )
    with short_folder() as folder, started_cluster(folder, *options) as cluster:
        _submit(cluster, folder / "job", jobs)
        config = parse({"controller": {"interval_s": INTERVAL_S}})
        text = _measured(cluster, folder, config, jobs, changes)
    record("A cycle", text)


def _measured(slurm: RealCluster, folder: Path, config: Config, jobs: int, changes: int) -> str:
    with (
        closing(Ledger(folder / "ledger.sqlite")) as ledger,
        closing(ProfileStore(folder / "profiles.sqlite")) as store,
    ):
        collect_seldom()  # as the controller does
        driver = slurm.driver(timeout_s=300.0)
        cluster = driver.cluster()
        cycles = Cycles(driver, cluster, ledger, config, Profiler(store, config))

        def publish(done: Cycle) -> None:
            before = nothing_yet(cluster, config, ENFORCE)
            shown = (done.snapshot, done.plan, cycles.job_store, done.policy)
            state = report(config, before, *shown, ledger.events.last(300))
            published.write(state, folder)

        def run() -> Cost:
            return _run(lambda: cycles.run(ENFORCE), publish, slurm)

        first = run()
        _until_quiet(run)
        idle = _idle_cpu_s(slurm)
        slurm.run("sdiag", "--reset")
        quiet = [run() for _ in range(QUIET_CYCLES)]
        said = _requests(slurm)
        managed = list(quiet[-1].cycle.plan.ranks)[1 : changes + 1]
        driver.write([Update(key, priority=FOREIGN_PRIORITY) for key in managed])
        changed = run()
    rows = [
        _row(f"first: {first.cycle.outcome.writes:,} writes", [first]),
        _row("quiet: no write", quiet),
        _row(f"{changed.cycle.outcome.writes:,} tier changes", [changed]),
    ]
    quiet_cpu_s = statistics.fmean(one.slurmctld_cpu_s for one in quiet)
    header = ("cycle", "all, s", "read", "decide", "write", "publish", "CPU of slurmctld, s")
    return (
        f"{markdown(header, rows)}\n\n{jobs:,} waiting jobs of one GPU each in a real slurmctld, "
        f"{NODES} full nodes of {GPUS} GPUs; of {QUIET_CYCLES} quiet cycles the medians, and the "
        f"mean of the CPU time. With an interval of {INTERVAL_S:g} s the quiet cycles cost "
        f"slurmctld {100 * quiet_cpu_s / INTERVAL_S:.2f} % of one core (without any it spends "
        f"{100 * idle:.2f} %). sdiag says of the quiet ones: {said}."
    )


def _run(
    cycle: Callable[[], Cycle], publish: Callable[[Cycle], None], cluster: RealCluster
) -> Cost:
    before_s, began_s = cpu_s(cluster), time.monotonic()
    done = cycle()
    cycled_s = time.monotonic()
    publish(done)
    ended_s = time.monotonic()
    return Cost(done, ended_s - began_s, ended_s - cycled_s, cpu_s(cluster) - before_s)


def _until_quiet(run: Callable[[], Cost]) -> None:
    for _ in range(20):
        if run().cycle.outcome.writes == 0:
            return
        time.sleep(1)
    raise AssertionError("the controller does not stop writing")


def _idle_cpu_s(cluster: RealCluster) -> float:
    before_s = cpu_s(cluster)
    time.sleep(INTERVAL_S)
    return (cpu_s(cluster) - before_s) / INTERVAL_S


def _requests(cluster: RealCluster) -> str:
    """Return ``REQUEST_JOB_USER_INFO 10 times, 0.083 s each`` for each kind of request made."""
    return ", ".join(
        f"{name} {count} times, {mean_s:.3f} s each"
        for name, (count, mean_s) in requests(cluster).items()
        if count >= QUIET_CYCLES and name != "REQUEST_STATS_INFO"
    )


def _row(name: str, costs: Sequence[Cost]) -> tuple[str, ...]:
    took = [one.cycle.took for one in costs]
    figures = (
        [one.took_s for one in costs],
        [one.read_s for one in took],
        [one.decide_s for one in took],
        [one.act_s for one in took],
        [one.publish_s for one in costs],
    )
    # The kernel counts in hundredths of a second, so only a mean can resolve less.
    spent_s = statistics.fmean(one.slurmctld_cpu_s for one in costs)
    return (name, *(f"{statistics.median(values):.3f}" for values in figures), f"{spent_s:.3f}")


def _submit(cluster: RealCluster, script: Path, jobs: int) -> None:
    """Submit separate jobs, since pending tasks of an array would share one record."""
    script.write_text("#!/bin/sh\nexec sleep infinity\n")
    common = ("--mem=1", "--output=/dev/null", str(script))
    for _ in range(NODES):
        cluster.run("sbatch", "--gpus-per-node=4", "-N1", *common)
    cluster.wait_until(
        lambda: len(cluster.run("squeue", "-h", "-t", "R").splitlines()) == NODES, "all nodes taken"
    )
    submit_many(jobs, lambda number: cluster.run("sbatch", "--gpus=1", f"-J{number}", *common))
