"""Estimates by history on a real cluster: long runs under a name make later ones rank as long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController

pytestmark = pytest.mark.slurm

ALL_GPUS = ("-N4", "--gres=gpu:4", "--mem=100")
TWO_GPUS = ("--gres=gpu:2", "--mem=100")
THRESHOLD_GPU_S = 40
LONG = "sleep 4"
"""Service above the threshold on 16 GPUs, and far below it on 2."""


@pytest.fixture
def controller(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    settings: dict[str, dict[str, object]] = {
        "policy": {"estimates": ["history"], "thresholds_gpu_s": [THRESHOLD_GPU_S]},
        "preemption": {"min_run_s": 0.5},
    }
    started = RealController(clean_cluster, tmp_path, settings)
    yield started.start()
    if started.process is not None:
        started.kill()


def run_once(controller: RealController, name: str, *options: str, script: str) -> None:
    job = controller.cluster.sbatch(*options, "-J", name, script=script)
    controller.cluster.wait_for_state(job, "COMPLETED")
    controller.cycles(1)  # to observe the end


def test_a_job_expected_to_run_long_is_in_a_lower_tier_from_its_first_second(
    controller: RealController,
) -> None:
    run_once(controller, "train", *ALL_GPUS, script=LONG)
    run_once(controller, "probe", *TWO_GPUS, script="true")
    # Ended jobs are learned from when a controller starts, and every few minutes.
    controller.stop()
    controller.start()
    cluster = controller.cluster
    train = cluster.sbatch(*ALL_GPUS, "-J", "train")
    cluster.wait_for_state(train, "RUNNING")
    controller.wait_for_tier(train, 1)
    probe = cluster.sbatch(*TWO_GPUS, "-J", "probe", script="sleep 1")
    cluster.wait_for_state(probe, "COMPLETED")
    controller.wait_until(
        lambda: (train, probe) in controller.events("preempted"), "the preemption is recorded"
    )
    cluster.wait_for_state(train, "RUNNING")
    assert (train, "") not in controller.events("demoted"), "it began there"
