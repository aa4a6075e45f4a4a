"""Failed runs and failing nodes on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, job, short_folder, started_cluster
from scripts.testbed.real_controller import RealController, controller_of_one_test

pytestmark = pytest.mark.slurm

PROLOG = """#!/bin/sh
test ! -e "$0-fails-on-$SLURMD_NODENAME"
"""
SETTINGS: Mapping[str, Mapping[str, object]] = {"controller": {"interval_s": 0.5}}


@pytest.fixture(scope="module")
def prolog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prolog that fails on a node if a file says so."""
    path = tmp_path_factory.mktemp("prolog") / "prolog"
    path.write_text(PROLOG, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def three_nodes(prolog: Path) -> Iterator[RealCluster]:
    options = ("--nodes", "3", "--no-accounting", "--slurm-conf-line", f"Prolog={prolog}")
    with short_folder() as folder, started_cluster(folder, *options) as cluster:
        yield cluster


@pytest.fixture
def controller(three_nodes: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    with controller_of_one_test(three_nodes, tmp_path, SETTINGS) as started:
        yield started


def nodes_of_runs(controller: RealController, key: str) -> list[str]:
    return [run.nodes for run in controller.runs(key)]


def test_a_job_that_fails_is_restarted_soon_on_another_node_as_often_as_it_asks(
    three_nodes: RealCluster, controller: RealController
) -> None:
    # Long enough for a cycle: a job that has ended when it is first seen is not managed.
    fails = "sleep 3; exit 3"
    key = three_nodes.sbatch("--gres=gpu:1", "--comment=tiresias:restart=2", script=fails)
    controller.wait_until(lambda: controller.events("not-restarted"), f"{key} stays ended")
    ended = job(three_nodes.driver().observe(), key)
    assert (ended.slurm_state, ended.restarts) == ("FAILED", 2)
    assert len(controller.events("restarted")) == 2
    first, second, third = nodes_of_runs(controller, key)
    assert first != second != third


def test_a_job_that_its_prolog_has_kept_from_starting_is_released_on_another_node(
    three_nodes: RealCluster, prolog: Path, controller: RealController
) -> None:
    marker = Path(f"{prolog}-fails-on-n1")
    marker.touch()
    key = three_nodes.sbatch("--gres=gpu:1", script="sleep 600")
    controller.wait_until(
        lambda: three_nodes.squeue_field(key, "RestartCnt") == "1", f"{key} is requeued"
    )
    three_nodes.wait_for_state(key, "RUNNING")
    assert three_nodes.squeue_field(key, "NodeList") in ("n2", "n3")
    marker.unlink()
    three_nodes.run("scancel", key)
    three_nodes.run("scontrol", "update", "NodeName=n1", "State=RESUME")
