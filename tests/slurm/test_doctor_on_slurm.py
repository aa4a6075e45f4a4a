"""The doctor with a real Slurm: it finds the problems, and its own lines solve them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts import ROOT
from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import COMMAND
from slurm_tiresias.controller.bands import TOP_TIER
from slurm_tiresias.errors import NotRunningError, SlurmUnreachableError
from slurm_tiresias.slurm import release
from slurm_tiresias.status import published
from tests.other_user import as_root, command_line

WRONG = {
    "preempt-mode": ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"),
    "job-requeue": ("JobRequeue=0",),
    "job-file-append": ("JobFileAppend=0",),
    "kill-wait": ("KillWait=6",),
    "complete-wait": ("CompleteWait=3",),
    "priority-type": ("PriorityType=priority/basic",),
    "scheduler-type": ("SchedulerType=sched/builtin",),
    "min-job-age": ("MinJobAge=20",),
    "accounting-tres": ("AccountingStorageTRES=fs/disk",),
    "job-shrink": (
        "SchedulerParameters=bf_continue,defer,sched_min_interval=2000000,bf_window=99",
    ),
}
"""The settings, by the check that must find them."""

ALSO_WRONG = ("bf-continue", "defer", "sched-min-interval", "batch-sched-delay")
"""Words of the same SchedulerParameters."""

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        shutil.which("slurmctld", path="/usr/sbin:/usr/bin:/sbin:/bin") is None,
        reason="no slurmctld on this machine",
    ),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    """A cluster with many problems, until they are solved."""
    lines = [line for some in WRONG.values() for line in some]
    options = [word for line in lines for word in ("--slurm-conf-line", line)]
    with short_folder() as parent, started_cluster(parent, "--nodes", "2", *options) as started:
        yield started


def tiresias(
    cluster: RealCluster, *arguments: str, config: Path = Path("/nonexistent/tiresias.toml")
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env={**os.environ, **cluster.env, "TIRESIAS_CONFIG": str(config)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def diagnosis(cluster: RealCluster, **options: Path) -> tuple[int, dict[str, Any]]:
    ended = tiresias(cluster, "doctor", "--json", **options)
    assert ended.stderr == ""
    return ended.returncode, json.loads(ended.stdout)


def by_name(told: Mapping[str, Any]) -> dict[str, str]:
    return {each["name"]: each["severity"] for each in told["findings"]}


def paste(lines: Sequence[Mapping[str, str]], conf: Path) -> None:
    """Apply each line: write it where it says, or at the end."""
    text = conf.read_text().split("\n")
    for told in lines:
        if told["file"] != str(conf):
            continue
        if stands := re.fullmatch(r"instead of line (\d+)", told["place"]):
            text[int(stands[1]) - 1] = told["line"]
        else:
            text.append(told["line"])
    conf.write_text("\n".join(text) + "\n")


def restart_slurmctld(cluster: RealCluster) -> None:
    cluster.kill("slurmctld", signal="TERM")
    start_slurmctld(cluster)


def start_slurmctld(cluster: RealCluster) -> None:
    cluster.start("slurmctld")
    cluster.wait_until(lambda: _answers(cluster), "slurmctld answers again")


def _keeps_updates(cluster: RealCluster) -> bool:
    """Whether bf_continue does no harm on this release."""
    return release.of(cluster.driver().cluster().version).backfill_keeps_updates


def _answers(cluster: RealCluster) -> bool:
    try:
        return bool(cluster.driver().acting_host())
    except SlurmUnreachableError:
        return False


def test_doctor_finds_problems_and_its_lines_solve_them(cluster: RealCluster) -> None:
    code, told = diagnosis(cluster)
    found = by_name(told)
    assert code == 12, told
    harmless_here = {"bf-continue"} if _keeps_updates(cluster) else set()
    expected = {*WRONG, *ALSO_WRONG} - harmless_here
    assert {found[name] for name in expected} == {"warning", "note"}
    assert all(found[name] == "ok" for name in harmless_here)
    assert found["slurmctld"] == found["partitions"] == found["gpus"] == found["clock"] == "ok"

    # The problem of priority-type: a job that is not managed ranks above all tiers.
    job = cluster.sbatch("--gpus=1", "--hold")
    cluster.run("scontrol", "release", job)
    assert int(cluster.squeue_field(job, "PriorityLong")) > TOP_TIER
    cluster.run("scancel", job)

    lines = [
        line
        for finding in told["findings"]
        if finding["name"] in (*WRONG, *ALSO_WRONG)
        for line in finding["write"]
    ]
    paste(lines, conf_of(cluster))
    assert by_name(diagnosis(cluster)[1])["running-as-written"] == "warning"
    restart_slurmctld(cluster)

    code, mended = diagnosis(cluster)
    assert code == 0, [each for each in mended["findings"] if each["severity"] == "warning"]
    found = by_name(mended)
    assert {found[name] for name in (*WRONG, *ALSO_WRONG)} == {"ok"}
    # The doctor detects a priority set by another script, and its own commands undo it.
    running = [cluster.sbatch("--gres=gpu:4") for _ in range(2)]
    job = cluster.sbatch("--gres=gpu:4")
    for each in running:
        cluster.wait_for_state(each, "RUNNING")
    cluster.run("scontrol", "update", f"JobId={job}", "Priority=77")
    (pinned,) = (f for f in diagnosis(cluster)[1]["findings"] if f["name"] == "other-writers")
    assert pinned["severity"] == "warning"
    assert f"pinned the priority of job {job}, which" in pinned["seen"]
    for command in pinned["do"][0].partition("#")[0].split(";"):
        cluster.run(*command.split())
    assert by_name(diagnosis(cluster)[1])["other-writers"] == "ok"
    cluster.run("scancel", *running, job)
    # Other lines are unchanged.
    config = cluster.run("scontrol", "show", "config")
    assert re.search(r"^SchedulerParameters += (\S+,)?bf_window=99,", config, re.MULTILINE)


def conf_of(cluster: RealCluster) -> Path:
    return Path(cluster.env["SLURM_CONF"])


@as_root
def test_doctor_shows_a_user_the_same_findings_where_visible(cluster: RealCluster) -> None:
    ended = subprocess.run(
        [*command_line("slurm_tiresias.cli.doctor"), "doctor", "--json"],
        cwd=ROOT,
        env={**os.environ, **cluster.env, "TIRESIAS_CONFIG": "/nonexistent/tiresias.toml"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ended.stderr == ""
    told = json.loads(ended.stdout)
    _, seen_by_root = diagnosis(cluster)
    assert told["not_checked"] == []
    assert by_name(told) == by_name(seen_by_root)


def test_a_controller_starts_with_what_init_writes(cluster: RealCluster, tmp_path: Path) -> None:
    out, state_dir = tmp_path / "out", tmp_path / "state"
    written = tiresias(cluster, "init", str(out), "--state-dir", str(state_dir))
    assert written.returncode == 0, written.stderr
    assert "Manages gpu with 8 GPUs." in written.stdout
    config = out / "tiresias.toml"
    checked = tiresias(cluster, "config", "check", str(config))
    assert checked.returncode == 0 and "in shadow mode" in checked.stdout, checked.stderr

    waiting = cluster.sbatch("--gpus=1", "--hold")
    before = cluster.squeue_field(waiting, "PriorityLong")
    controller = subprocess.Popen(
        [*COMMAND, "controller", "--config", str(config)],
        cwd=ROOT,
        env={**os.environ, **cluster.env},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        cluster.wait_until(lambda: _mode(state_dir) == "shadow", "the first cycle in shadow mode")
        assert by_name(diagnosis(cluster, config=config)[1])["controller"] == "ok"
    finally:
        controller.terminate()
        _, log = controller.communicate(timeout=PATIENCE_S)
    assert controller.returncode == 0, log
    assert cluster.squeue_field(waiting, "PriorityLong") == before
    cluster.run("scancel", waiting)
    told = by_name(diagnosis(cluster, config=config)[1])
    assert (told["controller"], told["rights"], told["state-dir"]) == ("note", "ok", "ok")


def _mode(state_dir: Path) -> str:
    try:
        state = published.read(state_dir)
    except NotRunningError:
        return ""
    return state.mode if state.cycle else ""
