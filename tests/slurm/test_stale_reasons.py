"""Slurm's reasons for waiting jobs may be long out of date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
SELDOM = "SchedulerParameters=batch_sched_delay=1,sched_interval=600,bf_interval=600"


@pytest.fixture
def lazy_cluster() -> Iterator[RealCluster]:
    """Slurm tries waiting jobs only after events, as for jobs far down in a long queue."""
    lines = ("--slurm-conf-line", SELDOM, "--slurm-conf-line", "Licenses=solver:1")
    options = ("--nodes", "2", "--partition", "gpu", "other", "--no-accounting", *lines)
    with short_folder() as folder, started_cluster(folder, *options) as cluster:
        for partition, node in (("gpu", "n1"), ("other", "n2")):
            cluster.run("scontrol", "update", f"PartitionName={partition}", f"Nodes={node}")
        yield cluster


def test_no_job_is_preempted_for_an_old_reason(lazy_cluster: RealCluster, tmp_path: Path) -> None:
    cluster = lazy_cluster
    wall = cluster.sbatch(*WHOLE_NODE)
    cluster.wait_for_state(wall, "RUNNING")
    waits = cluster.sbatch(*WHOLE_NODE, "-L", "solver:1")
    cluster.wait_until(
        lambda: cluster.squeue_field(waits, "Reason") == "Resources", "it lacks nothing but room"
    )
    has_the_licence = cluster.sbatch("-p", "other", "-c1", "--mem=10", "-L", "solver:1")
    cluster.wait_for_state(has_the_licence, "RUNNING")
    assert cluster.squeue_field(waits, "Reason") == "Resources"
    settings: dict[str, dict[str, object]] = {
        "manage": {"partitions": ["gpu"]},
        "policy": {"thresholds_gpu_s": [1]},
    }
    controller = RealController(cluster, tmp_path, settings)
    try:
        controller.start()
        controller.wait_for_tier(wall, 1)
        controller.wait_for_reason(waits, "slurm-waits")
        assert cluster.squeue_field(wall, "RestartCnt") == "0"
        assert not controller.events("preempted")
    finally:
        controller.kill()
