"""Requests that are opaque to placement, on a real cluster.

Two nodes under each switch: n1 and n2 with a100 GPUs, n3 and n4 with v100 GPUs. n1 and n3 are in
rack1 and have a local disk drive (nvme), n2 and n4 are in rack2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController, controller_of_one_test

pytestmark = pytest.mark.slurm

LUA = Path(__file__).parents[2] / "etc" / "job_submit.lua"
"""A new job with several chunks is delayed until the controller has seen it."""

TOPOLOGY = """\
SwitchName=left Nodes=n[1-2]
SwitchName=right Nodes=n[3-4]
SwitchName=root Switches=left,right
"""
NODES = (
    "NodeName=n1 Gres=gpu:a100:4,nvme:1 Feature=rack1",
    "NodeName=n2 Gres=gpu:a100:4 Feature=rack2",
    "NodeName=n3 Gres=gpu:v100:4,nvme:1 Feature=rack1",
    "NodeName=n4 Gres=gpu:v100:4,shard:8 Feature=rack2",
)
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "policy": {"thresholds_gpu_s": [8]},
    "preemption": {"min_run_s": 1},
    "controller": {"interval_s": 0.5},
    "constants": {"START_BOUND_S": 2, "RETRY_AFTER_S": 1},
}


@pytest.fixture(scope="module")
def racks() -> Iterator[RealCluster]:
    with short_folder() as folder:
        topology = folder / "topology.conf"
        topology.write_text(TOPOLOGY)
        lua = folder / "job_submit.lua"
        lua.write_text(LUA.read_text().replace("first_look_s = 15", "first_look_s = 5"))
        lines = (
            "GresTypes=gpu,nvme,shard",
            "NodeName=DEFAULT TmpDisk=20",
            "TopologyPlugin=topology/tree",
            "JobSubmitPlugins=lua",
            *NODES,
        )
        options = [word for line in lines for word in ("--slurm-conf-line", line)]
        types = "n1=a100,n2=a100,n3=v100,n4=v100"
        shards = ("--gres-conf-line", "NodeName=n4 Name=shard Count=8")
        conf = ("--conf-file", str(topology), "--conf-file", str(lua), *shards)
        with started_cluster(folder, "--gpu-type", types, *conf, *options) as cluster:
            yield cluster


@pytest.fixture
def controller(racks: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    with controller_of_one_test(racks, tmp_path, SETTINGS) as started:
        yield started


def shown(cluster: RealCluster, job: str, column: str) -> str:
    return cluster.run("squeue", "-h", "-t", "all", "-j", job, "-O", f"{column}:200").strip()


def nodes_of(cluster: RealCluster, job: str) -> str:
    return shown(cluster, job, "NodeList")


ANY_TWO = ["n[1-2]", "n[1,3]", "n[1,4]", "n[2-3]", "n[2,4]", "n[3-4]"]
ON_TWO_NODES: Mapping[str, tuple[str, list[str]]] = {
    "a second kind of GRES": ("--gres=gpu:1,nvme:1", ["n[1,3]"]),
    "local disk": ("--gres=gpu:1 --tmp=5", ANY_TWO),
    "one node of each rack": ("--gres=gpu:1 -C [rack1*1&rack2*1]", ["n[1-2]", "n[1,4]", "n[3-4]"]),
    "nodes of one rack": ("--gres=gpu:1 -C [rack1|rack2]", ["n[1,3]", "n[2,4]"]),
}
"""A request, and the nodes that suit it."""


@pytest.mark.parametrize("name", ON_TWO_NODES)
def test_slurm_chooses_the_nodes_of_an_opaque_job(
    racks: RealCluster, controller: RealController, name: str
) -> None:
    options, right = ON_TWO_NODES[name]
    job = racks.sbatch("-N2", "--mem=100", *options.split())
    racks.wait_for_state(job, "RUNNING")
    assert nodes_of(racks, job) in right
    assert shown(racks, job, "ReqNodes") == ""


def test_contiguous_jobs_get_adjacent_nodes(racks: RealCluster, controller: RealController) -> None:
    taken = racks.sbatch("--gres=gpu:4", "-w", "n2")
    racks.wait_for_state(taken, "RUNNING")
    job = racks.sbatch("-N3", "--gres=gpu:4", "--contiguous")
    controller.wait_until(lambda: controller.job(job), "it is seen")
    controller.cycles(4)
    assert shown(racks, job, "State") == "PENDING", "n1, n3 and n4 are not adjacent"
    racks.run("scancel", taken)
    racks.wait_for_state(job, "RUNNING")
    assert nodes_of(racks, job) in ("n[1-3]", "n[2-4]")


def test_no_job_is_preempted_twice_for_a_start_that_slurm_does_not_make(
    racks: RealCluster, controller: RealController
) -> None:
    """Long jobs fill the nodes. Freeing GPUs is not enough for the short ones: they also need two
    drives, one of which is taken."""
    keeper = racks.sbatch("--gres=nvme:1", "-w", "n3", "--mem=100")
    racks.wait_for_state(keeper, "RUNNING")
    long = [racks.sbatch("--gres=gpu:2", "--mem=100") for _ in range(8)]
    for job in long:
        racks.wait_for_state(job, "RUNNING")
        controller.wait_for_tier(job, 1)
    short = [racks.sbatch("--mem=100", "-N2", "--gres=gpu:2,nvme:1")]
    controller.wait_until(
        lambda: {job for job, _ in controller.events("backed-off")} >= set(short),
        "the start was tried in vain",
    )
    # Several times as long as it would back off.
    controller.cycles(20)
    pairs = Counter(controller.events("preempted"))
    assert pairs and max(pairs.values()) == 1, pairs
    racks.run("scancel", keeper)
    for job in long:
        racks.run("scancel", job)
    for job in short:
        racks.wait_for_state(job, "RUNNING")


def test_jobs_are_preempted_under_one_switch_for_a_job_that_wants_no_other(
    racks: RealCluster, controller: RealController
) -> None:
    """One node of each switch is kept, so two nodes under one switch never become free."""
    keepers = [racks.sbatch("--gres=gpu:4", "--no-requeue", "-w", node) for node in ("n1", "n3")]
    long = [racks.sbatch("--gres=gpu:4", "-w", node) for node in ("n2", "n4")]
    for job in (*keepers, *long):
        racks.wait_for_state(job, "RUNNING")
    for job in long:
        controller.wait_for_tier(job, 1)
    short = racks.sbatch("--mem=100", "-N2", "--gres=gpu:4", "--switches=1")
    controller.wait_for_reason(short, "protected")
    racks.run("scancel", keepers[0])
    racks.wait_for_state(short, "RUNNING")
    assert nodes_of(racks, short) == "n[1-2]"
    controller.wait_until(lambda: controller.events("preempted"), "the preemption is recorded")
    assert controller.events("preempted") == [(long[0], short)]


def test_a_job_that_would_miss_its_deadline_is_not_preempted(
    racks: RealCluster, controller: RealController
) -> None:
    """Slurm ends a waiting job for good if it can no longer use its whole time limit before
    that."""
    in_time = ("--time=1", "--deadline=now+70seconds", "--gres=gpu:4")
    long = [racks.sbatch(*in_time, "-w", f"n{n}", script="sleep 10") for n in range(1, 5)]
    for job in long:
        racks.wait_for_state(job, "RUNNING")
        controller.wait_for_tier(job, 1)
    short = racks.sbatch("--gres=gpu:1", "--mem=100")
    controller.wait_for_reason(short, "protected")
    seen = controller.job(short)
    assert seen is not None and {one.protection for one in seen.blockers} == {"deadline"}
    racks.wait_for_state(short, "RUNNING")
    for job in long:
        racks.wait_for_state(job, "COMPLETED")
    assert controller.events("preempted") == []


def test_a_job_of_shards_is_left_to_slurm(racks: RealCluster, controller: RealController) -> None:
    """Two shards are one GPU of n4. The job requests no whole GPU, so no job is preempted."""
    long = [racks.sbatch("--gres=gpu:4", "-w", f"n{n}", "--mem=100") for n in range(1, 5)]
    for job in long:
        racks.wait_for_state(job, "RUNNING")
        controller.wait_for_tier(job, 1)
    shards = racks.sbatch("--gres=shard:2", "--mem=100")
    controller.wait_for_reason(shards, "unmanaged")
    controller.cycles(8)
    assert shown(racks, shards, "State") == "PENDING"
    assert controller.events("preempted") == []
    racks.run("scancel", long[3])
    racks.wait_for_state(shards, "RUNNING")
    assert nodes_of(racks, shards) == "n4"
