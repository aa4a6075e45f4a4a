"""A real cluster of four nodes with four GPUs each, started once for all tests that want it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import RealCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """The cluster, as the tests before have left it."""
    if shutil.which("slurmctld", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("no slurmctld on this machine")
    # Paths of Unix sockets may not be long: the folder stands right below /tmp.
    with tempfile.TemporaryDirectory(prefix="st-", dir="/tmp") as parent:
        Path(parent).chmod(0o755)  # tests act as other users too
        real = RealCluster(Path(parent) / "c")
        real.up("--nodes", "4", "--gpus", "4", "--partition", "gpu", "other")
        try:
            yield real
        finally:
            real.down()


@pytest.fixture
def clean_cluster(cluster: RealCluster) -> RealCluster:
    """The cluster with no job and every node idle."""
    cluster.clean()
    return cluster
