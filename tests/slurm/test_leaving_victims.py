"""Victims that do not leave as they are told to, on a real cluster."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, job, short_folder, started_cluster
from scripts.testbed.real_controller import RealController, controller_of_one_test
from slurm_tiresias.store.terms import newest_ledger

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
GRACE_S = 30
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "policy": {"thresholds_gpu_s": [8]},
    "preemption": {"min_run_s": 1, "max_grace_s": 30},
    "controller": {"interval_s": 0.5},
}
SLURMS_DELAY_S = 120.0
REQUEUES_ITSELF = """
trap 'scontrol requeue $SLURM_JOB_ID; sleep 60' USR1
while :; do sleep 0.2; done
"""


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[RealCluster]:
    options = ("--nodes", "2", "--no-accounting")
    with short_folder() as folder, started_cluster(folder, *options) as cluster:
        yield cluster


@pytest.fixture
def controller(two_nodes: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    with controller_of_one_test(two_nodes, tmp_path, SETTINGS) as started:
        yield started


def preemptions(controller: RealController) -> list[tuple[str, str]]:
    """The victim and the preemptor of each preemption in the ledger."""
    with closing(sqlite3.connect(newest_ledger(controller.state_dir))) as database:
        return database.execute("SELECT key, for_job FROM preemptions").fetchall()


def test_a_victim_that_requeues_itself_counts_as_preempted_and_starts_again_soon(
    two_nodes: RealCluster, controller: RealController
) -> None:
    hint = f"--comment=tiresias:checkpoint=USR1@{GRACE_S}"
    victim = two_nodes.sbatch("-N2", *WHOLE_NODE, hint, script=REQUEUES_ITSELF)
    controller.wait_for_tier(victim, 1)
    preemptor = two_nodes.sbatch(*WHOLE_NODE, script="sleep 1")
    controller.wait_until(lambda: controller.events("preempted"), "the preemption is recorded")
    assert controller.events("preempted") == preemptions(controller) == [(victim, preemptor)]
    two_nodes.wait_until(
        lambda: two_nodes.squeue_field(preemptor, "State") in ("RUNNING", "COMPLETED"),
        "the preemptor starts",
    )
    controller.wait_until(
        lambda: two_nodes.squeue_field(victim, "State") == "RUNNING", "the victim runs again"
    )
    again = job(two_nodes.driver().observe(), victim)
    assert again.eligible_s is not None
    assert again.eligible_s - again.spec.submit_s < 0.75 * SLURMS_DELAY_S
    assert not controller.events("requeued")
    assert not controller.events("backed-off")


def test_victims_that_requeue_themselves_between_two_signals_delay_no_cycle(
    two_nodes: RealCluster, controller: RealController
) -> None:
    """WINCH takes two scancels. The second retries for a minute and a half if a job is requeued
    after scancel has listed it."""
    hint = f"--comment=tiresias:checkpoint=WINCH@{GRACE_S}"
    quick = "trap 'scontrol requeue $SLURM_JOB_ID' WINCH; while :; do sleep 0.05; done"
    victims = [two_nodes.sbatch("--gres=gpu:1", "--mem=10", hint, script=quick) for _ in range(8)]
    for victim in victims:
        controller.wait_for_tier(victim, 1)
    preemptor = two_nodes.sbatch("-N2", *WHOLE_NODE, script="sleep 1")
    controller.wait_until(
        lambda: len(controller.events("preempted")) == len(victims), "all are preempted"
    )
    assert sorted(preemptions(controller)) == sorted((victim, preemptor) for victim in victims)
    assert "no answer within" not in controller.stop()
