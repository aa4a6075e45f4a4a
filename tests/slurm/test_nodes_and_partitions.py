"""Nodes that power saving has powered down, and partitions that refuse a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.slurm.notation import node_names

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
DOWN_FOR_S = 3
"""How long a node takes to boot."""

SUSPEND = """#!/bin/sh
for node in $({bin}scontrol show hostnames "$1"); do
    kill "$(cat {run}/slurmd.$node.pid)"
done
"""
RESUME = """#!/bin/sh
for node in $({bin}scontrol show hostnames "$1"); do
    (sleep {seconds}; exec slurmd -b -N "$node" -f {conf}) >/dev/null 2>&1 &
done
"""


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[RealCluster]:
    with short_folder() as folder:
        suspend, resume = folder / "suspend", folder / "resume"
        run, conf = folder / "c" / "run", folder / "c" / "etc" / "slurm.conf"
        scontrol = f"SLURM_CONF={conf} "
        suspend.write_text(SUSPEND.format(bin=scontrol, run=run))
        resume.write_text(RESUME.format(bin=scontrol, seconds=DOWN_FOR_S, conf=conf))
        lines = {
            "SuspendProgram": suspend,
            "ResumeProgram": resume,
            "SuspendTime": 100_000,
            "SuspendTimeout": 1,
            "ResumeTimeout": 60,
        }
        for program in (suspend, resume):
            program.chmod(0o755)
        options = (f"--slurm-conf-line={key}={value}" for key, value in lines.items())
        shape = ("--nodes", "3", "--partition", "gpu", "other", "urgent")
        with started_cluster(folder, *shape, *options) as cluster:
            yield cluster


@pytest.fixture
def cluster(own_cluster: RealCluster) -> Iterator[RealCluster]:
    own_cluster.clean()
    yield own_cluster
    for partition in ("gpu", "other", "urgent"):
        change(
            *(own_cluster, partition, "Nodes=n[1-3]", "State=UP", "PriorityTier=1"),
            *("MaxTime=INFINITE", "MaxNodes=UNLIMITED", "MaxCPUsPerNode=UNLIMITED"),
        )


@pytest.fixture
def controller(cluster: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    settings: dict[str, dict[str, object]] = {
        "manage": {"partitions": ["gpu", "other"]},
        "policy": {"thresholds_gpu_s": [4]},
    }
    one = RealController(cluster, tmp_path, settings)
    yield one
    one.end()


def change(cluster: RealCluster, partition: str, *changes: str) -> None:
    cluster.run("scontrol", "update", f"PartitionName={partition}", *changes)


def fill(cluster: RealCluster, controller: RealController, *options: str) -> list[str]:
    """Three jobs in the lower tier that hold all GPUs."""
    wall = [cluster.sbatch(*WHOLE_NODE, *options) for _ in range(3)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    return wall


def victims_for(controller: RealController, job: str) -> list[str]:
    """Return the preempted jobs, after checking that all were preempted for this one."""
    controller.wait_until(lambda: controller.events("preempted"), f"a victim for {job}")
    assert {preemptor for _, preemptor in controller.events("preempted")} == {job}
    return [victim for victim, _ in controller.events("preempted")]


def node_state(cluster: RealCluster, node: str) -> str:
    return cluster.run("sinfo", "-h", "-n", node, "-p", "gpu", "-o", "%T").strip()


def test_a_job_starts_on_a_node_that_is_powered_down_and_none_is_preempted_for_it(
    cluster: RealCluster, controller: RealController
) -> None:
    cluster.run("scontrol", "update", "NodeName=n3", "State=POWER_DOWN")
    cluster.wait_until(lambda: node_state(cluster, "n3") == "idle~", "n3 is powered down")
    controller.start()
    wall = [cluster.sbatch(*WHOLE_NODE) for _ in range(2)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    boots = cluster.sbatch("-n4", "--gpus=4", "--mem-per-cpu=10")
    cluster.wait_for_state(boots, "CONFIGURING")
    cluster.wait_until(lambda: node_state(cluster, "n3") == "mixed", "n3 is up again")
    cluster.wait_for_state(boots, "RUNNING")
    controller.wait_for_tier(boots, 1)
    assert not controller.events("preempted")
    # Slurm counts from the time when the node was up.
    cluster.run("scancel", boots)
    cluster.wait_for_state(boots, "CANCELLED")
    controller.wait_until(
        lambda: all(run.confirmed for run in controller.runs(boots)), "it has ended"
    )
    ((start_s, elapsed_s),) = cluster.sacct_rows([boots], "start,elapsedraw")[boots]
    found = [(run.start_s, run.elapsed_s) for run in controller.runs(boots)]
    assert found == [(float(start_s), float(elapsed_s))]


def test_jobs_below_a_higher_tier_preempt(cluster: RealCluster, controller: RealController) -> None:
    """A waiting job there gets the freed GPUs, and backfill starts no job that delays it."""
    change(cluster, "urgent", "PriorityTier=10")
    controller.start()
    fill(cluster, controller, "-t", "60")
    small = cluster.sbatch(*WHOLE_NODE, "-p", "urgent", "-t", "5")
    cluster.wait_until(lambda: cluster.squeue_field(small, "Reason") == "Resources", "it waits")
    short = cluster.sbatch(*WHOLE_NODE, "-t", "10")
    controller.wait_for_reason(short, "reserved")
    assert "PriorityTier" in controller.cli("explain", short).stdout
    large = cluster.sbatch(*WHOLE_NODE, "-N3", "-p", "urgent", "-t", "5")
    long = cluster.sbatch(*WHOLE_NODE, "-t", "120")
    cluster.run("scancel", small)
    cluster.wait_for_state(short, "RUNNING")
    victims_for(controller, short)
    controller.wait_for_reason(long, "reserved")
    assert cluster.squeue_field(large, "State") == "PENDING"


def test_jobs_of_a_higher_partition_tier_on_other_nodes_block_no_job(
    cluster: RealCluster, controller: RealController
) -> None:
    change(cluster, "urgent", "PriorityTier=10", "Nodes=n[1-2]")
    controller.start()
    fill(cluster, controller)
    large = cluster.sbatch(*WHOLE_NODE, "-N2", "-p", "urgent")
    cluster.wait_until(lambda: cluster.squeue_field(large, "Reason") == "Resources", "it waits")
    waits = cluster.sbatch(*WHOLE_NODE)
    cluster.wait_for_state(waits, "RUNNING")
    (victim,) = victims_for(controller, waits)
    assert cluster.squeue_field(waits, "NodeList") == "n3"
    assert cluster.squeue_field(victim, "State") == "PENDING"


@contextmanager
def without_node(cluster: RealCluster, node: str) -> Iterator[Callable[[], None]]:
    """Remove a node from slurm.conf; yield a function that restarts slurmctld."""
    conf = cluster.folder / "etc" / "slurm.conf"
    whole = conf.read_text()
    left = ",".join(name for name in ("n1", "n2", "n3") if name != node)
    lines = [line for line in whole.splitlines() if not line.startswith(f"NodeName={node} ")]

    def restart() -> None:
        cluster.kill("slurmctld", signal="TERM")
        cluster.start("slurmctld")

    conf.write_text("\n".join(lines).replace("Nodes=n[1-3]", f"Nodes={left}") + "\n")
    try:
        yield restart
    finally:
        conf.write_text(whole)
        restart()


def test_jobs_about_to_start_survive_the_removal_of_a_node_from_slurm_conf(
    cluster: RealCluster, controller: RealController
) -> None:
    """slurmctld ends a job whose node list names an unknown node. So no list names the node once
    the file does not."""
    slow = {"preemption": {"checkpoint": "USR1@600"}}
    controller.settings = {**controller.settings, **slow}
    controller.start()
    ignore = "trap '' USR1; sleep 600"
    wall = [cluster.sbatch(*WHOLE_NODE, script=ignore) for _ in range(3)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    waits = [cluster.sbatch(*WHOLE_NODE), cluster.sbatch("-N2", *WHOLE_NODE)]

    def named(job: str) -> tuple[str, ...]:
        return node_names(cluster.squeue_field(job, "ReqNodes"))

    cluster.wait_until(lambda: all(map(named, waits)), "nodes are named for both")
    node = named(waits[1])[0]
    with without_node(cluster, node) as restart:
        cluster.wait_until(lambda: node not in named(waits[1]), "another node is named")
        restart()
        assert [cluster.squeue_field(job, "State") for job in waits] == ["PENDING"] * 2
        controller.cycles(1)
        assert not any(node in named(job) for job in waits)


def test_a_full_magnetic_reservation_does_not_keep_its_users_jobs_from_other_nodes(
    cluster: RealCluster, controller: RealController
) -> None:
    user = cluster.run("id", "-un").strip()
    cluster.run(
        *("scontrol", "create", "reservation", "ReservationName=pull", "Flags=MAGNETIC"),
        *("Nodes=n1", f"Users={user}", "StartTime=now", "Duration=60"),
    )
    try:
        inside = cluster.sbatch(*WHOLE_NODE)
        cluster.wait_for_state(inside, "RUNNING")
        assert cluster.squeue_field(inside, "Reservation") == "pull"
        controller.start()
        wall = [cluster.sbatch(*WHOLE_NODE) for _ in range(2)]
        for job in wall:
            controller.wait_for_tier(job, 1)
        waits = cluster.sbatch(*WHOLE_NODE)
        cluster.wait_for_state(waits, "RUNNING")
        assert len(victims_for(controller, waits)) == 1
    finally:
        cluster.run("scancel", "--me")
        cluster.wait_until(lambda: not cluster.run("squeue", "-h"), "no job is left in it")
        cluster.run("scontrol", "delete", "ReservationName=pull")
