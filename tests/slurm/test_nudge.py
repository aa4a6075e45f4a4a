"""Slurm's own hook nudges the controller when a job ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController

pytestmark = pytest.mark.slurm

HOOK = Path(__file__).parents[2] / "etc" / "nudge"


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as one:
        yield one


@pytest.fixture
def nudging_cluster(folder: Path) -> Iterator[RealCluster]:
    """One node, and the hook of etc/ installed as an administrator would."""
    hook = folder / "epilog"
    hook.write_text(f"#!/bin/sh\nexport TIRESIAS_NUDGE_FILE={folder}/nudge\nexec {HOOK}\n")
    hook.chmod(0o755)
    options = ("--nodes", "1", "--slurm-conf-line", f"EpilogSlurmctld={hook}")
    with started_cluster(folder, *options) as cluster:
        yield cluster


def test_freed_gpus_are_used_within_an_interval(nudging_cluster: RealCluster, folder: Path) -> None:
    settings = {"controller": {"interval_s": 600, "nudge_file": f"{folder}/nudge"}}
    controller = RealController(nudging_cluster, folder, settings)
    is_observed = folder / "is-observed"
    until = f"until [ -e {is_observed} ]; do sleep 0.2; done"
    first = nudging_cluster.sbatch("--gres=gpu:3", script=until)
    nudging_cluster.wait_for_state(first, "RUNNING")
    wide = nudging_cluster.sbatch("--gres=gpu:4")
    held_back = nudging_cluster.sbatch("--gres=gpu:2", "--dependency=afterany:" + wide)
    nudging_cluster.wait_until(
        lambda: nudging_cluster.squeue_field(held_back, "Reason") == "Dependency",
        "Slurm has looked at it",
    )
    controller.start()
    is_observed.touch()
    try:
        nudging_cluster.wait_for_state(first, "COMPLETED")
        controller.wait_until(lambda: controller.state().cycle >= 2, "the hook has nudged")
        nudging_cluster.wait_for_state(wide, "RUNNING")
        job = controller.job(held_back)
        assert job is not None and job.reason == "slurm-waits"
    finally:
        controller.stop()
