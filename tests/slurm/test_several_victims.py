"""A preemptor of two nodes, whose victims leave at different times, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController, controller_of_one_test

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
GRACES_S = (0, 12)
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "policy": {"thresholds_gpu_s": [8]},
    "preemption": {"min_run_s": 1},
    "controller": {"interval_s": 0.5},
}


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[RealCluster]:
    # A victim that ignores SIGTERM ends KillWait later.
    options = ("--nodes", "2", "--no-accounting", "--slurm-conf-line", "KillWait=15")
    with short_folder() as folder, started_cluster(folder, *options) as cluster:
        yield cluster


@pytest.fixture
def controller(two_nodes: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    with controller_of_one_test(two_nodes, tmp_path, SETTINGS) as started:
        yield started


def victim(cluster: RealCluster, grace_s: int, *options: str) -> str:
    hint = f"--comment=tiresias:checkpoint=USR1@{grace_s}"
    return cluster.sbatch(*WHOLE_NODE, hint, *options, script="trap '' USR1; sleep 600")


ALONE = pytest.param((), id="alone", marks=pytest.mark.long)
ANOTHER_WAITS = pytest.param(("--time=1",), id="another waits")


@pytest.mark.parametrize("waits", [ALONE, ANOTHER_WAITS])
@pytest.mark.parametrize(
    "limits",
    [
        pytest.param((), id="no limits", marks=pytest.mark.long),
        pytest.param(("--time=2", "--time=60"), id="the first fits before the end of the second"),
    ],
)
@pytest.mark.parametrize("pinned", [False, True], ids=["anywhere", "pinned"])
def test_no_victim_restarts_before_its_preemptor(
    two_nodes: RealCluster,
    controller: RealController,
    pinned: bool,
    limits: Sequence[str],
    waits: Sequence[str],
) -> None:
    nodes = two_nodes.run("sinfo", "-h", "-N", "-o", "%N").split()
    victims = []
    for number, grace_s in enumerate(GRACES_S):
        options = [*limits[number : number + 1]]
        if pinned:
            options.append(f"--nodelist={nodes[number]}")
        victims.append(victim(two_nodes, grace_s, *options))
    for job in victims:
        controller.wait_for_tier(job, 1)
    preemptor = two_nodes.sbatch("-N2", *WHOLE_NODE, script="sleep 3")
    if waits:
        two_nodes.sbatch(*WHOLE_NODE, *waits, script="sleep 3")
    expect_preempted(two_nodes, controller, victims, preemptor)


@pytest.mark.parametrize("waits", [ALONE, ANOTHER_WAITS])
def test_a_slow_victim_does_not_let_the_other_victim_restart(
    two_nodes: RealCluster, controller: RealController, waits: Sequence[str]
) -> None:
    stubborn = two_nodes.sbatch(
        *WHOLE_NODE, script="trap '' TERM; for i in $(seq 600); do sleep 1; done"
    )
    victims = [stubborn, two_nodes.sbatch(*WHOLE_NODE)]
    for job in victims:
        controller.wait_for_tier(job, 1)
    preemptor = two_nodes.sbatch("-N2", *WHOLE_NODE, script="sleep 3")
    if waits:
        two_nodes.sbatch(*WHOLE_NODE, *waits, script="sleep 3")
    expect_preempted(two_nodes, controller, victims, preemptor)


def expect_preempted(
    two_nodes: RealCluster, controller: RealController, victims: Sequence[str], preemptor: str
) -> None:
    """The preemptor starts although its nodes become idle one after the other."""
    two_nodes.wait_until(
        lambda: two_nodes.squeue_field(preemptor, "State") in ("RUNNING", "COMPLETED"),
        "the preemptor starts",
    )
    controller.wait_until(
        lambda: len(controller.events("preempted")) == len(victims), "both preemptions are recorded"
    )
    assert sorted(controller.events("preempted")) == sorted((job, preemptor) for job in victims)
    assert not controller.events("backed-off")
