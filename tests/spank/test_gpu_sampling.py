"""The sampler together with the plugin: the GPU use of real jobs, with a fake driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.patience import wait_until
from tests.profiler.compute_node import UUID, Node, build_driver
from tests.spank.plugin import PluginCluster

pytestmark = pytest.mark.slurm

PROFILED = "--tiresias-profile=on"


@pytest.fixture
def node(plugin: PluginCluster, tmp_path: Path) -> Iterator[Node]:
    """The host of both nodes of the cluster, with a sampler."""
    made = Node(tmp_path, build_driver(tmp_path))
    made.run, made.collect = plugin.run_folder, plugin.collect_folder
    made.begins()
    yield made
    made.clear_away()


def job(plugin: PluginCluster, name: str) -> str:
    """A script that prints its process id, and runs until it is told to end."""
    return f"echo $$ > {plugin.work}/{name}; until [ -e {plugin.work}/end ]; do sleep 0.1; done"


def pid_of(plugin: PluginCluster, name: str) -> int:
    file = plugin.work / name
    wait_until(lambda: file.exists() and file.read_text() != "")
    pid = int(file.read_text())
    file.unlink()
    return pid


def test_gpu_use_of_a_job_is_collected_like_its_traffic(plugin: PluginCluster, node: Node) -> None:
    profiled = plugin.submit(job(plugin, "profiled"), PROFILED)
    other = plugin.submit(job(plugin, "other"))
    node.computes(pid_of(plugin, "profiled"), pid_of(plugin, "other"))
    node.when_sampled()
    (plugin.work / "end").touch()
    plugin.wait(profiled)
    plugin.wait(other)
    assert node.written(f"{profiled}.0.n1")["uuid"] == UUID
    assert plugin.collected() == [f"{profiled}.0.n1.gpus", f"{profiled}.0.n1.traffic"]


def test_a_requeued_job_has_a_file_of_gpus_for_each_run(plugin: PluginCluster, node: Node) -> None:
    requeued = plugin.submit(job(plugin, "pid"), PROFILED, "--requeue", "--nodelist=n1")
    node.computes(pid_of(plugin, "pid"))
    node.when_sampled()
    plugin.requeue(requeued)
    node.computes(pid_of(plugin, "pid"))
    node.when_sampled()
    (plugin.work / "end").touch()
    plugin.wait(requeued)
    for run_id in (f"{requeued}.0.n1", f"{requeued}.1.n1"):
        assert node.written(run_id)["uuid"] == UUID
