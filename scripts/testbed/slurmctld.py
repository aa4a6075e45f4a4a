"""Measure what a cluster's slurmctld and other processes use, and submit many jobs to it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from scripts.testbed.real_cluster import RealCluster

SUBMITTERS = 4


def cpu_s(cluster: RealCluster) -> float:
    """Return the CPU time of slurmctld so far; the kernel counts in hundredths of a second."""
    return cpu_s_of(int((cluster.folder / "run" / "slurmctld.pid").read_text()))


def cpu_s_of(pid: int, *, with_ended_children: bool = False) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    counted = fields[11 : 15 if with_ended_children else 13]
    return sum(map(int, counted)) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int, which: str) -> float:
    """Return a process's memory by this name in its ``status``, as VmRSS."""
    found = re.search(rf"{which}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None, "a process that runs has memory"
    return int(found[1]) / 1e3


def requests(cluster: RealCluster) -> dict[str, tuple[int, float]]:
    """Return how many requests slurmctld got since ``sdiag --reset``, by kind, and the mean time of
    an answer in seconds."""
    found = re.findall(
        r"(REQUEST_\w+)\s*\(\s*\d+\)\s*count:(\d+)\s+ave_time:(\d+)", cluster.run("sdiag")
    )
    return {name: (int(count), int(mean_us) / 1e6) for name, count, mean_us in found}


def submit_many(jobs: int, submit: Callable[[int], object]) -> None:
    """Submit jobs, several at a time; ``submit`` gets the number of the job, from 0."""

    def one(number: int) -> None:
        submit(number)
        if number % 1000 == 999:
            click.echo(f"{number + 1:,} of {jobs:,} jobs submitted", err=True)

    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(one, range(jobs)))
