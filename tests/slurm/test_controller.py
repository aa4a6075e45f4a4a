"""The controller on a real cluster of four nodes with four GPUs each."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.status.job_history import PAUSES
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.terms import newest_ledger
from tests.other_user import as_root, command_line

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
ONE_GPU = ("--gres=gpu:1", "--mem=100")
SHORT = "sleep 10"
TRAIN = Path(__file__).parents[2] / "examples" / "train.py"

Start = Callable[..., RealController]


@pytest.fixture
def start(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[Start]:
    """Start controllers with settings; those that still run at the end are killed."""
    started: list[RealController] = []

    def start_one(
        *options: str, folder: str = "one", **settings: dict[str, object]
    ) -> RealController:
        (tmp_path / folder).mkdir(exist_ok=True)
        controller = RealController(clean_cluster, tmp_path / folder, settings)
        started.append(controller)
        return controller.start(*options)

    yield start_one
    for controller in started:
        controller.end()


def fill(cluster: RealCluster, controller: RealController, *options: str) -> list[str]:
    """Four jobs in the lower tier that hold all GPUs."""
    wall = [cluster.sbatch(*WHOLE_NODE, *options) for _ in range(4)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    return wall


def restarts(cluster: RealCluster, job: str) -> int:
    return int(cluster.squeue_field(job, "RestartCnt"))


def priority(cluster: RealCluster, job: str) -> int:
    return int(cluster.squeue_field(job, "PriorityLong"))


def all_fields(cluster: RealCluster) -> str:
    """Everything that scontrol shows about every job, except values that change with time."""
    shown = cluster.run("scontrol", "-d", "show", "job")
    passing = r"(RunTime|LastSchedEval|(Accrue|Start|End)Time|Deadline|SchedNodeList|Scheduler)=\S*"
    return re.sub(passing, "", re.sub(r"Reason=\S+", "", shown))


def test_a_short_job_on_a_full_cluster_of_long_ones_runs_within_ten_cycles(
    clean_cluster: RealCluster, start: Start
) -> None:
    """Usually within six cycles; while Slurm is slow, the controller runs more cycles at shorter
    intervals."""
    controller = start()
    wall = fill(clean_cluster, controller)
    short = clean_cluster.sbatch(*ONE_GPU, script=SHORT)
    controller.wait_until(lambda: controller.job(short), "the short job is seen")
    seen_in = controller.state().cycle
    clean_cluster.wait_for_state(short, "RUNNING")
    assert controller.state().cycle - seen_in <= 10
    victims = [job for job in wall if restarts(clean_cluster, job) == 1]
    assert len(victims) == 1
    controller.wait_until(lambda: controller.events("preempted"), "the preemption is recorded")
    assert controller.events("preempted") == [(victims[0], short)]
    clean_cluster.wait_for_state(short, "COMPLETED")
    clean_cluster.wait_for_state(victims[0], "RUNNING")
    assert clean_cluster.squeue_field(victims[0], "ReqNodes") == ""


def test_a_preempted_job_resumes_from_its_checkpoint_and_does_every_step_once(
    clean_cluster: RealCluster, start: Start, tmp_path: Path
) -> None:
    controller = start()

    def train(folder: Path, *arguments: str) -> str:
        return f"exec {sys.executable} {TRAIN} --dir {folder} --steps 60 {' '.join(arguments)}"

    folders = [tmp_path / f"run{number}" for number in range(4)]
    wall = [
        clean_cluster.sbatch(*WHOLE_NODE, script=train(folder, "--step-seconds", "0.2"))
        for folder in folders
    ]
    for job in wall:
        controller.wait_for_tier(job, 1)
    short = clean_cluster.sbatch("-N2", *WHOLE_NODE, script=SHORT)
    clean_cluster.wait_for_state(short, "RUNNING")
    for job in wall:
        clean_cluster.wait_for_state(job, "COMPLETED")
    proofs = [
        json.loads(clean_cluster.run("bash", "-c", train(folder, "--verify"))) for folder in folders
    ]
    assert all(proof["each_step_once"] and proof["steps"] == 60 for proof in proofs)
    assert sorted(proof["restarts"] for proof in proofs) == [0, 0, 1, 1]


def test_running_jobs_that_are_left_alone_are_neither_rewritten_nor_preempted_but_count(
    clean_cluster: RealCluster, start: Start
) -> None:
    no_requeue = clean_cluster.sbatch(*WHOLE_NODE, "--no-requeue")
    foreign = clean_cluster.sbatch(*WHOLE_NODE, "-p", "other")
    cpu_only = clean_cluster.sbatch("-c4", "--mem=100")
    held = clean_cluster.sbatch(*ONE_GPU, "--hold")
    srun = ["srun", *WHOLE_NODE, "sleep", "600"]
    interactive = subprocess.Popen(srun, env={**os.environ, **clean_cluster.env})
    controller = start()
    try:
        controller.wait_until(lambda: controller.state().gpus.managed == 8, "two hold 8")
        assert controller.state().gpus.others == 4
        before = all_fields(clean_cluster)
        long = clean_cluster.sbatch(*WHOLE_NODE)
        controller.wait_for_tier(long, 1)
        # It takes the GPUs of the only managed job, although the others have run longer.
        urgent = clean_cluster.sbatch(*WHOLE_NODE)
        clean_cluster.wait_for_state(urgent, "RUNNING")
        next_one = clean_cluster.sbatch("-N3", *WHOLE_NODE)
        controller.wait_for_reason(next_one, "no-room")
        after = all_fields(clean_cluster)
    finally:
        interactive.terminate()
        interactive.wait()
    for job in (no_requeue, foreign, cpu_only, held):
        assert _record(before, job) == _record(after, job)
    assert restarts(clean_cluster, long) == 1
    assert priority(clean_cluster, held) == 0


def _record(shown: str, job: str) -> str:
    return next(part for part in shown.split("\n\n") if part.startswith(f"JobId={job} "))


def test_array_tasks_are_preempted_one_by_one(clean_cluster: RealCluster, start: Start) -> None:
    controller = start()
    array = clean_cluster.sbatch(*WHOLE_NODE, "--array=0-5")
    for task in range(4):
        controller.wait_for_tier(f"{array}_{task}", 1)
    # Tasks 4 and 5 never ran: they are in the top tier and preempt two tasks of their array.
    for task in (4, 5):
        clean_cluster.wait_for_state(f"{array}_{task}", "RUNNING")
    counts = [restarts(clean_cluster, f"{array}_{task}") for task in range(6)]
    assert sorted(counts[:4]) == [0, 0, 1, 1]
    victims = {f"{array}_{task}" for task in range(4) if counts[task]}
    controller.wait_until(
        lambda: {key for key, _ in controller.events("preempted")} == victims, "both recorded"
    )


def test_a_waiting_array_is_pinned_in_one_record(clean_cluster: RealCluster, start: Start) -> None:
    controller = start(policy={"thresholds_gpu_s": [100000]})
    for _ in range(4):
        clean_cluster.sbatch(*WHOLE_NODE)
    array = clean_cluster.sbatch(*WHOLE_NODE, "--array=0-99")
    controller.wait_for_reason(f"{array}_50", "no-room")
    controller.wait_until(
        lambda: priority(clean_cluster, f"{array}_50") == 3_000_000_000, "the array is pinned"
    )
    assert controller.cli("hand-back").returncode == 0
    assert priority(clean_cluster, f"{array}_50") < 1000
    # Only the first task was ever changed individually: the others still share one record.
    records = clean_cluster.run("squeue", "-h", "-r", "-j", array, "-O", "JobID").split()
    assert set(records) == {array}


def test_an_admins_priority_is_repaired_and_told(clean_cluster: RealCluster, start: Start) -> None:
    controller = start(policy={"thresholds_gpu_s": [100000]})
    for _ in range(4):
        clean_cluster.sbatch(*WHOLE_NODE)
    waiting = clean_cluster.sbatch(*WHOLE_NODE)
    controller.wait_for_reason(waiting, "no-room")
    controller.cycles(1)
    clean_cluster.run("scontrol", "update", f"JobId={waiting}", "Priority=7")
    controller.wait_until(
        lambda: priority(clean_cluster, waiting) == 3_000_000_000, "the priority is repaired"
    )
    controller.wait_until(lambda: (waiting, "") in controller.events("repaired"), "and reported")


def test_shadow_mode_changes_no_field_of_any_job(clean_cluster: RealCluster, start: Start) -> None:
    for job in [clean_cluster.sbatch(*WHOLE_NODE) for _ in range(4)]:
        clean_cluster.wait_for_state(job, "RUNNING")
    array = clean_cluster.sbatch(*WHOLE_NODE, "--array=0-3")
    waiting = clean_cluster.sbatch(*ONE_GPU)
    clean_cluster.wait_until(
        lambda: clean_cluster.squeue_field(waiting, "Reason") != "None", "Slurm has looked at it"
    )
    before = all_fields(clean_cluster)
    controller = start("--shadow")
    controller.wait_until(lambda: controller.events("would"), "it would have preempted")
    controller.cycles(2)
    assert all_fields(clean_cluster) == before
    controller.wait_until(
        lambda: _would_have_gained(controller) == [f"{array}_{task}" for task in range(4)],
        "the tasks of the array would have started sooner",
    )


def _would_have_gained(controller: RealController) -> list[str]:
    report = json.loads(controller.cli("shadow", "report", "--json").stdout)
    assert report["disturbed"], "some job would have been preempted"
    return sorted(job["job_id"] for job in report["sooner"])


def test_attained_service_is_what_accounting_says(clean_cluster: RealCluster, start: Start) -> None:
    controller = start()
    wall = [clean_cluster.sbatch(*WHOLE_NODE) for _ in range(3)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    quick = clean_cluster.sbatch("--gres=gpu:2", "--mem=100", script="sleep 1")
    clean_cluster.wait_for_state(quick, "COMPLETED")
    clean_cluster.run("scontrol", "requeue", wall[0])
    controller.wait_until(lambda: controller.events("requeued"), "the requeue is seen")
    controller.stop()
    # While no controller runs: one job comes and goes, another is requeued, a third ends.
    unseen = clean_cluster.sbatch(*ONE_GPU, script="sleep 1")
    clean_cluster.run("scontrol", "requeue", wall[1])
    clean_cluster.run("scancel", wall[2])
    clean_cluster.wait_for_state(unseen, "COMPLETED")
    controller.start()
    jobs = [*wall, quick, unseen]

    def agree() -> bool:
        driver = clean_cluster.driver()
        told = {job: [i for i in driver.runs([job], 0) if i.elapsed_s] for job in jobs}
        kept = {job: [i for i in controller.runs(job) if i.elapsed_s] for job in jobs}
        return all(
            len(told[job]) == len(kept[job])
            and all(
                abs(a.elapsed_s - b.elapsed_s) <= 1 and a.gpus == b.gpus
                for a, b in zip(told[job], kept[job], strict=True)
            )
            for job in jobs
        )

    controller.wait_until(agree, "the ledger agrees with sacct -D")


def test_pause_stops_and_release_gives_all_back(clean_cluster: RealCluster, start: Start) -> None:
    waiting = clean_cluster.sbatch(*WHOLE_NODE, "--begin=now+1hour")
    natural = priority(clean_cluster, waiting)
    controller = start()
    wall = fill(clean_cluster, controller)
    controller.wait_until(lambda: priority(clean_cluster, waiting) == 3_000_000_000, "pinned")
    assert controller.command("pause")["mode"] == "paused"
    short = clean_cluster.sbatch(*ONE_GPU, script=SHORT)
    controller.cycles(3)
    assert clean_cluster.squeue_field(short, "State") == "PENDING"
    assert controller.command("resume")["mode"] == "enforce"
    clean_cluster.wait_for_state(short, "RUNNING")
    assert controller.cli("hand-back").returncode == 0
    for job in (waiting, *wall):
        if clean_cluster.squeue_field(job, "State") == "PENDING":
            assert priority(clean_cluster, job) <= natural + 1
            assert clean_cluster.squeue_field(job, "ReqNodes") == ""
    controller.cycles(3)
    assert priority(clean_cluster, waiting) <= natural + 1
    told = [(e.kind, e.text) for e in controller.state().events if e.kind in PAUSES]
    assert told == [("paused", by_me()), ("resumed", by_me()), ("paused", by_me())]
    assert f"paused: {by_me()}" in controller.stop()
    assert controller.cli("resume").returncode == 0
    with closing(Ledger(newest_ledger(controller.state_dir))) as ledger:
        assert [event.text for event in ledger.events.of_kind("resumed", 0.0)] == [by_me()] * 2


def test_one_job_is_handed_back_another_boosted(clean_cluster: RealCluster, start: Start) -> None:
    parked = clean_cluster.sbatch(*WHOLE_NODE, "--begin=now+1hour")
    controller = start()

    def pinned() -> bool:
        return priority(clean_cluster, parked) == 3_000_000_000

    controller.wait_until(pinned, "pinned")
    assert controller.cli("hand-back", parked).returncode == 0
    assert not pinned()
    assert "handed it back to Slurm" in controller.cli("explain", parked).stdout
    controller.cycles(3)
    assert not pinned()
    assert controller.cli("resume", parked).returncode == 0
    controller.wait_until(pinned, "managed again")
    victim, boosted, *_ = fill(clean_cluster, controller)
    assert controller.cli("boost", boosted, "--until", "now+1hour").returncode == 0
    assert "boosts it until" in " ".join(controller.cli("explain", boosted).stdout.split())
    assert f"boosted: {by_me()}, until" in controller.cli("history", boosted).stdout
    short = [clean_cluster.sbatch(*WHOLE_NODE) for _ in range(3)]
    for job in short:
        clean_cluster.wait_for_state(job, "RUNNING")
    assert clean_cluster.squeue_field(boosted, "State") == "RUNNING"
    assert clean_cluster.squeue_field(victim, "State") == "PENDING"
    assert controller.cli("boost", "4711", "--until", "now+1hour").returncode == 1


def by_me() -> str:
    return f"by {pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})"


def test_site_factors_order_the_tiers_and_slurm_orders_within_them(
    clean_cluster: RealCluster, start: Start
) -> None:
    controller = start(priority={"write": "site-factor"})
    wall = fill(clean_cluster, controller)
    # Slurm shows less than the factor then.
    short = clean_cluster.sbatch(*ONE_GPU, "--nice=1000", script=SHORT)
    clean_cluster.wait_for_state(short, "RUNNING")
    controller.wait_until(lambda: controller.events("preempted"), "the preemption is recorded")
    waiting = controller.events("preempted")[0][0]
    assert waiting in wall
    controller.wait_until(
        lambda: 1_400_000_000 <= priority(clean_cluster, waiting) < 1_600_000_000,
        "the victim waits in the band of tier 1",
    )


def test_a_victim_gets_the_signal_and_the_grace_of_its_user_before_it_is_requeued(
    clean_cluster: RealCluster, start: Start, tmp_path: Path
) -> None:
    controller = start(preemption={"min_run_s": 1, "checkpoint": "USR2@0"})
    told = tmp_path / "told"
    script = f"trap 'date +%s.%N >> {told}' USR1; while :; do sleep 0.1; done"
    wall = [
        clean_cluster.sbatch(*WHOLE_NODE, "--comment=tiresias:checkpoint=USR1@3", script=script)
        for _ in range(4)
    ]
    for job in wall:
        controller.wait_for_tier(job, 1)
    short = clean_cluster.sbatch(*ONE_GPU, script=SHORT)
    controller.wait_until(told.exists, "a victim gets its signal")
    assert clean_cluster.squeue_field(short, "State") == "PENDING"
    controller.wait_until(lambda: controller.events("preempted"), "the requeue")
    assert len(told.read_text().split()) == 1
    victim = next(i for w in wall for i in controller.runs(w) if i.end_s)
    # Slurm's end is in whole seconds, rounded down.
    assert (victim.end_s or 0) + 1 - float(told.read_text()) >= 2.5
    clean_cluster.wait_for_state(short, "RUNNING")


@pytest.mark.long
def test_a_job_placed_on_a_victims_leftover_gpus_does_not_block_the_preemptor(
    clean_cluster: RealCluster, start: Start
) -> None:
    """Slurm tries the job that was submitted first, finds its node taken, and skips the node for
    all later jobs. The preemptor is one of them, but Slurm does not report that it lacks
    resources."""
    controller = start()
    two_gpus = ("-n2", "--gpus=2", "--mem-per-cpu=10")
    modest = clean_cluster.sbatch(*two_gpus, "-w", "n1")
    wall = [clean_cluster.sbatch(*WHOLE_NODE, "-w", node) for node in ("n2", "n3", "n4")]
    for job in (modest, *wall):
        controller.wait_for_tier(job, 1)
    wall.append(clean_cluster.sbatch(*WHOLE_NODE, "-w", "n1"))
    clean_cluster.run("scontrol", "requeue", modest)
    controller.wait_for_tier(wall[-1], 1)
    clean_cluster.run("scontrol", "update", f"JobId={modest}", "StartTime=now", "ReqNodeList=")
    controller.wait_for_reason(modest, "no-room")
    preemptor = clean_cluster.sbatch(*two_gpus)
    for job in (preemptor, modest):
        clean_cluster.wait_for_state(job, "RUNNING")
    assert controller.events("backed-off") == []
    assert sum(restarts(clean_cluster, job) for job in wall) == 1


def test_a_missing_partition_is_refused(clean_cluster: RealCluster, tmp_path: Path) -> None:
    controller = RealController(clean_cluster, tmp_path, {"manage": {"partitions": ["gpuu"]}})
    controller.write_config()
    process = controller.spawn()
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4
    assert "gpuu" in complaint and len(complaint.strip().splitlines()) == 1


AS_NOBODY = command_line("slurm_tiresias.cli.controller", "slurm_tiresias.controller.run")


@as_root
def test_a_user_without_rights_gets_a_permission_error(
    clean_cluster: RealCluster, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        controller = RealController(clean_cluster, Path(folder))
        controller.write_config()
        ended = subprocess.run(
            [*AS_NOBODY, "controller", "--config", controller.config_file],
            env=controller.environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 6, ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
