"""Jobs at a prompt, and others that cannot be preempted, on a real cluster.

Two users submit to a cluster of four nodes with four GPUs each, which has etc/job_submit.lua.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController
from tests.other_user import as_root

LUA = Path(__file__).parents[2] / "etc" / "job_submit.lua"
ANOTHER_USER = 65534
WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
ONE_GPU = ("--gpus=1", "--mem=100")
LEAVES_AT_ONCE = "exec sleep 600"
"""A job that does not ignore SIGTERM."""

SALLOC = ("salloc", *ONE_GPU, "--kill-command")
"""A command that ends with its job; a shell at a terminal would stay."""

pytestmark = [pytest.mark.slurm, as_root]


@pytest.fixture(scope="module")
def nudge_file() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "nudge"


@pytest.fixture(scope="module")
def cluster_with_lua(nudge_file: Path) -> Iterator[RealCluster]:
    with short_folder() as folder:
        lua, text = folder / "job_submit.lua", LUA.read_text()
        lua.write_text(text.replace("/run/slurm-tiresias-controller/nudge", str(nudge_file)))
        lines = ("--slurm-conf-line", "JobSubmitPlugins=lua")
        options = ("--nodes", "4", "--gpus", "4", *lines, "--conf-file", str(lua))
        with started_cluster(folder, *options) as cluster:
            yield cluster


@pytest.fixture
def cluster(cluster_with_lua: RealCluster) -> RealCluster:
    cluster_with_lua.run("scancel", f"--user={ANOTHER_USER}")
    cluster_with_lua.clean()
    return cluster_with_lua


Start = Callable[..., RealController]


@pytest.fixture
def start(cluster: RealCluster, nudge_file: Path) -> Iterator[Start]:
    """Start controllers with settings; those that still run at the end are killed."""
    started: list[RealController] = []
    with short_folder() as folder:

        def start_one(**settings: dict[str, object]) -> RealController:
            own = {"nudge_file": str(nudge_file), **settings.pop("controller", {})}
            tiers = settings.pop("policy", {"thresholds_gpu_s": [2]})
            controller = RealController(
                cluster, folder, {"controller": own, "policy": tiers, **settings}
            )
            started.append(controller)
            return controller.start()

        yield start_one
        for controller in started:
            controller.end()


class Prompts:
    """Terminals with one salloc or srun each."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._opened: list[subprocess.Popen[str]] = []

    def open(self, *command: str, user: int | None = None) -> str:
        """Start a command without waiting for its job to start; return the job's id."""
        before = self._jobs()
        rights = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
        as_user = ("setpriv", *rights) if user is not None else ()
        self._opened.append(
            subprocess.Popen(
                [*as_user, *command, "sleep", "600"],
                env={**os.environ, **self._cluster.env},
                cwd="/tmp",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        new: set[str] = set()

        def has_come() -> bool:
            new.update(self._jobs() - before)
            return bool(new)

        self._cluster.wait_until(has_come, "its job is there")
        (job,) = new
        return job

    def _jobs(self) -> set[str]:
        return set(self._cluster.run("squeue", "-h", "-o", "%A").split())

    def interrupt_last(self) -> str:
        """Press Ctrl-C in the last one; return what it has said."""
        last = self._opened.pop()
        last.send_signal(2)
        _, said = last.communicate(timeout=PATIENCE_S)
        return said

    def close(self) -> None:
        self._cluster.run("scancel", "--me")
        self._cluster.run("scancel", f"--user={ANOTHER_USER}")
        for one in self._opened:
            one.communicate(timeout=PATIENCE_S)


@pytest.fixture
def prompts(cluster: RealCluster) -> Iterator[Prompts]:
    opened = Prompts(cluster)
    yield opened
    opened.close()


def fill(cluster: RealCluster, controller: RealController) -> list[str]:
    """Single-GPU jobs in the lower tier that hold all GPUs."""
    wall = [cluster.sbatch(*ONE_GPU, script=LEAVES_AT_ONCE) for _ in range(16)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    return wall


def priority(cluster: RealCluster, job: str) -> int:
    return int(cluster.squeue_field(job, "PriorityLong"))


def states(cluster: RealCluster, jobs: list[str]) -> list[str]:
    return [cluster.squeue_field(job, "State") for job in jobs]


def restarts(cluster: RealCluster, jobs: list[str]) -> int:
    return sum(int(cluster.squeue_field(job, "RestartCnt")) for job in jobs)


@pytest.mark.parametrize(
    "command", [SALLOC, pytest.param(("srun", *ONE_GPU), marks=pytest.mark.long)]
)
def test_a_job_at_a_prompt_starts_long_before_the_next_cycle_on_a_full_cluster(
    cluster: RealCluster, start: Start, prompts: Prompts, command: tuple[str, ...]
) -> None:
    quick = start()
    fill(cluster, quick)
    quick.stop()
    # job_submit.lua nudges this one.
    start(controller={"interval_s": 3 * PATIENCE_S})
    cluster.wait_for_state(prompts.open(*command), "RUNNING")


def test_a_user_gets_what_the_bound_allows_and_another_user_too(
    cluster: RealCluster, start: Start, prompts: Prompts
) -> None:
    controller = start(interactive={"gpus_per_user": 2})
    wall = fill(cluster, controller)
    shells = [prompts.open(*SALLOC, "--time=60") for _ in range(10)]
    for job in shells[:2]:
        cluster.wait_for_state(job, "RUNNING")
    for job in shells[2:]:
        controller.wait_for_reason(job, "idle-only")
    of_another = prompts.open(*SALLOC, "--time=60", user=ANOTHER_USER)
    cluster.wait_for_state(of_another, "RUNNING")
    controller.cycles(4)
    assert states(cluster, shells) == ["RUNNING"] * 2 + ["PENDING"] * 8
    assert restarts(cluster, wall) == 3
    said = " ".join(controller.cli("explain", shells[2]).stdout.split())
    assert "its user's other jobs at a prompt have 2 of the 2 that go first" in said
    assert "It runs until it ends." in controller.cli("explain", shells[0]).stdout
    shown = controller.cli("status", "--format", "JOBID,LANE").stdout.splitlines()
    lanes = dict(line.split()[:2] for line in shown if len(line.split()) == 2)
    assert lanes[shells[0]] == "interactive" and lanes[shells[2]] == "idle-only"

    # If it is killed, the next controller knows the present and past use of the lane.
    controller.kill()
    controller.start()
    controller.cycles(4)
    assert states(cluster, shells) == ["RUNNING"] * 2 + ["PENDING"] * 8
    cluster.run("scancel", shells[0])
    cluster.wait_for_state(shells[2], "RUNNING")
    controller.cycles(4)
    assert states(cluster, shells[1:]) == ["RUNNING"] * 2 + ["PENDING"] * 7


def test_a_prompt_cancelled_before_its_start_preempts_no_further_job(
    cluster: RealCluster, start: Start, prompts: Prompts
) -> None:
    controller = start(preemption={"checkpoint": "USR1@3"})
    wall = [
        cluster.sbatch(*WHOLE_NODE, script="trap '' USR1; while :; do sleep 0.1; done")
        for _ in range(4)
    ]
    for job in wall:
        controller.wait_for_tier(job, 1)
    shell = prompts.open(*SALLOC)
    controller.wait_for_reason(shell, "nominated")
    prompts.interrupt_last()
    controller.wait_until(lambda: controller.job(shell) is None, "its job is gone")
    controller.cycles(10)
    assert restarts(cluster, wall) == 0
    assert set(states(cluster, wall)) == {"RUNNING"}


def test_a_waiting_job_with_raised_limits_waits_for_the_controller(
    cluster: RealCluster, start: Start, prompts: Prompts
) -> None:
    controller = start(preemption={"min_run_s": 600})
    fill(cluster, controller)
    shell = prompts.open(*SALLOC, "--time=60", user=ANOTHER_USER)
    controller.wait_for_reason(shell, "protected")

    def lane() -> str:
        job = controller.job(shell)
        return job.lane if job else ""

    assert lane() == "interactive"
    controller.command("pause")
    rights = (f"--reuid={ANOTHER_USER}", f"--regid={ANOTHER_USER}", "--clear-groups")
    raise_limit = ("scontrol", "update", f"JobId={shell}", "TimeLimit=6000")
    cluster.run("setpriv", *rights, *raise_limit)
    began = cluster.squeue_field(shell, "SubmitTime")
    assert cluster.squeue_field(shell, "EligibleTime") > began
    controller.command("resume")
    controller.wait_until(lambda: lane() == "idle-only", "it has left the lane")
