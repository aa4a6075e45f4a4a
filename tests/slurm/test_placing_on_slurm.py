"""Where jobs really run: consolidated or spread according to their profiles, with plain sbatch
options.

A separate cluster with etc/job_submit.lua, which delays a job until the controller has seen it.
"""

from __future__ import annotations

import getpass
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from scripts.testbed.models import tensor_sizes
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.slurm.notation import node_names

pytestmark = pytest.mark.slurm

LUA = Path(__file__).parents[2] / "etc" / "job_submit.lua"
FIRST_LOOK_S = 5

EIGHT_GPUS = ("-n8", "--gpus=8", "--mem-per-cpu=10")
TOPOLOGY = """\
SwitchName=left Nodes=n[1-3]
SwitchName=right Nodes=n[4-6]
SwitchName=top Switches=left,right
"""

MODELS = {"skewed": "vgg16", "even": "resnet50"}
"""The name of a job, and the model whose tensors its earlier runs were seen to send."""


@pytest.fixture(scope="module")
def six_nodes() -> Iterator[RealCluster]:
    with short_folder() as folder:
        lua = folder / "job_submit.lua"
        lua.write_text(
            LUA.read_text()
            .replace("first_look_s = 15", f"first_look_s = {FIRST_LOOK_S}")
            .replace("/run/slurm-tiresias-controller", str(folder / "controller"))
        )
        topology = folder / "topology.conf"
        topology.write_text(TOPOLOGY)
        options = (
            *("--nodes", "6", "--gpus", "4", "--partition", "gpu", "other", "--no-accounting"),
            *("--slurm-conf-line", "JobSubmitPlugins=lua", "--conf-file", str(lua)),
            *("--slurm-conf-line", "TopologyPlugin=topology/tree", "--conf-file", str(topology)),
        )
        with started_cluster(folder, *options) as cluster:
            yield cluster


@pytest.fixture
def cluster(six_nodes: RealCluster) -> RealCluster:
    six_nodes.clean()
    return six_nodes


@pytest.fixture
def controller(cluster: RealCluster) -> Iterator[RealController]:
    """The next regular cycle is ten minutes away: anything sooner is due to a nudge."""
    folder = cluster.folder.parent / "controller"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    settings: dict[str, dict[str, object]] = {
        "policy": {"thresholds_gpu_s": [100000]},
        "controller": {"interval_s": 600},
    }
    one = RealController(cluster, folder, settings)
    profiles = folder / "profiles.json"
    profiles.write_text(json.dumps({"schema": 1, "profiles": [_profile(n) for n in MODELS]}))
    imported = one.start().cli("profile", "import", str(profiles))
    assert imported.returncode == 0, imported.stderr
    yield one
    one.end()


def _profile(name: str) -> dict[str, object]:
    sizes = list(tensor_sizes(MODELS[name]))
    return {
        "kind": "job",
        "name": name,
        "user": getpass.getuser(),
        "largest_bytes": max(sizes),
        "total_bytes": sum(sizes),
        "pieces": len(sizes),
        "source": "traffic",
    }


def fragment(cluster: RealCluster, nodes: Sequence[str]) -> None:
    """Two GPUs of each of these nodes are taken."""
    for node in nodes:
        held = cluster.sbatch("-w", node, "--gres=gpu:2", "--mem=10")
        cluster.wait_for_state(held, "RUNNING")


def nodes_of(cluster: RealCluster, job: str) -> list[str]:
    cluster.wait_for_state(job, "RUNNING")
    return sorted(node_names(cluster.squeue_field(job, "NodeList")))


def placement(controller: RealController, job: str) -> str:
    controller.wait_until(lambda: controller.job(job), f"{job} is seen")
    lines = controller.cli("explain", job).stdout.splitlines()
    return next(line.strip() for line in lines if "Placement: " in line)


@pytest.mark.parametrize("order", [("skewed", "even"), ("even", "skewed")])
def test_a_skewed_job_gets_whole_nodes_and_an_unskewed_job_the_fragments(
    cluster: RealCluster, controller: RealController, order: Sequence[str]
) -> None:
    fragment(cluster, ("n1", "n2", "n3", "n4"))
    jobs = {name: cluster.sbatch("-J", name, *EIGHT_GPUS) for name in order}
    assert nodes_of(cluster, jobs["skewed"]) == ["n5", "n6"]
    assert nodes_of(cluster, jobs["even"]) == ["n1", "n2", "n3", "n4"]
    assert placement(controller, jobs["skewed"]).startswith(
        "Placement: consolidated: largest message 74 % of jobs named skewed"
    )
    assert placement(controller, jobs["even"]).startswith(
        "Placement: spread: largest message 9 % of jobs named even"
    )


def test_a_job_that_is_consolidated_stays_under_one_switch(
    cluster: RealCluster, controller: RealController
) -> None:
    """Two whole nodes of the left switch are free, and three of the right one."""
    fragment(cluster, ("n1",))
    job = cluster.sbatch("-J", "skewed", *EIGHT_GPUS)
    assert nodes_of(cluster, job) == ["n2", "n3"]
    other = cluster.sbatch("-J", "skewed", "-n7", "--gpus=7", "--mem-per-cpu=10")
    assert set(nodes_of(cluster, other)) < {"n4", "n5", "n6"}


def test_a_users_begin_time_is_kept(cluster: RealCluster, controller: RealController) -> None:
    begin_s = int(time.time()) + 5
    later = cluster.sbatch(f"--begin=now+{5}", *EIGHT_GPUS)
    assert cluster.squeue_field(later, "admin_comment") == "(null)"
    cluster.wait_for_state(later, "RUNNING")
    assert time.time() >= begin_s - 1


def test_without_a_controller_a_job_starts_after_the_first_look(cluster: RealCluster) -> None:
    submitted_s = time.time()
    job = cluster.sbatch(*EIGHT_GPUS)
    one = cluster.sbatch("--gpus=1", "--mem=10")
    cluster.wait_for_state(one, "RUNNING")
    assert cluster.squeue_field(job, "State") == "PENDING"
    cluster.wait_for_state(job, "RUNNING")
    assert time.time() - submitted_s >= FIRST_LOOK_S - 1
