"""A real cluster of four nodes with four GPUs each, started once for all tests that want it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import RealCluster, short_folder, started_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """The cluster, as the tests before have left it."""
    if shutil.which("slurmctld", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("no slurmctld on this machine")
    options = ("--nodes", "4", "--gpus", "4", "--partition", "gpu", "other")
    with short_folder() as folder, started_cluster(folder, *options) as real:
        yield real


@pytest.fixture
def clean_cluster(cluster: RealCluster) -> RealCluster:
    """The cluster with no job and every node idle."""
    cluster.clean()
    return cluster
