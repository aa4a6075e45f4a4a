"""Private jobs by slurmdbd.conf on a real cluster, and a report under PrivateData."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.slurm import release
from slurm_tiresias.slurm.parse_config import OF_SLURMDBD
from tests.other_user import as_root, command_line

pytestmark = pytest.mark.slurm
WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
AS_NOBODY = command_line("slurm_tiresias.cli.report", "slurm_tiresias.report.figures")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    with short_folder() as folder, started_cluster(folder, "--nodes", "1") as cluster:
        yield cluster


def set_in_slurmdbd_conf(cluster: RealCluster, kinds: str) -> None:
    file = cluster.folder / "etc" / "slurmdbd.conf"
    lines = [line for line in file.read_text().splitlines() if "PrivateData" not in line]
    file.write_text("\n".join([*lines, f"PrivateData={kinds}", ""]))
    cluster.kill("slurmdbd")
    cluster.start("slurmdbd")
    ask = ("sacctmgr", "--noheader", "--parsable2", "show", "configuration")
    cluster.wait_until(lambda: OF_SLURMDBD in cluster.run(*ask), "slurmdbd answers")


@pytest.mark.parametrize(
    ("kinds", "private"), [("events", False), ("usage", True), ("accounts,users", True)]
)
def test_slurmdbd_confs_privacy_is_kept(cluster: RealCluster, kinds: str, private: bool) -> None:
    set_in_slurmdbd_conf(cluster, kinds)
    assert cluster.driver().cluster().jobs_are_private is private


@pytest.mark.parametrize(
    ("script", "why"),
    [(None, "nonexistent"), ("exit 1", "shows no settings"), ("exec sleep 60", "1 s")],
)
def test_jobs_are_private_where_slurmdbd_does_not_say_that_they_are_not(
    cluster: RealCluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    script: str | None,
    why: str,
) -> None:
    """sacctmgr is missing, refuses, or hangs."""
    if not release.of(cluster.driver().cluster().version).shows_slurmdbd:
        pytest.skip("this release's sacctmgr does not tell slurmdbd's own settings")
    caplog.set_level(logging.INFO)
    set_in_slurmdbd_conf(cluster, "none")
    assert not cluster.driver().cluster().jobs_are_private
    sacctmgr = tmp_path / "sacctmgr"
    if script:
        sacctmgr.write_text(f"#!/bin/sh\n{script}\n")
        sacctmgr.chmod(0o755)
    name = str(sacctmgr) if script else "/nonexistent/sacctmgr"
    assert cluster.driver(sacctmgr=name, timeout_s=1.0).cluster().jobs_are_private
    assert "whether slurmdbd keeps jobs private is unknown" in caplog.text and why in caplog.text


@as_root
def test_a_users_report_hides_the_preemptor_of_a_job(cluster: RealCluster, readable: Path) -> None:
    set_in_slurmdbd_conf(cluster, "usage")
    with short_folder() as folder:
        controller = RealController(cluster, folder).start()
        command = (*NOBODY, "sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp")
        theirs = cluster.run(*command, *WHOLE_NODE, "--wrap=sleep 600").strip()
        controller.wait_for_tier(theirs, 1)
        ours = cluster.sbatch(*WHOLE_NODE, script="sleep 2")
        cluster.wait_for_state(ours, "COMPLETED")
        controller.wait_until(lambda: controller.events("preempted"), "the preemption is recorded")
        cluster.wait_for_state(theirs, "RUNNING")
        controller.wait_until(lambda: len(controller.runs(theirs)) == 2, "both are known")
        asked = ("report", "--json", "-S", "now-1hour")
        ended = subprocess.run(
            [*AS_NOBODY, "--config", str(controller.config_file), *asked],
            cwd=readable,
            env={**controller.environment, "PYTHONPATH": str(readable)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        report = json.loads(ended.stdout)
        assert report["only_of"] == "nobody" and report["jobs"]["there"] == 1
        found = report["preemptions"]
        assert (found["preemptions"], found["hidden"], found["moved_gpu_s"]) == (1, 1, 0)
        assert [(row["for_tier"], row["tier"]) for row in found["by_tier"]] == [(None, 1)]
        assert "root" not in ended.stdout
        held = [hold for node in controller.state().nodes for hold in node.held]
        assert [hold.job_id for hold in held] == [theirs], "root sees it all"
        controller.stop()
        cluster.run("scancel", theirs)
