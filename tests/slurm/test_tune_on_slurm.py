"""The cells of a sweep as jobs of a real cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster
from tests.cli.running import COMMAND, ROOT

pytestmark = pytest.mark.slurm

TUNE = ("tune", "--workload", "philly-like:60", "--cluster", "2x4", "--json")
CANDIDATES = 20
"""The number of settings compared for this workload, one job each."""

ALL = CANDIDATES + 5
"""Plus half of the jobs reporting, all of them reporting, no history, and two baselines."""

Sweep = subprocess.Popen[str]


@pytest.fixture
def start(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[Callable[..., Sweep]]:
    """Start ``tune`` where sbatch finds the cluster."""
    started: list[Sweep] = []

    def starting(*arguments: str) -> Sweep:
        process = subprocess.Popen(
            [*COMMAND, *TUNE, *arguments],
            cwd=ROOT,
            env={**os.environ, **clean_cluster.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield starting
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def jobs_dir(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def waiting(clean_cluster: RealCluster) -> Iterator[RealCluster]:
    """A cluster whose partition accepts jobs and starts none."""
    clean_cluster.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    yield clean_cluster
    clean_cluster.run("scontrol", "update", "PartitionName=gpu", "State=UP")


def printed(process: Sweep) -> str:
    output, complaints = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, complaints) == (0, "")
    return output


def queued(cluster: RealCluster, states: str = "all") -> list[str]:
    """Return the tasks of sweeps that are in the queue."""
    answer = cluster.run("squeue", "-h", "-r", "-n", "tiresias-tune", "-t", states, "-o", "%i %T")
    over = ("COMPLETED", "CANCELLED", "FAILED")
    return [line.split()[0] for line in answer.splitlines() if line.split()[1] not in over]


def test_results_equal_those_on_this_machine(start: Callable[..., Sweep], jobs_dir: Path) -> None:
    there = printed(start("--on-slurm", "--jobs-dir", str(jobs_dir), "--slurm-partition", "gpu"))
    assert there == printed(start())
    assert len(json.loads(there)["evidence"]) == CANDIDATES
    assert list(jobs_dir.iterdir()) == []


@pytest.mark.long
def test_a_job_that_is_requeued_runs_its_cell_again(
    start: Callable[..., Sweep], clean_cluster: RealCluster, jobs_dir: Path
) -> None:
    sweep = start("--on-slurm", "--jobs-dir", str(jobs_dir))
    task = clean_cluster.wait_until(lambda: queued(clean_cluster, "R"), "a cell runs")[-1]
    clean_cluster.run("scontrol", "requeue", task)
    clean_cluster.wait_for_state(task, "PENDING")
    # Otherwise Slurm lets a requeued job wait two minutes.
    clean_cluster.run("scontrol", "update", f"JobId={task}", "StartTime=now+2")
    assert printed(sweep) == printed(start())


@pytest.mark.long
def test_a_job_that_is_cancelled_is_reported_with_its_log_and_the_others_go_on(
    start: Callable[..., Sweep], waiting: RealCluster, jobs_dir: Path
) -> None:
    sweep = start("--on-slurm", "--jobs-dir", str(jobs_dir))
    tasks = waiting.wait_until(lambda: queued(waiting), "the sweep is queued")
    assert len(tasks) == ALL
    cancelled = next(task for task in tasks if task.endswith("_5"))
    waiting.run("scancel", cancelled)
    waiting.run("scontrol", "update", "PartitionName=gpu", "State=UP")
    answer: dict[str, Any] = json.loads(printed(sweep))
    (failed,) = answer["failed"]
    (folder,) = jobs_dir.iterdir()
    assert cancelled in failed["why"] and str(folder) in failed["why"]
    assert len(answer["evidence"]) == CANDIDATES - 1


def test_ctrl_c_cancels_the_jobs(
    start: Callable[..., Sweep], waiting: RealCluster, jobs_dir: Path
) -> None:
    sweep = start("--on-slurm", "--jobs-dir", str(jobs_dir))
    waiting.wait_until(lambda: len(queued(waiting)) == ALL, "the sweep is queued")
    sweep.send_signal(signal.SIGINT)
    output, complaints = sweep.communicate(timeout=PATIENCE_S)
    assert (sweep.returncode, output, complaints.strip()) == (130, "", "")
    waiting.wait_until(lambda: not queued(waiting), "no job of the sweep is left")
    assert list(jobs_dir.iterdir()) == []


def test_a_refusal_by_sbatch_is_one_clear_line(start: Callable[..., Sweep], jobs_dir: Path) -> None:
    sweep = start("--on-slurm", "--jobs-dir", str(jobs_dir), "--slurm-partition", "nowhere")
    output, complaints = sweep.communicate(timeout=PATIENCE_S)
    assert (sweep.returncode, output) == (1, "")
    assert complaints.count("\n") == 1 and "invalid partition" in complaints.lower()
    assert list(jobs_dir.iterdir()) == []
