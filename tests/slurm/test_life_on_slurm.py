"""A job's life as its user is told it, on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import RealCluster
from tests.slurm.controller import QUICK, RealController

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("-N1", "--gres=gpu:4", "--mem=100")


@pytest.fixture
def controller(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    started = RealController(clean_cluster, tmp_path, QUICK)
    yield started.start()
    if started.process is not None:
        started.kill()


def test_a_preempted_job_is_told_by_whom_and_how_each_run_ended(
    controller: RealController,
) -> None:
    cluster = controller.cluster
    wall = [cluster.sbatch(*WHOLE_NODE, "-J", "wall") for _ in range(4)]
    for job in wall:
        cluster.wait_for_state(job, "RUNNING")
        controller.wait_for_tier(job, 1)
    short = cluster.sbatch("--gres=gpu:1", "--mem=100", "-J", "short", script="true")
    cluster.wait_for_state(short, "COMPLETED")
    controller.wait_until(lambda: controller.events("preempted"), "the preemption is told")
    victim, by = controller.events("preempted")[0]
    assert by == short
    cluster.wait_for_state(victim, "RUNNING")
    controller.wait_until(lambda: len(runs_of(controller, victim)) == 2, "its second run is seen")
    first, second = runs_of(controller, victim)
    assert first["ended"] == f"preempted by {short}"
    assert second["ended"] == ""
    assert second["waited_s"] == pytest.approx(second["start_s"] - first["end_s"])
    cluster.run("scancel", victim)
    cluster.wait_for_state(victim, "CANCELLED")
    controller.wait_until(lambda: "cancelled" in told(controller, victim), "its end is told")
    controller.stop()
    assert f"preempted by {short}" in told(controller, victim), "from the ledger alone"


def told(controller: RealController, job: str) -> str:
    answer = controller.cli("history", job)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def runs_of(controller: RealController, job: str) -> list[dict[str, Any]]:
    answer = controller.cli("history", job, "--json")
    runs: list[dict[str, Any]] = json.loads(answer.stdout)["runs"]
    return runs
