"""However slow slurmdbd is, nothing waits for it, and late answers still count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.busy_load import SETTINGS
from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from scripts.testbed.slurm_commands import Commands

pytestmark = pytest.mark.slurm

NEVER_S = 3 * PATIENCE_S


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path / "bin")


@pytest.fixture
def controller(
    clean_cluster: RealCluster, tmp_path: Path, commands: Commands
) -> Iterator[RealController]:
    settings = {**SETTINGS, "constants": {"COMMAND_TIMEOUT_S": NEVER_S}}
    made = RealController(clean_cluster, tmp_path, settings, extra_environment=commands.environment)
    yield made
    made.end()


def requeued(cluster: RealCluster) -> str:
    """A job with a first run whose length only accounting knows."""
    job = cluster.sbatch("--gres=gpu:1", "--mem=100")
    cluster.wait_for_state(job, "RUNNING")
    cluster.run("scontrol", "requeue", job)
    return job


def test_cycles_go_on_while_sacct_hangs(
    clean_cluster: RealCluster, controller: RealController, commands: Commands, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    commands.go_wrong("sacct", f"while [ ! -e {go_on} ]; do sleep 0.1; done")
    controller.start()
    requeued(clean_cluster)
    controller.wait_until(lambda: commands.calls() > 0, "accounting will be asked")
    first = controller.state().cycle
    controller.wait_until(lambda: controller.state().cycle > first + 10, "ten cycles")
    assert controller.state().failures == 0
    assert commands.calls() == 1, "it is asked once at a time"
    go_on.touch()


def test_late_answers_of_accounting_are_used(
    clean_cluster: RealCluster, controller: RealController, commands: Commands, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    commands.go_wrong("sacct", f'while [ ! -e {go_on} ]; do sleep 0.1; done; exec "$@"')
    controller.start()
    job = requeued(clean_cluster)
    controller.wait_until(lambda: commands.calls() > 0, "accounting will be asked")
    controller.cycles(3)
    assert not any(run.confirmed for run in controller.runs(job))
    go_on.touch()
    controller.wait_until(
        lambda: [run for run in controller.runs(job) if run.confirmed], "accounting is believed"
    )
