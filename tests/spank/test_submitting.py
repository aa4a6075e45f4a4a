"""What users see of the plugin: its options, its refusals, and the resulting hint."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster
from slurm_tiresias.controller.bands import SITE_FACTOR_BAND, SITE_FACTOR_TOP_TIER, TOP_TIER
from slurm_tiresias.job_hints import Hints, hints_of
from slurm_tiresias.model import PlacementStyle
from slurm_tiresias.settings.preemption import Checkpoint
from tests.spank.plugin import LUA, PluginCluster

pytestmark = pytest.mark.slurm

NONSENSE = {
    "--tiresias-model": ["", "vgg 16", "x'; drop table profiles; --", "a" * 65, "a\nb"],
    "--tiresias-placement": ["packed", ""],
    "--tiresias-profile": ["yes"],
    "--tiresias-progress": ["yes", ""],
    "--tiresias-checkpoint": ["USR1", "KILL@60", "USR1@-1", "USR1@4000", "USR1@1e999"],
    "--tiresias-restart": ["", "many", "-1", "100"],
    "--tiresias-checkpoint-dir": ["", "run1", "/my runs", "/a/../b", "/a\nb", "/" + "a" * 256],
}

SUBMISSIONS = {
    "sbatch": ("sbatch", "--wrap", "true"),
    "srun": ("srun", "true"),
    "salloc": ("salloc", "true"),
}

GPU = "--gpus=1"


@pytest.mark.parametrize("command", SUBMISSIONS)
def test_the_help_shows_every_option(plugin: PluginCluster, command: str) -> None:
    shown = plugin.cluster.run(command, "--help")
    for option in NONSENSE:
        assert f"{option}=" in shown
    assert shown.count("[tiresias]") == len(NONSENSE)


@pytest.mark.parametrize("command", SUBMISSIONS)
def test_invalid_options_are_refused_and_create_no_job(plugin: PluginCluster, command: str) -> None:
    program, *rest = SUBMISSIONS[command]
    before = _all_jobs(plugin.cluster)
    for option, values in NONSENSE.items():
        for value in values:
            ended = _attempt(plugin.cluster, program, f"{option}={value}", *rest)
            assert ended.returncode != 0, (option, value)
            assert f"{command}: error: {option} takes " in ended.stderr
    assert _all_jobs(plugin.cluster) == before


def test_a_value_of_64_kilobytes_is_refused_with_the_reason(plugin: PluginCluster) -> None:
    for option in NONSENSE:
        ended = _attempt(plugin.cluster, "sbatch", f"{option}={'a' * 65536}", "--wrap", "true")
        assert ended.returncode != 0
        first, *others = ended.stderr.splitlines()
        assert first.startswith(f"sbatch: error: {option} takes ") and len(first) < 150
        assert len(others) <= 1  # Slurm's own, which repeats the value


def test_the_options_arrive_as_a_hint(plugin: PluginCluster) -> None:
    everything = (
        "--tiresias-restart=3",
        "--tiresias-checkpoint-dir=/scratch/ann/run1",
        "--tiresias-checkpoint=USR1@60",
        "--tiresias-profile=off",
        "--tiresias-placement=spread",
        "--tiresias-model=vgg16",
    )
    hint = "tiresias:model=vgg16,placement=spread,profile=off,checkpoint=USR1@60"
    hint += ",checkpoint-dir=/scratch/ann/run1,restart=3"
    assert _hint(plugin.cluster, *everything) == hint
    assert _hint(plugin.cluster, "--tiresias-model=resnet50") == "tiresias:model=resnet50"
    assert _hint(plugin.cluster, "--tiresias-checkpoint=SIGINT@0") == (
        "tiresias:checkpoint=SIGINT@0"
    )
    assert _hint(plugin.cluster) == ""


def test_the_longest_hint_arrives_and_a_comment_stays_the_users(plugin: PluginCluster) -> None:
    path = "/" + "a" * 255
    job = plugin.cluster.sbatch(
        *(f"--tiresias-checkpoint-dir={path}", f"--tiresias-model={'a' * 64}"),
        *("--tiresias-checkpoint=SIGVTALRM@3600", "--tiresias-placement=consolidate"),
        *("--tiresias-profile=auto", "--comment=ticket 7"),
    )
    hint = plugin.cluster.squeue_field(job, "admin_comment")
    assert hints_of(hint, "") == Hints(
        "a" * 64, PlacementStyle.CONSOLIDATE, Checkpoint("VTALRM", 3600.0), path
    )
    assert plugin.cluster.squeue_field(job, "comment") == "ticket 7"


def test_the_progress_option_is_passed_to_the_nodes_only(plugin: PluginCluster) -> None:
    assert _hint(plugin.cluster, "--tiresias-progress=auto") == ""
    both = ("--tiresias-progress=off", "--tiresias-model=vgg16")
    assert _hint(plugin.cluster, *both) == "tiresias:model=vgg16"


def test_the_command_line_wins_over_the_script(plugin: PluginCluster, tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.write_text("#!/bin/sh\n#SBATCH --tiresias-model=vgg16\nsleep 600\n")
    sbatch = ("sbatch", "--parsable", "--output=/dev/null")
    job = plugin.cluster.run(*sbatch, str(script)).strip()
    assert plugin.cluster.squeue_field(job, "admin_comment") == "tiresias:model=vgg16"
    job = plugin.cluster.run(*sbatch, "--tiresias-model=alexnet", str(script)).strip()
    assert plugin.cluster.squeue_field(job, "admin_comment") == "tiresias:model=alexnet"


def test_an_option_given_twice_takes_its_last_value_as_in_slurm(plugin: PluginCluster) -> None:
    twice = ("--tiresias-model=vgg16", "--tiresias-model=vgg19")
    assert _hint(plugin.cluster, *twice) == "tiresias:model=vgg19"


FORGED = {
    "model": "vgg16,placement=spread",
    "placement": "anywhere",
    "profile": "on off",
    "checkpoint": "USR1@99999",
    "checkpoint_dir": "/a,model=b",
}


def test_traffic_sent_by_a_forged_client_is_left_out(
    plugin: PluginCluster, forging_client: Mapping[str, str]
) -> None:
    for name, value in FORGED.items():
        for forged in (value, value + "\n", "KILL@60", "\x1b[2J", "a" * 65536, "%s%n", "/a/../b"):
            variable = {"FORGED_NAME": name, "FORGED_VALUE": forged}
            submitted = subprocess.run(
                ["sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 600"],
                env={**os.environ, **plugin.cluster.env, **forging_client, **variable},
                capture_output=True,
                text=True,
                check=True,
            )
            job = submitted.stdout.strip()
            assert plugin.cluster.squeue_field(job, "admin_comment") in ("", "(null)", "N/A")


def test_a_forged_client_that_sends_plausible_traffic_is_accepted(
    plugin: PluginCluster, forging_client: Mapping[str, str]
) -> None:
    environment = {**forging_client, "FORGED_NAME": "model", "FORGED_VALUE": "vgg16"}
    job = subprocess.run(
        ["sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 600"],
        env={**os.environ, **plugin.cluster.env, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert plugin.cluster.squeue_field(job, "admin_comment") == "tiresias:model=vgg16"


def test_a_job_to_be_managed_is_submitted_into_the_top_band(plugin: PluginCluster) -> None:
    for ask in (GPU, "--gpus-per-node=1", "--gres=gpu:1", "--gpus-per-task=1"):
        assert _priority(plugin.cluster, "--ntasks=1", ask) == TOP_TIER, ask
    assert _priority(plugin.cluster, GPU, "--partition=gpu") == TOP_TIER


@pytest.mark.parametrize(
    "options",
    [
        ("--ntasks=1",),
        (GPU, "--partition=other"),
        (GPU, "--partition=gpu,other"),
        (GPU, "--no-requeue"),
    ],
    ids=" ".join,
)
def test_other_jobs_keep_slurms_priority(plugin: PluginCluster, options: tuple[str, ...]) -> None:
    assert 0 < _priority(plugin.cluster, *options) < TOP_TIER // 2


def test_holds_and_operators_priorities_are_kept(plugin: PluginCluster) -> None:
    assert _priority(plugin.cluster, GPU, "--hold") == 0
    assert _priority(plugin.cluster, GPU, "--priority=17") == 17


SITES_OWN = """
dofile("{file}")

function slurm_job_submit(job_desc, part_list, submit_uid)
    tiresias_job_submit(nil, nil)
    job_desc.admin_comment = "ticket 7"
    tiresias_job_submit(job_desc, part_list)
    return slurm.SUCCESS
end

return slurm.SUCCESS
"""


@pytest.fixture
def sites_own(plugin: PluginCluster) -> Iterator[PluginCluster]:
    """A cluster with its own job_submit.lua, which calls ours, set to write site factors."""
    folder = plugin.folder / "own"
    folder.mkdir()
    ours = folder / "ours.lua"
    changed = LUA.read_text().replace('write = "priority"', 'write = "site-factor"')
    assert changed != LUA.read_text()
    ours.write_text(changed)
    theirs = folder / "job_submit.lua"
    theirs.write_text(SITES_OWN.format(file=ours))
    plugstack = plugin.cluster.folder / "etc" / "plugstack.conf"
    cluster = RealCluster(folder / "c")
    try:
        cluster.up(
            *("--nodes", "1", "--no-accounting", "--slurm-conf-line", "JobSubmitPlugins=lua"),
            *("--conf-file", str(theirs), "--conf-file", str(plugstack)),
        )
        yield PluginCluster(cluster, folder, plugin.library.parent)
    finally:
        cluster.down()
        shutil.rmtree(folder)


def test_the_script_works_with_a_sites_own_script_and_factors(sites_own: PluginCluster) -> None:
    cluster = sites_own.cluster
    assert _hint(cluster, "--tiresias-placement=auto") == "ticket 7 tiresias:placement=auto"
    assert _hint(cluster) == "ticket 7"
    born = _priority(cluster, GPU)
    assert SITE_FACTOR_TOP_TIER <= born < SITE_FACTOR_TOP_TIER + SITE_FACTOR_BAND


def test_an_error_in_the_script_is_logged_and_fails_no_submission(sites_own: PluginCluster) -> None:
    sites_own.cluster.sbatch()
    log = (sites_own.cluster.folder / "log" / "slurmctld.log").read_text()
    assert "slurm-tiresias: job_submit.lua: " in log


def _attempt(cluster: RealCluster, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cluster.folder,
        env={**os.environ, **cluster.env},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def _all_jobs(cluster: RealCluster) -> list[str]:
    return cluster.run("squeue", "-h", "-a", "-t", "all", "-o", "%i").split()


def _hint(cluster: RealCluster, *options: str) -> str:
    shown = cluster.squeue_field(cluster.sbatch(*options), "admin_comment")
    return "" if shown in ("(null)", "N/A") else shown


def _priority(cluster: RealCluster, *options: str) -> int:
    return int(cluster.squeue_field(cluster.sbatch(*options), "PriorityLong"))
