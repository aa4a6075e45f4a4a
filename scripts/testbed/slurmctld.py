"""Measure the CPU time of a cluster's slurmctld, and submit many jobs to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from scripts.testbed.real_cluster import RealCluster

SUBMITTERS = 4


def pid_of(cluster: RealCluster) -> int:
    return int((cluster.folder / "run" / "slurmctld.pid").read_text())


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far; the kernel counts in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def submit_many(jobs: int, submit: Callable[[int], object]) -> None:
    """Submit jobs, several at a time; ``submit`` gets the number of the job, from 0."""

    def one(number: int) -> None:
        submit(number)
        if number % 1000 == 999:
            click.echo(f"{number + 1:,} of {jobs:,} jobs submitted", err=True)

    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(one, range(jobs)))
