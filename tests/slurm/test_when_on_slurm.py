"""Forecasts of starts on a real cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import CONSTANTS, RealController
from slurm_tiresias.core.features.recurring import ENOUGH

pytestmark = pytest.mark.slurm

ALL_GPUS = ("--nodes=4", "--gpus-per-node=4", "--mem=100", "--time=1")
ONE_GPU = ("--gres=gpu:1", "--mem=100", "--time=1")


@pytest.fixture
def controller(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    """A controller that preempts no job."""
    settings: dict[str, dict[str, object]] = {
        "preemption": {"min_run_s": 600},
        CONSTANTS: {"PICTURE_EVERY_S": 1.0},
    }
    made = RealController(clean_cluster, tmp_path, settings)
    yield made.start()
    made.stop()


def test_jobs_start_in_their_ranges(clean_cluster: RealCluster, controller: RealController) -> None:
    done = [clean_cluster.sbatch(*ONE_GPU, script="sleep 1") for _ in range(ENOUGH + 2)]
    for job_id in done:
        clean_cluster.wait_for_state(job_id, "COMPLETED")
    runs = clean_cluster.sbatch(*ALL_GPUS, script="sleep 20")
    clean_cluster.wait_for_state(runs, "RUNNING")
    waits = clean_cluster.sbatch(*ALL_GPUS, script="sleep 20")
    controller.wait_until(
        lambda: (
            (job := controller.job(waits)) is not None
            and job.start is not None
            and job.start.most_s is not None
        ),
        "its start is forecast",
    )
    job = controller.job(waits)
    assert job and job.start and job.start.least_s and job.start.most_s
    explained = " ".join(controller.cli("explain", waits).stdout.split())
    assert re.search(r"Starts in .+ \(.+ to .+, nine times out of ten\)\.", explained)

    told = controller.cli("when", "--json", "--", "-G", "16", "-t", "10", "-J", "train")
    assert told.returncode == 0, told.stderr
    variants = json.loads(told.stdout)["variants"]
    assert [each["what"] for each in variants][:2] == ["as-it-is", "gpus"]
    assert variants[0]["start"]["likely_s"] is not None
    assert len(controller.state().jobs) == 2

    clean_cluster.wait_for_state(waits, "RUNNING")
    controller.wait_until(
        lambda: (job := controller.job(waits)) is not None and job.running_since_s is not None,
        "its start is seen",
    )
    started = controller.job(waits)
    assert started and started.running_since_s
    # Slurm's times are whole seconds.
    assert job.start.least_s - 1 <= started.running_since_s <= job.start.most_s + 1
