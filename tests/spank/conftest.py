"""The built plugin, and a real cluster that loads it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import short_folder, started_cluster
from tests.spank.plugin import LUA, PluginCluster, make


@pytest.fixture(scope="session")
def build() -> Iterator[Path]:
    """The folder with the plugin and its libraries, readable by every user."""
    if shutil.which("make") is None or make("deps-there").returncode != 0:
        pytest.skip("no make, C compiler, headers of Slurm or valgrind: run scripts/test as root")
    with short_folder() as folder:
        made = make(f"BUILD={folder}")
        assert made.returncode == 0, made.stderr
        yield folder


@pytest.fixture(scope="session")
def started(build: Path) -> Iterator[PluginCluster]:
    """Two nodes that load the plugin, and a slurmctld with etc/job_submit.lua."""
    if shutil.which("slurmctld", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("no slurmctld on this machine")
    with short_folder() as parent:
        plugstack = parent / "plugstack.conf"
        # slurmd checks only once whether the plugin has an epilog.
        plugstack.write_text(f"optional {build}/spank_tiresias.so\n")
        options = (
            *("--nodes", "2", "--partition", "gpu", "other", "--no-accounting"),
            *("--slurm-conf-line", "JobSubmitPlugins=lua"),
            *("--conf-file", str(LUA), "--conf-file", str(plugstack)),
        )
        with started_cluster(parent, *options) as cluster:
            yield PluginCluster(cluster, parent, build)


@pytest.fixture
def plugin(started: PluginCluster) -> PluginCluster:
    """The idle cluster, with the plugin set up as an administrator would."""
    started.cluster.clean()
    started.reset()
    return started


FORGER = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <slurm/spank.h>

SPANK_PLUGIN(forger, 1)

int slurm_spank_init(spank_t spank, int count, char *arguments[])
{
    char name[128];
    (void)count;
    (void)arguments;
    snprintf(name, sizeof name, "_SLURM_SPANK_OPTION_tiresias_tiresias_%s", getenv("FORGED_NAME"));
    spank_job_control_setenv(spank, name, getenv("FORGED_VALUE"), 1);
    return 0;
}
"""


@pytest.fixture(scope="session")
def forging_client(started: PluginCluster) -> Mapping[str, str]:
    """The environment of a user whose sbatch sends arbitrary text as the plugin's options."""
    etc = started.folder / "forged"
    shutil.copytree(started.cluster.folder / "etc", etc, ignore=shutil.ignore_patterns("*.key"))
    library = etc / "forger.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)],
        input=FORGER,
        text=True,
        check=True,
    )
    (etc / "plugstack.conf").write_text(f"required {library}\n")
    return {"SLURM_CONF": str(etc / "slurm.conf")}
