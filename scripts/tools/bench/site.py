"""A site of a thousand nodes: what the controller costs it, and how long users wait for sbatch."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import random
from statistics import median

import click

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import LoggedCycle, RealController, logged_cycles
from scripts.testbed.slurmctld import SUBMITTERS, cpu_s, cpu_s_of, memory_mb, requests, submit_many
from scripts.tools.bench.record import count_option, record
from scripts.tools.document import markdown
from slurm_tiresias.store.terms import newest_ledger

GPUS = 8
PER_NODE_S = 200
"""How long a job runs on average: with one on each of a thousand nodes, five end in a second. Two
cores do not bear twenty starts and ends in a second."""

WITHDRAWN, AFTER_S = 0.75, 30
"""The share of the submitted jobs that are cancelled so many seconds later if they still wait, so
that as many wait as at first."""

ONE_LONG_IN = 200
LONG_S = 86400
SCHEDULER = "bf_interval=30,sched_interval=60,batch_sched_delay=3,disable_job_shrink"
"""Slurm's defaults, and what the controller asks for: test clusters schedule every two seconds."""

WITHOUT = 1 / 6
"""For which part of the time with a controller the site is watched without one before."""

SUBMIT = "REQUEST_SUBMIT_BATCH_JOB"
Course = Mapping[str, float]


class Site:
    """A cluster to which jobs are submitted at a constant rate."""

    def __init__(self, cluster: RealCluster, rate: int, folder: Path) -> None:
        self._cluster = cluster
        self._rate = rate
        self._script = folder / "job"
        self._script.write_text('#!/bin/sh\nexec sleep "$1"\n')
        self._number = 0

    def submit(self, _number: int = 0) -> tuple[str, float]:
        """Submit a job; return its id ("" without an answer), and how long sbatch took."""
        self._number += 1
        # Not all of the first ones end at once.
        runs_s = 2 * PER_NODE_S * random() if self._number % ONE_LONG_IN else LONG_S
        command = (
            *("sbatch", "--parsable", "--output=/dev/null", "-N1", f"--gpus-per-node={GPUS}"),
            *("-c1", "--mem=1", f"-J{self._number % 40}", str(self._script), f"{runs_s}"),
        )
        began_s = time.monotonic()
        try:
            job = self._cluster.run(*command)
        except AssertionError:
            job = ""
        return job.strip(), time.monotonic() - began_s

    def course(self, minutes: float, controller: RealController | None = None) -> Course:
        """Submit for so long; return what was measured."""
        self._cluster.run("sdiag", "--reset")
        began_s, before_s = time.monotonic(), cpu_s(self._cluster)
        submitted = self._submissions(minutes)
        took = sorted(took_s for _, took_s in submitted)
        passed_s = time.monotonic() - began_s
        load = {"slurmctld": cpu_s(self._cluster) - before_s}
        if controller:
            assert controller.process
            pid = controller.process.pid
            load["controller"] = cpu_s_of(pid, with_ended_children=True)
            load["forecasts"] = sum(
                cpu_s_of(child, with_ended_children=True) for child in _children(pid)
            )
        calls = {
            f"{name}, ms": 1000 * mean_s
            for name, (_, mean_s) in requests(self._cluster).items()
            if name in (SUBMIT, "REQUEST_JOB_INFO")
        }
        states = self._cluster.run("squeue", "-h", "-o", "%T").split()
        return {
            "submissions in a second": len(took) / passed_s,
            "of these, not answered": sum(not job for job, _ in submitted),
            "sbatch, median, ms": 1000 * median(took),
            "sbatch, 99th percentile, ms": 1000 * took[len(took) * 99 // 100],
            **calls,
            **{f"{name}, % of a core": 100 * s / passed_s for name, s in load.items()},
            "jobs that wait at the end": states.count("PENDING"),
            "jobs that run at the end": states.count("RUNNING"),
        }

    def _submissions(self, minutes: float) -> Sequence[tuple[str, float]]:
        asked: list[Future[tuple[str, float]]] = []
        next_s = time.monotonic()
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            for second in range(round(60 * minutes)):
                asked += [pool.submit(self.submit) for _ in range(self._rate)]
                if second >= AFTER_S:
                    first = (second - AFTER_S) * self._rate
                    pool.submit(
                        self._withdraw, asked[first : first + round(WITHDRAWN * self._rate)]
                    )
                next_s += 1.0
                time.sleep(max(0.0, next_s - time.monotonic()))
        return [each.result() for each in asked]

    def _withdraw(self, submitted: Sequence[Future[tuple[str, float]]]) -> None:
        jobs = [job for job, _ in (each.result() for each in submitted if each.done()) if job]
        if jobs:
            self._cluster.answers("scancel", "--state=PENDING", *jobs)


def _children(pid: int) -> list[int]:
    """Return the processes that any thread of this one has started."""
    each = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for threads in each for child in threads.read_text().split()]


@click.command("site")
@count_option("nodes", 1000, 2000, 10)
@count_option("jobs", 10000, 50000)
@count_option("rate", 20, 100)
@click.option("--minutes", default=60.0, show_default=True, help="With a controller.")
def site(nodes: int, jobs: int, rate: int, minutes: float) -> None:
    """A site of a thousand nodes, ten thousand jobs, and many submissions."""
    lines = (
        *(f"MaxJobCount={4 * jobs}", f"SchedulerParameters={SCHEDULER}"),
        # All nodes share this machine, so that each may be slow.
        *("SlurmdTimeout=3600", "UnkillableStepTimeout=3600"),
    )
    options = (
        *(f"--nodes={nodes}", f"--gpus={GPUS}"),
        *(f"--slurm-conf-line={line}" for line in lines),
    )
    with short_folder() as folder, started_cluster(folder, *options) as cluster:
        _join_nodes(cluster.folder / "etc", nodes)
        load = Site(cluster, rate, folder)
        cluster.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")
        submit_many(nodes + jobs, load.submit)
        cluster.run("scontrol", "update", "PartitionName=gpu", "State=UP")
        without = load.course(WITHOUT * minutes)
        log = folder / "log"
        settings = {"controller": {"mode": "enforce"}}
        controller = RealController(cluster, folder, settings, defaults=settings, log_file=log)
        controller.start("-v")
        try:
            course = load.course(minutes, controller)
            course = {**course, **_footprint(controller)}
            state = controller.state()
        finally:
            controller.end()
        cycles = logged_cycles(log.read_text())
    names = list(dict.fromkeys([*without, *course]))
    table = [
        (name, *(_shown(one[name]) if name in one else "" for one in (without, course)))
        for name in names
    ]
    failed = sum(state.failed_cycles.values())
    record(
        "A big site",
        markdown(("", "Slurm alone", "with the controller"), table),
        markdown(("cycles", "read, s", "decide, s", "write, s", "all, s", "writes"), _rows(cycles)),
        f"{nodes:,} real slurmds of {GPUS} GPUs on this machine, {jobs:,} waiting jobs at first, "
        f"accounting by slurmdbd; {rate} submissions a second for {minutes:g} minutes with the "
        f"default settings, after {WITHOUT * minutes:.3g} without. A job takes a node for "
        f"{PER_NODE_S} s on average, one in {ONE_LONG_IN} for a day; {WITHDRAWN:.0%} are cancelled "
        f"after {AFTER_S} s if they still wait. Of {len(cycles)} cycles {failed} failed. "
        "No job runs for long enough to be preempted.",
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _join_nodes(etc: Path, nodes: int) -> None:
    """Write all nodes in one line, as sites do: every command reads them."""
    conf, gres = etc / "slurm.conf", etc / "gres.conf"
    lines = conf.read_text().splitlines()
    each = [line for line in lines if line.startswith("NodeName=n")]
    ports = ",".join(found[1] for found in re.finditer(r" Port=(\d+)", "\n".join(each)))
    joined = re.sub(r" Port=\d+", f" Port=[{ports}]", each[0]).replace("n1 ", f"n[1-{nodes}] ", 1)
    at = lines.index(each[0])
    conf.write_text("\n".join([*lines[:at], joined, *lines[at + nodes :], ""]))
    text = gres.read_text()
    gres.write_text(re.sub(r"(NodeName=n)1( .*\n)(NodeName=n.*\n)+", rf"\1[1-{nodes}]\2", text))


def _footprint(controller: RealController) -> Course:
    assert controller.process
    pid = controller.process.pid
    ledger = newest_ledger(controller.state_dir)
    disk = re.search(r"write_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text())
    return {
        "most memory of the controller, MB": memory_mb(pid, "VmHWM"),
        "most memory of the forecasts, MB": sum(memory_mb(c, "VmHWM") for c in _children(pid)),
        "ledger, MB": sum(f.stat().st_size for f in ledger.parent.glob(f"{ledger.name}*")) / 1e6,
        "written to disk by the controller, MB": int(disk[1]) / 1e6 if disk else 0.0,
    }


def _rows(cycles: Sequence[LoggedCycle]) -> list[tuple[str, ...]]:
    first, *later = cycles
    half = max(1, len(later) // 2)
    parts = (
        ("the first", median, [first]),
        ("first half", median, later[:half]),
        ("second half", median, later[half:]),
        ("the longest of each", max, later),
    )
    return [
        (name, *(f"{of(values):,.2f}" for values in zip(*map(_figures, some), strict=True)))
        for name, of, some in parts
        if some
    ]


def _figures(one: LoggedCycle) -> tuple[float, ...]:
    all_s = one.read_s + one.decided_s + one.wrote_s
    return one.read_s, one.decided_s, one.wrote_s, all_s, one.writes
