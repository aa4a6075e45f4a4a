"""Settings for all tests, and a real cluster of four nodes with four GPUs each.

It is started once, for all tests that use it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from tests.readable import copy_program

# The same examples every time on a build server: random examples are for developers' machines.
settings.register_profile("desk", deadline=None)
settings.register_profile("server", deadline=None, derandomize=True)
settings.register_profile("long", deadline=None, derandomize=False, max_examples=20_000)
settings.load_profile("server" if os.environ.get("CI") else "desk")

# A shell that runs the tests in the background makes them and their children ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def readable() -> Iterator[Path]:
    """A folder that other users can read, for ``PYTHONPATH``, with the program in it."""
    with short_folder() as folder:
        copy_program(folder)
        yield folder


@pytest.fixture(scope="session")
def own_mounts() -> None:
    """Whether processes can have their own mounts: as root, and if / is a mount point."""
    ended = subprocess.run(
        ["unshare", "--mount", "true"], capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        pytest.skip(f"no mounts of its own for a process: {ended.stderr.strip()}")


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """The cluster, in the state in which earlier tests left it."""
    if shutil.which("slurmctld", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("no slurmctld on this machine")
    size = ("--nodes", "4", "--gpus", "4", "--partition", "gpu", "other")
    licence = ("--slurm-conf-line", "Licenses=solver:1")
    with short_folder() as folder, started_cluster(folder, *size, *licence) as real:
        yield real


@pytest.fixture
def clean_cluster(cluster: RealCluster) -> RealCluster:
    """The cluster with no job and every node idle."""
    cluster.clean()
    return cluster
