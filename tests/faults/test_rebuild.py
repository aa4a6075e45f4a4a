"""``tiresias-slurm ledger rebuild`` after the ledger was lost."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from scripts.testbed.busy_load import faulty
from scripts.testbed.kill_points import AFTER, KillPoint
from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import COMMAND, RealController
from slurm_tiresias.store.ledger import FILE_NAME

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
IN_PIECES = ("-n4", "--gpus=4", "--mem-per-cpu=10")


def ruin(controller: RealController) -> Path:
    """Overwrite the ledger's pages; its write-ahead log, which may hold them too, is lost."""
    path = controller.state_dir / FILE_NAME
    path.with_name(f"{FILE_NAME}-wal").unlink(missing_ok=True)
    with path.open("r+b") as file:
        file.write(b"garbage" * 1000)
    return path


def test_attained_service_and_tiers_are_rebuilt_from_accounting(
    clean_cluster: RealCluster, controller: RealController
) -> None:
    controller.start()
    wall = [clean_cluster.sbatch(*WHOLE_NODE) for _ in range(4)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    urgent = clean_cluster.sbatch(*WHOLE_NODE)
    controller.wait_until(lambda: controller.events("preempted"), "a preemption")
    victim = controller.events("preempted")[0][0]
    controller.wait_until(
        lambda: all(i.confirmed for i in controller.runs(victim)), "accounting has told"
    )
    before = controller.state()
    controller.kill()
    path = ruin(controller)
    refused = controller.cli("controller")
    assert refused.returncode == 11
    assert refused.stderr.count("\n") == 1 and "ledger rebuild" in refused.stderr
    done = controller.cli("ledger", "rebuild", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["jobs"], told["runs"]) == (5, 5)
    assert Path(told["replaced"]).read_bytes().startswith(b"garbage")
    assert (told["ledger"], told["paused"]) == (str(path), False)
    assert told["incomplete"] == told["node_lists"] == []
    controller.start()
    for then in before.jobs:
        now = controller.job(then.job_id)
        assert now is not None
        if then.job_id != urgent:
            assert (now.tier, now.first_started_s) == (then.tier, then.first_started_s)
        assert now.attained_gpu_s >= then.attained_gpu_s - 4
    rows = clean_cluster.driver().runs([victim], 0)
    kept = controller.runs(victim)
    assert [(row.start_s, row.elapsed_s, row.gpus) for row in rows] == [
        (one.start_s, one.elapsed_s, one.gpus) for one in kept
    ]


def test_a_node_list_in_the_lost_ledger_is_removed(
    clean_cluster: RealCluster, controller: RealController
) -> None:
    controller.start(program=faulty(KillPoint("update-node_list", AFTER)))
    wall = [clean_cluster.sbatch(*WHOLE_NODE) for _ in range(4)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    urgent = clean_cluster.sbatch(*IN_PIECES)
    assert controller.process is not None
    controller.process.communicate(timeout=PATIENCE_S)
    controller.process = None
    assert clean_cluster.squeue_field(urgent, "ReqNodes") != ""
    ruin(controller)
    assert controller.cli("ledger", "rebuild").returncode == 0
    assert controller.cli("pause").returncode == 0
    controller.start()
    controller.wait_until(
        lambda: clean_cluster.squeue_field(urgent, "ReqNodes") == "", "its node list is taken back"
    )
    # A pause is among the facts that a rebuilt ledger takes from a readable old one.
    controller.stop()
    done = controller.cli("ledger", "rebuild")
    assert done.returncode == 0
    assert "stays paused" in done.stdout


def test_nothing_is_rebuilt_under_a_running_controller_or_without_accounting(
    clean_cluster: RealCluster, controller: RealController
) -> None:
    controller.start()
    assert controller.cli("ledger", "rebuild").returncode == 9
    controller.stop()
    path = ruin(controller)
    ruined = path.read_bytes()
    # slurmdbd is asked for the earlier runs of a job that was requeued.
    job = clean_cluster.sbatch(*WHOLE_NODE)
    clean_cluster.wait_for_state(job, "RUNNING")
    clean_cluster.run("scontrol", "requeue", job)
    conf = controller.folder / "slurm.conf"
    text = Path(clean_cluster.env["SLURM_CONF"]).read_text()
    conf.write_text(re.sub(r"AccountingStoragePort=\d+", "AccountingStoragePort=9", text))
    ended = subprocess.run(
        [*COMMAND, "ledger", "rebuild", "--config", str(controller.config_file)],
        env={**controller.environment, "SLURM_CONF": str(conf)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 5, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert path.read_bytes() == ruined


def test_a_rebuild_that_is_killed_leaves_the_ledger_as_it_was(
    clean_cluster: RealCluster, controller: RealController
) -> None:
    controller.start()
    controller.stop()
    path = ruin(controller)
    ruined = path.read_bytes()
    clean_cluster.wait_for_state(clean_cluster.sbatch(*WHOLE_NODE), "RUNNING")
    for moment in ("before", "inside", "after"):
        program = faulty(KillPoint("commit-rebuild-1", moment))
        command = [*program, "ledger", "rebuild", "--config", str(controller.config_file)]
        ended = subprocess.run(command, env=controller.environment, check=False)
        assert ended.returncode == -9
        assert path.read_bytes() == ruined
    assert controller.cli("ledger", "rebuild").returncode == 0
