"""Two real training-like jobs, run twice: the second time they are placed by the traffic of the
first.

Needs PyTorch: ``scripts/venv test torch`` (any build; no GPU). The jobs name no model: the plugin
counts the messages between their processes, and the controller learns the skew from that.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.models import tensor_sizes
from scripts.testbed.real_cluster import short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.slurm.notation import node_names
from tests.spank.plugin import LUA, PluginCluster

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="no PyTorch: scripts/venv test torch"
    ),
]

TABLE_6 = {"vgg16": 0.743, "resnet50": 0.092}
"""Largest tensor over model size (paper page 500)."""

NAMES = {"vgg16": "one", "resnet50": "two"}
"""The names of the jobs, which give no hint of their models."""

EXCHANGE = """
import os, sys, torch, torch.distributed as dist
rank = int(os.environ["SLURM_PROCID"])
dist.init_process_group("gloo", init_method=sys.argv[1], rank=rank, world_size=2)
tensors = [torch.ones(int(size) // 4) for size in sys.argv[2:]]
for _ in range(3):
    for tensor in tensors:
        dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def three_nodes(build: Path) -> Iterator[PluginCluster]:
    with short_folder() as folder:
        lua = folder / "job_submit.lua"
        nudges = str(folder / "controller")
        lua.write_text(LUA.read_text().replace("/run/slurm-tiresias-controller", nudges))
        plugstack = folder / "plugstack.conf"
        plugstack.write_text(f"optional {build}/spank_tiresias.so\n")
        options = (
            *("--nodes", "3", "--gpus", "4", "--partition", "gpu", "--no-accounting"),
            *("--slurm-conf-line", "JobSubmitPlugins=lua"),
            *("--conf-file", str(lua), "--conf-file", str(plugstack)),
        )
        with started_cluster(folder, *options) as cluster:
            plugin = PluginCluster(cluster, folder, build)
            plugin.reset()
            plugin.set_up("profile=unknown")
            yield plugin


@pytest.fixture
def controller(three_nodes: PluginCluster) -> Iterator[RealController]:
    folder = three_nodes.folder / "controller"
    folder.mkdir()
    settings: dict[str, dict[str, object]] = {
        "policy": {"thresholds_gpu_s": [100000]},
        "profiler": {"collect_dir": str(three_nodes.collect_folder)},
    }
    one = RealController(three_nodes.cluster, folder, settings)
    yield one.start()
    one.end()


def submit(plugin: PluginCluster, model: str, then: str = "") -> str:
    """Submit a job with four GPUs whose two processes exchange the tensors of a model."""
    program = plugin.work / "exchange.py"
    program.write_text(EXCHANGE)
    meeting_point = f"file://{plugin.work}/meeting.$SLURM_JOB_ID"
    sizes = " ".join(str(size) for size in tensor_sizes(model))
    script = (
        "#!/bin/sh\nexport GLOO_SOCKET_IFNAME=lo\n"
        f"srun -n2 {sys.executable} -W ignore {program} {meeting_point} {sizes} || exit 1\n{then}"
    )
    file = plugin.work / "script"
    file.write_text(script)
    # As the user who runs the tests: other users may be unable to read this PyTorch.
    return plugin.cluster.run(
        *("sbatch", "--parsable", "-J", NAMES[model], f"--output={plugin.work}/%j.out"),
        *("-n4", "--gpus=4", "--mem-per-cpu=200", str(file)),
    ).strip()


def nodes_of(plugin: PluginCluster, job: str) -> list[str]:
    plugin.cluster.wait_for_state(job, "RUNNING")
    return sorted(node_names(plugin.cluster.squeue_field(job, "NodeList")))


def measured(controller: RealController) -> dict[str, float]:
    """The ratio of each profile that came from traffic, by the job's name."""
    listed = json.loads(controller.cli("profile", "list", "--json").stdout)["profiles"]
    return {p["name"]: p["ratio"] for p in listed if p["source"] == "traffic"}


def test_each_second_run_is_placed_by_what_the_first_sent_without_hints(
    three_nodes: PluginCluster, controller: RealController
) -> None:
    cluster = three_nodes.cluster
    first = [three_nodes.wait(submit(three_nodes, model)) for model in TABLE_6]
    assert [(ended.status, ended.output) for ended in first] == [("0:0", "")] * 2
    controller.wait_until(lambda: len(measured(controller)) == 2, "both are known")
    for model, name in NAMES.items():
        assert measured(controller)[name] == pytest.approx(TABLE_6[model], rel=0.1)

    for node in ("n1", "n2"):
        held = cluster.sbatch("-w", node, "--gres=gpu:2", "--mem=10")
        cluster.wait_for_state(held, "RUNNING")
    skewed, even = (submit(three_nodes, model, then="sleep 600") for model in TABLE_6)
    assert nodes_of(three_nodes, skewed) == ["n3"]
    assert nodes_of(three_nodes, even) == ["n1", "n2"]
    assert "consolidated: largest message 7" in controller.cli("explain", skewed).stdout
    assert "spread: largest message" in controller.cli("explain", even).stdout
