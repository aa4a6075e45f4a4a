"""Two clusters in a federation whose commands show all clusters' jobs (``fed_display``): the driver
reads and changes its own cluster only, which may have partitions and nodes of the same names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.testbed.real_cluster import RealCluster, job, short_folder, started_cluster
from slurm_tiresias.model import JobState
from slurm_tiresias.slurm.protocol import Requeue, Update

pytestmark = pytest.mark.slurm

FED_DISPLAY = ("--nodes", "1", "--slurm-conf-line", "FederationParameters=fed_display")
PINNED = 3_000_000_000


def setting(cluster: RealCluster, name: str) -> str:
    """Return a setting of the cluster's slurm.conf."""
    lines = (cluster.folder / "etc" / "slurm.conf").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith(f"{name}="))


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[RealCluster, RealCluster]]:
    """Two clusters with one slurmdbd and one munged."""
    with short_folder() as one, started_cluster(one, *FED_DISPLAY) as ours:
        shared = {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStorageTRES": "gres/gpu",
            "AuthInfo": setting(ours, "AuthInfo"),
        }
        shared |= {
            name: setting(ours, name) for name in ("AccountingStoragePort", "AccountingStoragePass")
        }
        lines = [f"--slurm-conf-line={name}={value}" for name, value in shared.items()]
        with (
            short_folder() as other,
            started_cluster(other, *FED_DISPLAY, "--no-accounting", *lines) as sibling,
        ):
            names = ",".join(setting(cluster, "ClusterName") for cluster in (ours, sibling))
            ours.wait_until(
                lambda: len(ours.run("sacctmgr", "-n", "show", "cluster").splitlines()) == 2,
                "both clusters are in accounting",
            )
            ours.run("sacctmgr", "-i", "add", "federation", "both", f"clusters={names}")
            ours.wait_until(
                lambda: (
                    "PersistConnSend/Recv:Yes/Yes" in ours.run("scontrol", "show", "federation")
                ),
                "the clusters know each other",
            )
            yield ours, sibling


def on(cluster: RealCluster, *options: str) -> str:
    """Submit a job to this cluster alone, and wait until it runs; return its id."""
    named = f"--clusters={setting(cluster, 'ClusterName')}"
    key = cluster.sbatch(named, "--gres=gpu:2", *options).partition(";")[0]
    cluster.wait_until(lambda: is_running(cluster, key), f"job {key} runs")
    return key


def is_running(cluster: RealCluster, key: str) -> bool:
    return "RUNNING" in cluster.run("squeue", "--local", "-h", "-j", key, "-o", "%T")


def test_only_the_own_clusters_jobs_and_nodes_are_seen_and_changed(
    clusters: tuple[RealCluster, RealCluster],
) -> None:
    ours, sibling = clusters
    mine, theirs = on(ours), on(sibling)
    assert {mine, theirs} <= set(ours.run("squeue", "-h", "-o", "%i").split())
    driver = ours.driver()
    seen = driver.observe()
    assert [one.key for one in seen.jobs if one.state is not None] == [mine]
    assert job(seen, mine).allocation["n1"].gpu_count == 2
    assert [node.name for node in seen.nodes] == ["n1"]
    assert len(seen.partitions) == 1
    ours.wait_until(
        lambda: [run.key for run in driver.runs([mine, theirs], 0.0)] == [mine],
        "slurmdbd has recorded its run, and no other",
    )
    assert driver.write([Update(mine, priority=PINNED), Requeue(mine)]) == ()
    ours.wait_until(lambda: job(driver.observe(), mine).state is JobState.PENDING, "it is requeued")
    assert job(driver.observe(), mine).restarts == 1
    assert is_running(sibling, theirs)
