"""Job ids that a real slurmctld gives out again after it was killed, or has lost its state."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import QUICK, RealController
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.terms import newest_ledger
from tests.known import known

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("-N1", "--gres=gpu:4", "--mem=100")
TRIES = 6
"""slurmctld saves its state some seconds after a change, or sooner."""


@pytest.fixture
def cluster() -> Iterator[RealCluster]:
    """A cluster of this test alone, because job ids begin again."""
    with short_folder() as folder, started_cluster(folder, "--nodes", "2") as cluster:
        yield cluster


@pytest.fixture
def controller(cluster: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    started = RealController(cluster, tmp_path, QUICK)
    yield started.start()
    started.end()


def submitted_s(controller: RealController, key: str) -> float | None:
    with closing(Ledger.to_read(newest_ledger(controller.state_dir))) as ledger:
        record = ledger.jobs.one(key)
    return record.submitted_s if record else None


def is_known_as_submitted(controller: RealController, key: str) -> bool:
    """Whether the ledger has the job that Slurm shows under this id, if it was never requeued."""
    rows = controller.cluster.sacct_rows([key], "submit").get(key, [])
    shown_s = submitted_s(controller, key)
    return bool(rows) and shown_s == max(float(submit) for (submit,) in rows)


def restart_slurmctld(cluster: RealCluster, *, wiped: bool) -> None:
    cluster.kill("slurmctld")
    if wiped:
        state = cluster.folder / "state"
        for path in state.iterdir():
            if path.name not in ("clustername", "jwt_hs256.key"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.start("slurmctld")
    cluster.wait_until(lambda: answers(cluster), "slurmctld is back")


def answers(cluster: RealCluster) -> bool:
    try:
        return "UP" in cluster.run("scontrol", "ping")
    except AssertionError:
        return False


def stays(cluster: RealCluster, key: str) -> bool:
    """Whether a new job runs on: Slurm may take the late end of the id's first holder for its."""

    def states() -> set[str]:
        return {cluster.squeue_field(key, "State"), *cluster.run("sinfo", "-h", "-o", "%T").split()}

    cluster.wait_until(
        lambda: not states() & {"PENDING", "COMPLETING", "completing"}, "all is calm"
    )
    return cluster.squeue_field(key, "State") == "RUNNING"


def own_gpu_s(controller: RealController, key: str, since_s: float) -> float:
    """Return the GPU-seconds that accounting has of the job submitted at ``since_s``."""
    rows = controller.cluster.driver().runs([key], 0.0)
    return sum(row.elapsed_s * row.gpus for row in rows if (row.submit_s or 0.0) >= since_s)


def goes_through_a_requeue(controller: RealController, key: str) -> None:
    """Requeue a running job, and check that it has the service of its own rows alone."""
    cluster = controller.cluster
    born_s = known(submitted_s(controller, key))
    cluster.run("scontrol", "requeue", key)
    controller.wait_until(
        lambda: [run.confirmed for run in controller.runs(key) if run.end_s] == [True],
        "accounting has told of its run",
    )
    job = controller.job(key)
    assert job is not None and submitted_s(controller, key) == born_s
    assert job.attained_gpu_s <= own_gpu_s(controller, key, born_s) + 8.0
    assert job.attained_gpu_s < 4 * PATIENCE_S


def test_ids_that_slurmctld_forgot_when_it_was_killed(
    cluster: RealCluster, controller: RealController
) -> None:
    for _ in range(TRIES):
        forgotten = [cluster.sbatch(*WHOLE_NODE, "-J", "first") for _ in range(2)]
        controller.wait_until(
            lambda: all(controller.job(key) for key in forgotten),  # noqa: B023
            "the controller knows them",
        )
        restart_slurmctld(cluster, wiped=False)
        again = [cluster.sbatch(*WHOLE_NODE, "-J", "second") for _ in range(2)]
        if reused := sorted(set(again) & set(forgotten)):
            key = reused[0]
            controller.wait_until(
                lambda: is_known_as_submitted(controller, key),  # noqa: B023
                f"{key} is a new job",
            )
            cluster.run("scancel", *[other for other in again if other != key])
            if stays(cluster, key):
                break
        cluster.clean()
    else:
        pytest.skip("slurmctld has saved its state before each kill, or ended the new jobs too")
    controller.wait_until(lambda: controller.runs(key), "its run is seen")
    goes_through_a_requeue(controller, key)


def test_ids_that_begin_again_when_slurmctlds_state_was_lost(
    cluster: RealCluster, controller: RealController
) -> None:
    """slurmdbd is kept, and still has rows of the first holders; some of them never ended."""
    first = [cluster.sbatch(*WHOLE_NODE, "-J", "first") for _ in range(3)]
    controller.wait_for_tier(first[0], 1)
    controller.wait_for_tier(first[1], 1)
    restart_slurmctld(cluster, wiped=True)
    again = cluster.sbatch(*WHOLE_NODE, "-J", "second")
    assert again in first
    controller.wait_until(lambda: is_known_as_submitted(controller, again), "it is a new job")
    cluster.wait_for_state(again, "RUNNING")
    controller.wait_until(lambda: controller.runs(again), "its run is seen")
    goes_through_a_requeue(controller, again)
    # A controller with an empty ledger has only accounting to go by.
    controller.stop()
    newest_ledger(controller.state_dir).rename(controller.state_dir / "aside")
    for end in ("-wal", "-shm"):
        Path(f"{newest_ledger(controller.state_dir)}{end}").unlink(missing_ok=True)
    born_s = min(
        float(submit)
        for name, submit in cluster.sacct_rows([again], "jobname,submit")[again]
        if name == "second"
    )
    controller.start()
    controller.wait_until(lambda: submitted_s(controller, again) == born_s, "accounting has told")
    job = known(controller.job(again))
    assert job.attained_gpu_s <= own_gpu_s(controller, again, born_s) + 8.0
