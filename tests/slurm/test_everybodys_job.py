"""Every kind of job is either scheduled correctly or left alone, and ``explain`` says which.

The cluster has four nodes of four GPUs, one licence, partitions that overlap, and private jobs.
"""

from __future__ import annotations

import getpass
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from tests.other_user import as_root, command_line

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
ONE_GPU = ("--gres=gpu:1", "--mem=100")
HOUR = "-t60"

Start = Callable[..., RealController]

NOBODY_ID = 65534
"""A number, because Slurm 26.05 does not find the user by name."""
NOBODY = ("setpriv", f"--reuid={NOBODY_ID}", f"--regid={NOBODY_ID}", "--clear-groups")
AS_NOBODY = command_line(
    *(f"slurm_tiresias.cli.{name}" for name in ("control", "explain", "history", "status")),
    "slurm_tiresias.explanation.array",
)


@pytest.fixture(scope="module")
def private_cluster() -> Iterator[RealCluster]:
    lines = ("--slurm-conf-line", "Licenses=solver:1", "--slurm-conf-line", "PrivateData=jobs")
    options = ("--partition", "gpu", "wide", "narrow", "small", *lines)
    with short_folder() as folder, started_cluster(folder, *options) as cluster:
        cluster.run("scontrol", "update", "PartitionName=narrow", "Nodes=n2")
        cluster.run("scontrol", "update", "PartitionName=small", "MaxNodes=2")
        yield cluster


@pytest.fixture
def cluster(private_cluster: RealCluster) -> RealCluster:
    """The cluster with no job and every node idle."""
    if os.geteuid() == 0:
        private_cluster.run("scancel", f"--user={NOBODY_ID}")
    private_cluster.clean()
    return private_cluster


@pytest.fixture
def start(cluster: RealCluster) -> Iterator[Start]:
    """Start a controller with settings, in a folder that other users may read."""
    started: list[RealController] = []
    with short_folder() as folder:

        def start_one(**settings: dict[str, object]) -> RealController:
            managed: dict[str, dict[str, object]] = {
                "manage": {"partitions": ["gpu", "wide", "narrow", "small"]}
            }
            controller = RealController(cluster, folder, managed | settings)
            started.append(controller)
            return controller.start()

        yield start_one
        for controller in started:
            controller.kill()


def wall_on(cluster: RealCluster, controller: RealController, *options: str) -> dict[str, str]:
    """A job in the lower tier on every node that holds all its GPUs, by node."""
    nodes = ("n1", "n2", "n3", "n4")
    wall = {node: cluster.sbatch(*WHOLE_NODE, "-w", node, *options) for node in nodes}
    for job in wall.values():
        controller.wait_for_tier(job, 1)
    return wall


def requeued(cluster: RealCluster, wall: dict[str, str]) -> set[str]:
    """The nodes whose jobs were preempted."""
    return {node for node, job in wall.items() if cluster.squeue_field(job, "RestartCnt") != "0"}


def explained(controller: RealController, job: str) -> str:
    ended = controller.cli("explain", job)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def _is_told(controller: RealController, job: str, why: str) -> bool:
    return why in explained(controller, job)


def record(cluster: RealCluster, job: str) -> list[str]:
    """All fields of a job that a controller could write."""
    shown = cluster.run("scontrol", "show", "job", job)
    written = r"(?:Priority|Nice|Restarts|Requeue|ReqNodeList|Features|TRES|TimeLimit)=\S*"
    return re.findall(written, shown)


@contextmanager
def reserved(cluster: RealCluster, nodes: str, start: str, *more: str) -> Iterator[None]:
    what = (
        f"Nodes={nodes}",
        f"StartTime={start}",
        "Duration=10",
        f"Users={getpass.getuser()}",
        *more,
    )
    cluster.run("scontrol", "create", "reservation", "ReservationName=theirs", *what)
    try:
        yield
    finally:
        cluster.run("scancel", "--reservation=theirs")
        cluster.run("scontrol", "delete", "ReservationName=theirs")


def test_no_job_is_preempted_for_jobs_that_slurm_would_not_start_and_explain_says_why(
    cluster: RealCluster, start: Start
) -> None:
    controller = start()
    wall = wall_on(cluster, controller, "-t5")
    has_the_licence = cluster.sbatch("-c1", "--mem=100", "-L", "solver:1")
    cluster.wait_for_state(has_the_licence, "RUNNING")
    with reserved(cluster, "n4", "now+8hours"):
        kinds = {
            "Dependency": ("--dependency=afterany:" + wall["n1"],),
            "BeginTime": ("--begin=now+1hour",),
            "Licenses": ("-L", "solver:1"),
            "It is held": ("--hold",),
            "submitted with --no-requeue": ("--no-requeue",),
            "heterogeneous": (":", *ONE_GPU),
            "runs in reservation theirs": ("--reservation=theirs",),
            "PartitionNodeLimit": ("-N3", "-p", "small"),
        }
        jobs = {why: cluster.sbatch(*WHOLE_NODE, *options) for why, options in kinds.items()}
        jobs["heterogeneous"] += "+0"
        left_alone = list(jobs.values())[5:7]
        before = [record(cluster, job) for job in left_alone]
        controller.wait_for_reason(jobs["Licenses"], "slurm-waits")
        controller.cycles(4)
        for why, job in jobs.items():
            # Any write to a job makes Slurm forget its reason until it tries the job again.
            controller.wait_until(partial(_is_told, controller, job, why), f"{job}: {why}")
        assert [record(cluster, job) for job in left_alone] == before
        assert requeued(cluster, wall) == set()
        for job in jobs.values():
            assert cluster.squeue_field(job, "State") == "PENDING"


def test_het_jobs_start_whole_and_keep_their_resources(cluster: RealCluster, start: Start) -> None:
    for node in ("n1", "n2", "n3"):
        cluster.wait_for_state(cluster.sbatch(*WHOLE_NODE, "-w", node, "--no-requeue"), "RUNNING")
    het = cluster.sbatch(*ONE_GPU, ":", "-N2", *WHOLE_NODE)
    controller = start()
    # One of its components would fit on n4. A managed job may use that room.
    managed = cluster.sbatch(*WHOLE_NODE)
    cluster.wait_for_state(managed, "RUNNING")
    controller.wait_for_tier(managed, 1)
    assert "heterogeneous" in explained(controller, f"{het}+1")
    cluster.run("scancel", "--state=RUNNING", "--me")
    for part in ("+0", "+1"):
        cluster.wait_for_state(het + part, "RUNNING")
    controller.wait_until(lambda: controller.state().gpus.others == 9, "its GPUs are taken")
    urgent = cluster.sbatch("-N2", *WHOLE_NODE)
    controller.wait_for_reason(urgent, "no-room")
    assert {b.protection for b in controller.job(urgent).blockers} == {"unmanaged"}  # type: ignore[union-attr]


def test_no_job_is_placed_on_nodes_reserved_too_soon(cluster: RealCluster, start: Start) -> None:
    controller = start()
    with reserved(cluster, "n[1-2]", "now+30minutes"):
        wall = wall_on(cluster, controller, "-t5")
        cluster.run("scancel", wall.pop("n1"), wall.pop("n2"))
        long = cluster.sbatch("-N2", *WHOLE_NODE, HOUR)
        cluster.wait_for_state(long, "RUNNING")
        assert cluster.squeue_field(long, "NodeList") == "n[3-4]"
        assert requeued(cluster, wall) == {"n3", "n4"}
        longer = cluster.sbatch(*WHOLE_NODE, "-w", "n1", HOUR)
        controller.wait_until(
            lambda: (job := controller.job(longer)) and job.reason in ("reserved", "slurm-waits"),
            "it waits for the reservation",
        )
        assert "reserved for other" in explained(controller, longer)
        short = cluster.sbatch(*WHOLE_NODE, "-w", "n2", "-t5")
        cluster.wait_for_state(short, "RUNNING")


@as_root
def test_with_charge_by_account_a_colleagues_job_starts_with_the_accounts_service(
    cluster: RealCluster, start: Start
) -> None:
    cluster.run("sacctmgr", "-i", "add", "account", "lab,office")
    cluster.run("sacctmgr", "-i", "add", "user", "root,nobody", "account=lab,office")
    controller = start(policy={"thresholds_gpu_s": [8], "charge": "account"})
    first = cluster.sbatch(*WHOLE_NODE, "-A", "lab", script="sleep 3")
    cluster.wait_for_state(first, "COMPLETED")
    command = (*NOBODY, "sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", "--hold")
    colleagues = cluster.run(*command, *WHOLE_NODE, "-A", "lab", "--wrap=true").strip()
    controller.wait_for_tier(colleagues, 1)
    paid_by_another = cluster.sbatch(*WHOLE_NODE, "--hold", "-A", "office")
    controller.wait_for_tier(paid_by_another, 0)
    said = explained(controller, colleagues)
    assert "more count for its tier: the service of runs of other jobs of its account" in said
    assert "of its account" not in explained(controller, paid_by_another)


@as_root
def test_with_private_data_all_jobs_are_scheduled_and_users_see_only_own_ones(
    cluster: RealCluster, start: Start
) -> None:
    controller = start()
    wall = wall_on(cluster, controller)
    command = (*NOBODY, "sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp")
    theirs = cluster.run(*command, *ONE_GPU, "--wrap=sleep 600").strip()
    cluster.wait_for_state(theirs, "RUNNING")
    assert len(requeued(cluster, wall)) == 1
    controller.wait_until(lambda: controller.events("preempted"), "the preemption is recorded")
    assert f"Job {theirs} (wrap) of nobody" in as_nobody(controller, "explain", theirs)
    shown = as_nobody(controller, "status")
    assert "jobs are private here: only those of nobody" in shown and "root" not in shown
    assert "knows no job" in as_nobody(controller, "explain", wall["n1"])
    assert "root" in controller.cli("status").stdout
    for file in ("state.json", "ledger.sqlite", "profiles.sqlite", "lock"):
        assert (controller.state_dir / file).stat().st_mode & 0o777 == 0o600, file
    assert "may not control the controller" in as_nobody(controller, "pause")


def as_nobody(controller: RealController, *arguments: str) -> str:
    """Return everything that another user can see."""
    config = ("--config", str(controller.config_file))
    ended = subprocess.run(
        [*AS_NOBODY, *config, *arguments],
        env=controller.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout + ended.stderr
