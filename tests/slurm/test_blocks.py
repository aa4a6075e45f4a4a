"""topology/block on a real Slurm: 16 nodes in four blocks, and jobs with segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from scripts.testbed.cluster.configuration import slurm_version
from scripts.testbed.in_memory.blocks import Blocks
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController, controller_of_one_test
from slurm_tiresias.slurm.notation import node_names

pytestmark = pytest.mark.slurm

NODES = [f"n{number}" for number in range(1, 17)]
BLOCKS = Blocks([frozenset(NODES[at : at + 4]) for at in range(0, 16, 4)], sizes=(4, 8))
TOPOLOGY = """\
BlockName=b1 Nodes=n[1-4]
BlockName=b2 Nodes=n[5-8]
BlockName=b3 Nodes=n[9-12]
BlockName=b4 Nodes=n[13-16]
BlockSizes=4,8
"""
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "policy": {"thresholds_gpu_s": [4, 20]},
    "preemption": {"min_run_s": 1},
    "controller": {"interval_s": 0.5},
}
JOBS = 24
UNDIVIDED = [(nodes, 0) for nodes in (1, 1, 2, 3, 4, 6, 8)]
SHAPES = [*UNDIVIDED, (4, 2), (6, 3), (8, 4), (12, 4), (8, 1), (6, 2)]
"""Nodes of a job, and of each of its segments."""


@pytest.fixture(scope="module")
def blocks() -> Iterator[RealCluster]:
    if slurm_version() < (25, 5):
        pytest.skip("this release has no topology/block, or does not show segments")
    with short_folder() as folder:
        topology = folder / "topology.conf"
        topology.write_text(TOPOLOGY)
        options = (
            *("--nodes", "16", "--gpus", "2"),
            *("--slurm-conf-line", "TopologyPlugin=topology/block", "--conf-file", str(topology)),
        )
        with started_cluster(folder, *options) as cluster:
            yield cluster


@pytest.fixture
def controller(blocks: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    with controller_of_one_test(blocks, tmp_path, SETTINGS) as started:
        yield started


def nodes_of(cluster: RealCluster, job: str) -> set[str]:
    cluster.wait_for_state(job, "RUNNING")
    return set(node_names(cluster.squeue_field(job, "NodeList")))


def test_narrow_jobs_leave_blocks_whole(blocks: RealCluster, controller: RealController) -> None:
    narrow = [blocks.sbatch("--gres=gpu:2") for _ in range(4)]
    taken = set().union(*(nodes_of(blocks, job) for job in narrow))
    assert taken in BLOCKS.base
    wide = blocks.sbatch("-N8", "--gres=gpu:2", "--segment=4")
    assert len(nodes_of(blocks, wide)) == 8


def test_a_wide_job_preempts_in_few_blocks(blocks: RealCluster, controller: RealController) -> None:
    long = {name: blocks.sbatch("--gres=gpu:2", "-w", name) for name in NODES}
    for job in long.values():
        blocks.wait_for_state(job, "RUNNING")
        controller.wait_for_tier(job, 1)
    wide = blocks.sbatch("-N4", "--gres=gpu:2")
    nodes = nodes_of(blocks, wide)
    assert nodes in BLOCKS.base
    controller.wait_until(lambda: controller.events("preempted"), "the preemptions are recorded")
    victims = {victim for victim, _ in controller.events("preempted")}
    assert victims == {long[name] for name in nodes}


def test_a_job_may_claim_whole_blocks(blocks: RealCluster, controller: RealController) -> None:
    alone = blocks.sbatch("-N2", "--gres=gpu:2", "--exclusive=topo")
    mine = nodes_of(blocks, alone)
    (block,) = [block for block in BLOCKS.base if mine <= block]
    others = [blocks.sbatch("-N4", "--gres=gpu:2") for _ in range(4)]
    for other in others[:3]:
        assert not nodes_of(blocks, other) & block
    controller.wait_for_reason(others[3], "no-room")
    blocks.run("scancel", alone)
    assert nodes_of(blocks, others[3]) == block


@pytest.mark.parametrize("seed", [1, 2])
def test_every_preemptor_starts_and_jobs_lie_in_the_fewest_blocks(
    blocks: RealCluster, controller: RealController, seed: int
) -> None:
    random = Random(seed)
    wide = {}
    for _ in range(JOBS):
        nodes, segment = random.choice(SHAPES)
        options = [f"-N{nodes}", "--gres=gpu:2", *([f"--segment={segment}"] if segment else [])]
        job = blocks.sbatch(*options, script=f"sleep {random.choice((2, 5, 15))}")
        wide[job] = nodes, segment
        controller.cycles(random.choice((0, 0, 1, 3)))
    for job in wide:
        blocks.wait_for_state(job, "COMPLETED")
    for job, (nodes, segment) in wide.items():
        for run in controller.runs(job):
            on = node_names(run.nodes)
            assert BLOCKS.choose(on, nodes, segment, required=on) == frozenset(on), (job, on)
    assert controller.events("preempted")
    for kind in ("backed-off", "list-refused"):
        assert not controller.events(kind), kind
