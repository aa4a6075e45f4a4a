"""One user's events do not displace those of others, on a real cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder
from scripts.testbed.real_controller import RealController
from slurm_tiresias.store.event_folding import MOST_AT_ONCE

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
TASKS = 200
WHOLE_NODE = ("--gres=gpu:4", "--mem=100")


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


def test_an_array_whose_owner_lowers_its_priority_leaves_other_users_their_events(
    clean_cluster: RealCluster, folder: Path
) -> None:
    """The tasks are not held: an owner may lower a priority."""
    cluster = clean_cluster
    controller = RealController(cluster, folder).start()
    ours = cluster.sbatch(*WHOLE_NODE)
    controller.wait_for_tier(ours, 1)
    command = (*NOBODY, "sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp")
    array = cluster.run(
        *command, *WHOLE_NODE, "--nodes=4-4", f"--array=1-{TASKS}", "--wrap=true"
    ).strip()
    try:
        last = f"{array}_{TASKS}"
        for _ in range(3):
            pinned = pinned_priority(cluster, last)
            # Slurm lowers it, and warns that the change will not last.
            lower = f"scontrol update JobId={array} Priority=5 || true"
            cluster.run(*NOBODY, "sh", "-c", lower)
            cluster.wait_until(
                partial(has_priority, cluster, last, pinned), "its priority is repaired"
            )
            controller.cycles(1)
        events = controller.state().events
        repaired = [event for event in events if event.kind == "repaired"]
        how_many = len(repaired)
        assert 0 < how_many <= MOST_AT_ONCE
        assert any("the same happened to this user's jobs" in event.text for event in repaired)
        assert ours in [event.job_id for event in events if event.kind == "demoted"]
    finally:
        controller.kill()
        cluster.run("scancel", array)


def priority(cluster: RealCluster, key: str) -> int:
    return int(cluster.squeue_field(key, "PriorityLong"))


def has_priority(cluster: RealCluster, key: str, wanted: int) -> bool:
    return priority(cluster, key) == wanted


def pinned_priority(cluster: RealCluster, key: str) -> int:
    """Return what the controller has written for a waiting task."""
    cluster.wait_until(lambda: priority(cluster, key) > 10**9, "its priority is pinned")
    return priority(cluster, key)
