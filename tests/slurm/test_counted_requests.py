"""Requests whose GPUs or CPUs are counted in unusual ways, on a cluster full of one-GPU jobs.

Each node has four GPUs and 16 CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController, controller_of_one_test
from tests.known import known

pytestmark = pytest.mark.slurm

SETTINGS: Mapping[str, Mapping[str, object]] = {
    "policy": {"thresholds_gpu_s": [2]},
    "preemption": {"min_run_s": 1},
    "controller": {"interval_s": 0.5},
}

COUNTED = {
    "--gres=gpu:1,gpu:1,gpu:1,gpu:1": 1,
    "--gres=gpu:2,gpu:1": 1,
    "--gres=gpu:2 --gpus-per-node=2": 2,
    "--gpus-per-task=1,2 -n1": 2,
    "--gpus-per-node=4 -N1-3": 4,
    "--gpus-per-node=1 -n8 --ntasks-per-node=4 -N1-3": 2,
    "--gpus=2 --overcommit -n40": 2,
    "--gres=gpu:2 --overcommit -n40": 2,
    "--gres=gpu:1 --exclusive": 4,
}
"""A request, and how many jobs of one GPU each it takes the place of."""

OF_EACH_KIND = ("--gres=gpu:2,gpu:1", "--gpus=2 --overcommit -n40", "--gres=gpu:1 --exclusive")
"""Those in the short suite; ``tests/test_slurm_parsers.py`` counts all of them."""

LEFT_TO_SLURM = (
    "--gpus-per-socket=1 --sockets-per-node=2",
    "-n4 --gpus-per-socket=1 --sockets-per-node=1",
    "--gres=gpu:2 -n20 -c1 -N1-2",
    "--gpus=4 -n40",
)


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[RealCluster]:
    with short_folder() as folder, started_cluster(folder, "--nodes", "3") as cluster:
        yield cluster


@pytest.fixture
def controller(three_nodes: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    """A controller of a cluster that is full of jobs of the second tier."""
    with controller_of_one_test(three_nodes, tmp_path, SETTINGS) as started:
        long = [three_nodes.sbatch("--gres=gpu:1", "--mem=10") for _ in range(12)]
        for job in long:
            started.wait_for_tier(job, 1)
        yield started


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, marks=() if options in OF_EACH_KIND else pytest.mark.long)
        for options in COUNTED
    ],
)
def test_no_more_jobs_are_preempted_than_the_request_needs(
    three_nodes: RealCluster, controller: RealController, options: str
) -> None:
    job = three_nodes.sbatch("--mem=10", *options.split())
    three_nodes.wait_for_state(job, "RUNNING")
    controller.cycles(2)
    assert len(controller.events("preempted")) == COUNTED[options]
    assert known(controller.job(job)).gpus == COUNTED[options]


@pytest.mark.parametrize(
    "option", ["--mem=0", pytest.param("--mem-per-cpu=0", marks=pytest.mark.long)]
)
def test_all_memory_of_a_node_takes_the_jobs_of_that_node_only(
    three_nodes: RealCluster, controller: RealController, option: str
) -> None:
    """Both request the memory that the node has, so that no other job may hold any there."""
    lines = three_nodes.run("squeue", "-h", "-t", "RUNNING", "-o", "%i %N").splitlines()
    nodes = dict(line.split() for line in lines)
    job = three_nodes.sbatch("--gres=gpu:1", option)
    three_nodes.wait_for_state(job, "RUNNING")
    controller.cycles(2)
    node = three_nodes.squeue_field(job, "NodeList")
    there = sorted(other for other, its_node in nodes.items() if its_node == node)
    assert sorted(victim for victim, _ in controller.events("preempted")) == there


def test_no_job_is_preempted_for_a_request_that_only_slurm_can_count(
    three_nodes: RealCluster, controller: RealController
) -> None:
    jobs = [three_nodes.sbatch("--mem=10", *options.split()) for options in LEFT_TO_SLURM]
    for job in jobs:
        controller.wait_for_reason(job, "no-room")
        assert "only Slurm" in known(controller.job(job)).detail
    controller.cycles(8)
    assert controller.events("preempted") == []
    three_nodes.run("scancel", "--state=RUNNING", "--me")
    for job in jobs:
        three_nodes.wait_for_state(job, "RUNNING")
        three_nodes.run("scancel", job)
