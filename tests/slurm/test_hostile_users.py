"""A user without special rights cannot harm other users.

A cluster with etc/job_submit.lua, a controller that acts as SlurmUser, and two users: the attacker
and an honest one. Each test is one attack, as docs/explanation/security.md lists them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_cluster import job as observed
from scripts.testbed.real_controller import RealController, logged_cycles, only_by_commands
from slurm_tiresias.controller import bands
from tests.other_user import as_root

LUA = Path(__file__).parents[2] / "etc" / "job_submit.lua"
SNOOP = Path(__file__).with_name("snoop.py")
ODD_WORD = re.compile(r"[^\w\0]*[\x01-\x1f]+[^,\0]*|[0-9a-f]{8,}")
"""Words with control characters, and long numbers: what may be meant to be unguessable."""
ATTACKER_ID = 65534
WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
LONGEST_CYCLE_S = 1.0

Start = Callable[..., RealController]

pytestmark = [pytest.mark.slurm, as_root]


@pytest.fixture(scope="module")
def attacked_cluster() -> Iterator[RealCluster]:
    with short_folder() as folder:
        lua = folder / "job_submit.lua"
        leaving = 'exclude = { "user=daemon", "account=left-alone" }'
        lua.write_text(LUA.read_text().replace("exclude = {}", leaving))
        lines = ("--slurm-conf-line", "JobSubmitPlugins=lua")
        options = ("--nodes", "4", "--gpus", "4", "--partition", "gpu", "other", *lines)
        with started_cluster(folder, *options, "--conf-file", str(lua)) as cluster:
            yield cluster


@pytest.fixture
def cluster(attacked_cluster: RealCluster) -> RealCluster:
    attacked_cluster.run("scancel", f"--user={ATTACKER_ID}")
    attacked_cluster.clean()
    return attacked_cluster


@pytest.fixture
def start(cluster: RealCluster) -> Iterator[Start]:
    """Starts a controller with settings."""
    started: list[RealController] = []
    with short_folder() as folder:

        def start_one(**settings: dict[str, object]) -> RealController:
            controller = RealController(cluster, folder, settings)
            started.append(controller)
            return controller.start("-v")

        yield start_one
        for controller in started:
            controller.end()


def as_attacker(cluster: RealCluster, *command: str) -> str:
    rights = (f"--reuid={ATTACKER_ID}", f"--regid={ATTACKER_ID}", "--clear-groups")
    return cluster.run("setpriv", *rights, *command)


def attacks(cluster: RealCluster, *options: str, script: str = "sleep 600") -> str:
    """Submit a job of the attacker; return its id."""
    wrapped = ("--parsable", "--output=/dev/null", "--chdir=/tmp", *options, "--wrap", script)
    return as_attacker(cluster, "sbatch", *wrapped).strip()


def changes(cluster: RealCluster, job: str, *what: str) -> None:
    """Change one of the attacker's jobs as the attacker. In Slurm 26.05 an update of the partition
    sometimes fails because of an error number left by an earlier call."""
    command = ("scontrol", "update", f"JobId={job}", *what)
    for _ in range(20):
        try:
            as_attacker(cluster, *command)
            return
        except AssertionError as error:
            if "Resource temporarily unavailable" not in str(error):
                raise
    raise AssertionError(f"Slurm did not take {what}")


def is_scheduled(cluster: RealCluster, controller: RealController) -> None:
    """Check that an honest user's job completes, and that no cycle has failed."""
    honest = cluster.sbatch(*WHOLE_NODE, script="true")
    cluster.wait_for_state(honest, "COMPLETED")
    state = controller.state()
    assert state.failures == 0 and not state.failed_cycles, state.error


ODD_COUNTS = (
    *("gpu:x:0t", "gpu:x:0P", "gpu:1,gpu:x:0t", "gpu:a:0000000000"),
    *("gpu:+1", "gpu:1k", "gpu:-2", "gpu:x:-2"),
)


def test_an_unusually_spelled_gpu_count_fails_no_cycle(cluster: RealCluster, start: Start) -> None:
    controller = start()
    hostile: list[str] = []
    for gres in ODD_COUNTS:
        # Releases differ in what they refuse at submission.
        with suppress(AssertionError):
            hostile.append(attacks(cluster, "--hold", f"--gres={gres}"))
    assert len(hostile) >= len(ODD_COUNTS) - 1
    for job in hostile:
        controller.wait_until(lambda job=job: controller.job(job), "the job is seen")  # type: ignore[misc]
    is_scheduled(cluster, controller)
    cluster.run("scancel", *hostile)
    controller.cycles(2)
    is_scheduled(cluster, controller)


def test_an_odd_gpu_count_fails_no_first_cycle(cluster: RealCluster, start: Start) -> None:
    attacks(cluster, "--hold", "--gpus=x:0t")
    attacks(cluster, "--hold", "--gres=gpu:-2")
    is_scheduled(cluster, start())


def test_an_unreadable_job_is_left_alone_and_says_why(cluster: RealCluster, start: Start) -> None:
    controller = start()
    hostile = attacks(cluster, "--hold", "--gres=gpu:-2")
    controller.wait_until(lambda: controller.job(hostile), "the job is seen")
    said = controller.cli("explain", hostile).stdout
    assert "GPU count" in said and "gpu:-2" in said


def forgeries(first: int, count: int) -> str:
    """A comment whose lines look like the records of this many jobs."""
    return "\n" + "\n".join(f"JobId={number} " for number in range(first, first + count))


@only_by_commands
@pytest.mark.parametrize("when", ["before the controller starts", "while it runs"])
def test_forged_records_neither_slow_a_cycle_nor_hide_a_constraint(
    cluster: RealCluster, start: Start, when: str
) -> None:
    running = start() if when == "while it runs" else None
    first = int(cluster.sbatch("--hold", *WHOLE_NODE)) + 1
    for _ in range(60):
        attacks(cluster, "--hold", "--gres=gpu:1", "--comment", forgeries(first, 80))
    for node in ("n2", "n3", "n4"):
        cluster.sbatch(*WHOLE_NODE, "-w", node)
    choosy = cluster.sbatch(*WHOLE_NODE, "--exclude=n1", "--begin=now+1hour")
    waits = [cluster.sbatch("--hold", *WHOLE_NODE, "--exclude=n1") for _ in range(60)]
    controller = running or start()
    controller.cycles(8)
    seen = {job.key: job for job in cluster.driver().observe().jobs}
    hidden = [key for key in (choosy, *waits) if not seen[key].spec.request.excluded_nodes]
    assert not hidden
    is_scheduled(cluster, controller)
    # Without the writes: slurmctld 22.05 sleeps a second before it answers some of them.
    assert max(one.read_s + one.decided_s for one in logged_cycles(controller.stop())) < (
        LONGEST_CYCLE_S
    )


@only_by_commands
def test_what_proc_shows_of_commands_helps_no_attacker(cluster: RealCluster, start: Start) -> None:
    """Every user can read the command lines of others' processes. The attacker puts each odd word
    found there into the name, the comment and the network of jobs, alone and as a whole row."""
    controller = start(controller={"interval_s": 0.2})
    snooper = [sys.executable, str(SNOOP), str(ATTACKER_ID), "60"]
    told = json.loads(subprocess.run(snooper, capture_output=True, text=True, check=True).stdout)
    assert min(told["seen"].values()) >= 5 and len(told["seen"]) == 2, "it has seen all commands"
    assert not told["environments"]
    odd = {word for line in told["command_lines"] for word in ODD_WORD.findall(line)}
    victim = cluster.sbatch("--hold", *WHOLE_NODE)
    before = observed(cluster.driver().observe(), victim)
    for word in sorted(odd):
        for text in (word, f"{word}\n{victim}{word}{victim}{word}"):
            fields = ("--job-name", text, "--comment", text, "--network", text)
            attacks(cluster, "--hold", "--gres=gpu:1", *fields)
    controller.cycles(3)
    is_scheduled(cluster, controller)
    assert observed(cluster.driver().observe(), victim) == before
    assert not odd


def wall_of(cluster: RealCluster, controller: RealController, script: str = "sleep 600") -> str:
    """A job of the attacker on all nodes, in the lower tier."""
    wall = attacks(cluster, "-N4", *WHOLE_NODE, script=script)
    cluster.wait_for_state(wall, "RUNNING")
    controller.wait_for_tier(wall, 1)
    return wall


def is_preempted(cluster: RealCluster, controller: RealController, wall: str) -> None:
    """Check that an honest job gets the attacker's GPUs."""
    honest = cluster.sbatch(*WHOLE_NODE, script="true")
    cluster.wait_for_state(honest, "COMPLETED")
    controller.wait_until(
        lambda: (wall, honest) in controller.events("preempted"), "the wall has made room"
    )


def test_the_owner_cannot_forbid_a_running_jobs_requeue(cluster: RealCluster, start: Start) -> None:
    controller = start()
    forbid = "while true; do scontrol update JobId=$SLURM_JOB_ID Requeue=0; sleep 0.1; done"
    is_preempted(cluster, controller, wall_of(cluster, controller, forbid))


def priority_of(cluster: RealCluster, job: str) -> int:
    return int(cluster.squeue_field(job, "PriorityLong"))


HIGHEST_OUT_OF_BAND = {
    "Partition=other": bands.LOWEST["pinned"] - 1,
    # It may use its GPUs without limit, and is ranked after the last of two tiers.
    "Requeue=0": bands.TOP_TIER - bands.BAND - 1,
}


@pytest.mark.parametrize("change", HIGHEST_OUT_OF_BAND)
def test_an_unmanaged_job_loses_its_band(cluster: RealCluster, start: Start, change: str) -> None:
    controller = start()
    wall_of(cluster, controller)
    jumper = attacks(cluster, *WHOLE_NODE, script="true")
    assert priority_of(cluster, jumper) >= bands.TOP_TIER
    changes(cluster, jumper, change)
    controller.wait_until(
        lambda: priority_of(cluster, jumper) <= HIGHEST_OUT_OF_BAND[change], "it is taken back"
    )
    assert cluster.squeue_field(jumper, "State") == "PENDING", "it has not started meanwhile"


def test_a_job_that_leaves_its_band_does_not_start_before_its_priority_is_taken_back(
    cluster: RealCluster, start: Start
) -> None:
    """The other partition has room, and the next regular cycle is ten minutes away."""
    controller = start(controller={"interval_s": 600})
    jumper = attacks(cluster, *WHOLE_NODE, "--begin=now+2")
    changes(cluster, jumper, "Partition=other", "StartTime=now")
    eligible_s = observed(cluster.driver().observe(), jumper).eligible_s
    assert eligible_s is not None and eligible_s > time.time() + 10
    controller.command("nudge")
    controller.wait_until(
        lambda: not bands.is_in_a_band(priority_of(cluster, jumper), "pinned"), "it is taken back"
    )
    assert cluster.squeue_field(jumper, "State") == "PENDING"


@pytest.mark.parametrize("ask", ["--gres=gpu:0", "--gres=gpu:x:0t", "--gpus=0k"])
def test_a_job_without_gpus_is_not_submitted_into_a_band(cluster: RealCluster, ask: str) -> None:
    held = attacks(cluster, ask, "--begin=now+1hour")
    assert not bands.is_in_a_band(priority_of(cluster, held), "pinned")
    counted = attacks(cluster, "--gres=gpu:1", "--begin=now+1hour")
    assert priority_of(cluster, counted) == bands.TOP_TIER


def test_excluded_jobs_are_not_submitted_into_a_band(cluster: RealCluster) -> None:
    asked = ("--gres=gpu:1", "--begin=now+1hour")
    of_account = attacks(cluster, "--account=left-alone", *asked)
    wrapped = ("--parsable", "--chdir=/tmp", *asked, "--wrap", "true")
    of_user = cluster.run("setpriv", "--reuid=daemon", "--clear-groups", "sbatch", *wrapped).strip()
    for job in (of_account, of_user):
        assert not bands.is_in_a_band(priority_of(cluster, job), "pinned")
    cluster.run("scancel", of_user)
    other = attacks(cluster, "--account=physics", *asked)
    assert priority_of(cluster, other) == bands.TOP_TIER


def test_release_resets_priorities_without_a_record(cluster: RealCluster, start: Start) -> None:
    controller = start(controller={"interval_s": 600})
    born = attacks(cluster, *WHOLE_NODE, "--begin=now+1hour")
    assert priority_of(cluster, born) == bands.TOP_TIER
    changes(cluster, born, "Partition=other")
    assert controller.cli("hand-back").returncode == 0
    assert not bands.is_in_a_band(priority_of(cluster, born), "pinned")


def hunt(cluster: RealCluster, controller: RealController, goes_on: Callable[[], bool]) -> None:
    """The attacker's jobs request the attacked job's node, and end as soon as they have it."""
    while goes_on():
        if not as_attacker(cluster, "squeue", "-h", "--me").strip():
            attacks(cluster, *WHOLE_NODE, "-w", "n1", script="true")
        controller.cycles(1)


def hunted_job(cluster: RealCluster, controller: RealController) -> str:
    hunted = cluster.sbatch(*WHOLE_NODE, "-w", "n1")
    cluster.wait_for_state(hunted, "RUNNING")
    controller.wait_for_tier(hunted, 1)
    return hunted


@pytest.mark.long
def test_only_users_within_their_budgets_preempt(cluster: RealCluster, start: Start) -> None:
    controller = start(preemption={"budget_share": 0.0003})  # 17 GPU-seconds on 16 GPUs
    hunted = hunted_job(cluster, controller)
    give_up_s = time.monotonic() + PATIENCE_S

    def over_budget() -> list[str]:
        return [job.job_id for job in controller.state().jobs if job.reason == "over-budget"]

    hunt(cluster, controller, lambda: not over_budget() and time.monotonic() < give_up_s)
    [wants] = over_budget()
    assert int(cluster.squeue_field(hunted, "RestartCnt")) <= 4
    said = controller.cli("explain", wants).stdout
    assert "have recently cost other users" in said
    honest = cluster.sbatch(*WHOLE_NODE, "-w", "n1", script="true")
    cluster.wait_for_state(honest, "COMPLETED")
    elsewhere = attacks(cluster, *WHOLE_NODE, "-w", "n2", script="true")
    cluster.wait_for_state(elsewhere, "COMPLETED")
