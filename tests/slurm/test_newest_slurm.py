"""What only the newest releases of Slurm have: expedited requeue, and hierarchical resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scripts.testbed.cluster.configuration import slurm_version
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController, controller_of_one_test

pytestmark = pytest.mark.slurm

SETTINGS: Mapping[str, Mapping[str, object]] = {"policy": {"thresholds_gpu_s": [4]}}
RESOURCES = """\
- resource: power
  mode: MODE_2
  layers:
    - nodes: ["n[1-2]"]
      count: 3
    - nodes: ["n1"]
      count: 2
    - nodes: ["n2"]
      count: 2
"""


@pytest.fixture(scope="module")
def newest() -> Iterator[RealCluster]:
    if slurm_version() < (25, 11):
        pytest.skip("this release has neither expedited requeue nor hierarchical resources")
    with short_folder() as folder:
        resources, epilog = folder / "resources.yaml", folder / "epilog"
        resources.write_text(RESOURCES)
        # It fails once after a job has broken a node.
        epilog.write_text(f"#!/bin/sh\n! rm {folder}/broken 2>/dev/null\n")
        epilog.chmod(0o755)
        options = (
            *("--nodes", "2", "--conf-file", str(resources)),
            *("--slurm-conf-line", f"Epilog={epilog}"),
            *("--slurm-conf-line", "SlurmctldParameters=enable_expedited_requeue"),
        )
        with started_cluster(folder, *options) as cluster:
            yield cluster


@pytest.fixture
def controller(newest: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    with controller_of_one_test(newest, tmp_path, SETTINGS) as started:
        yield started


@pytest.mark.parametrize("asked", [("-wn1", "-Lpower:1"), ("-Lpower:2",)], ids=["node", "all"])
def test_no_job_is_preempted_for_one_that_lacks_a_hierarchical_resource(
    newest: RealCluster, controller: RealController, asked: tuple[str, ...]
) -> None:
    """n1 has idle GPUs, but no power left, and all nodes together have one unit of it."""
    takes_power = newest.sbatch("-wn1", "--gres=gpu:1", "-Lpower:2")
    wall = newest.sbatch("-wn2", "--gres=gpu:4")
    for job in (takes_power, wall):
        newest.wait_for_state(job, "RUNNING")
    controller.wait_for_tier(wall, 1)
    waits = newest.sbatch("--gres=gpu:1", *asked)
    controller.wait_for_reason(waits, "slurm-waits")
    controller.cycles(3)
    assert not controller.events("preempted")
    newest.run("scancel", takes_power)
    newest.wait_for_state(waits, "RUNNING")
    assert not controller.faults()


def test_an_expedited_job_is_restarted_before_all_others_and_counted_as_restarted(
    newest: RealCluster, controller: RealController, tmp_path: Path
) -> None:
    first, broken = tmp_path / "first", newest.folder.parent / "broken"
    once = f"test -e {first} && exec sleep 600; touch {first} {broken}; exit 1"
    fails = newest.sbatch("-wn1", "--gres=gpu:4", "--requeue=expedite", script=once)
    wall = newest.sbatch("-wn2", "--gres=gpu:4")
    newest.wait_for_state(wall, "RUNNING")
    newest.wait_until(lambda: newest.squeue_field(fails, "RestartCnt") == "1", "it was requeued")
    others = [newest.sbatch("-wn1", "--gres=gpu:4") for _ in range(2)]
    newest.wait_until(lambda: "drain" in newest.run("sinfo", "-hnn1", "-o", "%T"), "n1 is drained")
    controller.wait_until(lambda: controller.job(others[1]), "they wait")
    newest.run("scontrol", "update", "NodeName=n1", "State=RESUME")
    newest.wait_for_state(fails, "RUNNING")
    assert all(newest.squeue_field(job, "State") == "PENDING" for job in others)
    controller.wait_until(lambda: len(controller.runs(fails)) == 2, "both runs are known")
    shown = controller.job(fails)
    assert shown and shown.restarts == 1 and shown.preemptions == 0
    assert not controller.faults()
