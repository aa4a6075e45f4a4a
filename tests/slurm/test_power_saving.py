"""Nodes that come and go: cloud nodes that power saving boots, and dynamic nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
HALF_A_NODE = ("--gres=gpu:2", "--mem=100")

SUSPEND = """#!/bin/sh
for node in $(SLURM_CONF={conf} scontrol show hostnames "$1"); do
    kill "$(cat {run}/slurmd.$node.pid)"
done
"""
RESUME = """#!/bin/sh
[ -e {broken} ] && exit 0
for node in $(SLURM_CONF={conf} scontrol show hostnames "$1"); do
    mkdir -p {spool}/$node
    (sleep 3; exec slurmd -b -N "$node" -f {conf}) >/dev/null 2>&1 &
done
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def own_cluster(folder: Path) -> Iterator[RealCluster]:
    """Two nodes, the cloud node n3, and room for dynamic nodes."""
    place = folder / "c"
    for name, text in (("suspend", SUSPEND), ("resume", RESUME)):
        program = folder / name
        program.write_text(
            text.format(
                conf=place / "etc" / "slurm.conf",
                run=place / "run",
                spool=place / "spool",
                broken=folder / "broken",
            )
        )
        program.chmod(0o755)
    lines = (
        *("NodeName=n3 State=CLOUD", "PrivateData=cloud", "MaxNodeCount=8"),
        *(f"SuspendProgram={folder / 'suspend'}", f"ResumeProgram={folder / 'resume'}"),
        *("SuspendTime=100000", "SuspendTimeout=1", "ResumeTimeout=8"),
    )
    gpus = f"NodeName=d1 Name=gpu File={place}/gpu/gpu[0-3]"
    with started_cluster(
        *(folder, "--nodes", "3", f"--gres-conf-line={gpus}"),
        *(f"--slurm-conf-line={line}" for line in lines),
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(own_cluster: RealCluster, folder: Path) -> RealCluster:
    (folder / "broken").unlink(missing_ok=True)
    own_cluster.clean()
    own_cluster.run("scontrol", "update", "NodeName=n3", "State=POWER_DOWN")
    own_cluster.wait_until(lambda: state(own_cluster, "n3") == "idle~", "n3 is powered down")
    return own_cluster


@pytest.fixture
def controller(cluster: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    one = RealController(cluster, tmp_path, {"policy": {"thresholds_gpu_s": [4]}})
    yield one.start()
    if one.process is not None:
        one.kill()


def state(cluster: RealCluster, node: str) -> str:
    return cluster.run("sinfo", "-h", "-n", node, "-o", "%T").strip()


def wall(cluster: RealCluster, controller: RealController) -> Sequence[str]:
    """Two jobs in the lower tier on the two nodes that are up."""
    jobs = [cluster.sbatch(*WHOLE_NODE) for _ in range(2)]
    for job in jobs:
        controller.wait_for_tier(job, 1)
    return jobs


def test_a_cloud_node_is_booted_and_shared_before_any_job_is_preempted(
    cluster: RealCluster, controller: RealController
) -> None:
    wall(cluster, controller)
    first = cluster.sbatch(*HALF_A_NODE)
    cluster.wait_for_state(first, "CONFIGURING")
    second = cluster.sbatch(*HALF_A_NODE)
    for job in (first, second):
        cluster.wait_for_state(job, "RUNNING")
        assert cluster.squeue_field(job, "NodeList") == "n3"
    assert not controller.events("preempted")


def test_a_dynamic_node_is_used_once_it_is_created_and_missed_once_it_is_deleted(
    cluster: RealCluster, controller: RealController, folder: Path
) -> None:
    jobs = wall(cluster, controller)
    keeps = cluster.sbatch(*WHOLE_NODE)
    cluster.wait_for_state(keeps, "RUNNING")
    cluster.run(
        *("scontrol", "create", "NodeName=d1", "NodeHostname=localhost", "NodeAddr=127.0.0.1"),
        *("Port=30901", "CPUs=16", "RealMemory=8000", "Gres=gpu:4", "State=CLOUD"),
    )
    cluster.run("scontrol", "update", "PartitionName=gpu", "Nodes=n[1-3],d1")
    on_it = cluster.sbatch(*WHOLE_NODE)
    cluster.wait_until(lambda: cluster.squeue_field(on_it, "NodeList") == "d1", "it starts on d1")
    assert not controller.events("preempted")
    cluster.run("scancel", on_it)
    cluster.wait_until(
        lambda: "COMPLETING" not in cluster.run("scontrol", "-o", "show", "node", "d1"), "it left"
    )
    cluster.run("scontrol", "delete", "NodeName=d1")
    cluster.run("scontrol", "update", "PartitionName=gpu", "Nodes=n[1-3]")
    after = cluster.sbatch(*WHOLE_NODE)
    cluster.wait_for_state(after, "RUNNING")
    controller.wait_until(lambda: controller.events("preempted"), "the preemption is published")
    ((victim, preemptor),) = controller.events("preempted")
    assert victim in (*jobs, keeps)
    assert preemptor == after


def test_a_job_whose_cloud_node_does_not_boot_preempts_instead(
    cluster: RealCluster, controller: RealController, folder: Path
) -> None:
    """Slurm takes such a node out of service, and requeues its job, which has no service yet.

    22.05 may fail to launch it elsewhere at its first try (``set_nodes_alias failed: TBD``)."""
    jobs = wall(cluster, controller)
    (folder / "broken").touch()
    waits = cluster.sbatch(*WHOLE_NODE)
    cluster.wait_for_state(waits, "CONFIGURING")
    assert not controller.events("preempted")
    cluster.wait_until(lambda: state(cluster, "n3").startswith("down"), "n3 is given up")
    cluster.wait_for_state(waits, "PENDING")
    cluster.run("scontrol", "update", f"JobId={waits}", "StartTime=now+2")
    controller.wait_until(lambda: controller.events("preempted"), "a victim", 40)
    ((victim, preemptor),) = controller.events("preempted")
    assert victim in jobs
    assert preemptor == waits
    controller.wait_until(lambda: controller.runs(waits)[0].outcome, "accounting has the boot")
    controller.cycles(2)
    boot = controller.runs(waits)[0]
    assert (boot.outcome, boot.attained_gpu_s) == ("NODE_FAIL", 0.0)
