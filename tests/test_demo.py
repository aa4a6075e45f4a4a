"""The demo: a seed always gives the same jobs, and its figures match their definitions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from scripts import ROOT
from scripts.testbed.patience import wait_until
from scripts.testbed.real_cluster import COMPLETED, REQUEUED
from scripts.tools.demo import main as demo
from scripts.tools.demo.jobs import TRAINING, Proof, Run, Sample, Submitted, shown
from scripts.tools.demo.jobs import proof as proof_of
from scripts.tools.demo.measure import measured
from scripts.tools.demo.mix import (
    ARRIVALS_S,
    GPUS_PER_NODE,
    JOBS,
    KINDS,
    LOAD,
    MOST_GPUS,
    STEP_S,
    Job,
    make_jobs,
)
from scripts.tools.demo.screen import schedule
from slurm_tiresias.slurm.protocol import AccountedRun


def test_a_seed_always_gives_the_same_jobs() -> None:
    assert make_jobs(1) == make_jobs(1)
    assert make_jobs(1) != make_jobs(2)


@pytest.mark.parametrize("seed", range(20))
def test_every_seed_asks_for_the_same_work_and_for_jobs_that_fit(seed: int) -> None:
    jobs = make_jobs(seed)
    assert len({job.name for job in jobs}) == JOBS
    work_gpu_s = sum(job.work_gpu_s for job in jobs)
    assert work_gpu_s == pytest.approx(LOAD * ARRIVALS_S * MOST_GPUS, rel=0.05)
    assert jobs == sorted(jobs, key=lambda job: job.arrives_s)
    assert jobs[0].arrives_s == 0
    assert jobs[-1].arrives_s <= ARRIVALS_S
    assert {job.user for job in jobs} == {0, 1}
    for job in jobs:
        assert job.gpus <= job.nodes * GPUS_PER_NODE <= MOST_GPUS
        assert job.needs_s < job.limit_min * 60 <= 2880 * 60


def test_the_long_fifth_of_the_jobs_is_most_of_the_work() -> None:
    jobs = [job for seed in range(20) for job in make_jobs(seed)]
    long = [job for job in jobs if job.kind.startswith("long")]
    assert 0.15 < len(long) / len(jobs) < 0.25
    assert sum(job.work_gpu_s for job in long) > 0.6 * sum(job.work_gpu_s for job in jobs)


def test_limits_distinguish_some_short_jobs_from_long_ones() -> None:
    jobs = [job for seed in range(20) for job in make_jobs(seed)]
    assert {job.limit_min for job in jobs} == {1, 2, 4, 8, 16, 32, 48, 96, 192, 288, 672, 2880}
    short, long = ([j.limit_min for j in jobs if j.kind.startswith(k)] for k in ("short", "long"))
    assert median(short) < median(long)


@pytest.mark.parametrize("count", [8, 40, 200])
def test_the_kinds_have_their_shares(count: int) -> None:
    kinds = [job.kind for job in make_jobs(1, count)]
    for kind in KINDS:
        assert abs(kinds.count(kind.name) - kind.share * count) <= 2


def submitted(job_id: str, gpus: int, kind: str) -> Submitted:
    return Submitted(Job(f"demo{job_id}", kind, gpus, 4, 0.0), job_id, Path(job_id))


def test_completion_times_count_from_the_first_submission_over_all_runs() -> None:
    jobs = [submitted("1", 16, KINDS[3].name), submitted("2", 4, KINDS[0].name)]
    rows = [
        AccountedRun("1", 100, 110, 10, 16, REQUEUED, submit_s=100),
        AccountedRun("1", 120, 140, 20, 16, COMPLETED, submit_s=110),
        AccountedRun("2", 110, 120, 10, 4, COMPLETED, submit_s=108),
    ]
    result = measured(jobs, rows, [Proof(), Proof(steps_redone=8)])
    assert result.average_jct_s == (40 + 12) / 2
    assert result.average_jct_s_by_kind == {KINDS[0].name: 12, KINDS[3].name: 40}
    assert result.makespan_s == 40
    assert result.preemptions == 1
    assert result.gpu_use == (30 * 16 + 10 * 4) / (40 * 16)
    assert result.again_share == 8 * STEP_S * 4 / (30 * 16 + 10 * 4)
    assert result.faults == ()


def test_failed_jobs_and_failed_verifications_are_faults() -> None:
    jobs = [submitted("1", 1, KINDS[0].name)]
    rows = [AccountedRun("1", 0, 1, 1, 1, "FAILED", submit_s=0)]
    first, second = measured(jobs, rows, [Proof(fault="saved 7 of 9 steps")]).faults
    assert "FAILED" in first
    assert "saved 7" in second


def training(tmp_path: Path, *library: str) -> Submitted:
    """Run a job of the demo to its end, with SIGTERM once it has done two steps."""
    one = Submitted(Job("demo1", "", 1, 20, 0.0), "1", tmp_path / "job")
    command = [sys.executable, str(TRAINING), str(one.folder), "20", "0.02", "100", *library]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    wait_until(lambda: "step 2" in journal(one), "two steps")
    first.terminate()
    first.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return one


def journal(one: Submitted) -> str:
    path = one.folder / "journal"
    return path.read_text() if path.exists() else ""


def test_a_job_without_the_library_does_again_what_it_had_not_saved(tmp_path: Path) -> None:
    proof = proof_of(training(tmp_path))
    assert proof.fault == ""
    assert proof.steps_redone >= 2


def test_a_job_with_the_library_saves_when_told_to_leave(tmp_path: Path) -> None:
    assert proof_of(training(tmp_path, str(ROOT))) == Proof()


def test_a_journal_of_too_few_steps_proves_nothing(tmp_path: Path) -> None:
    one = Submitted(Job("demo1", "", 1, 3, 0.0), "1", tmp_path)
    (tmp_path / "journal").write_text("start 0\nstep 1\nsaved 1\nstart 0\nstep 1\n")
    assert proof_of(one).fault == "resumed from step 0, but had saved step 1"
    (tmp_path / "journal").write_text("start 0\nstep 1\nstep 3\n")
    assert proof_of(one).fault == "step 3 came after step 1"


def test_the_gpus_of_a_job_are_numbered_through_the_cluster() -> None:
    line = (
        "JobId=7 JobName=x UserId=a(1) JobState=RUNNING Restarts=2 NodeList=n[1-3] "
        "   Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3) "
        "   Nodes=n3 CPU_IDs=0-1 Mem=100 GRES=gpu:2(IDX:0,3) "
    )
    assert dict(shown(line)) == {"7": ("RUNNING", 2, [0, 1, 2, 3, 4, 5, 6, 7, 8, 11])}


def test_the_picture_of_a_schedule_has_a_line_for_each_gpu_and_one_for_the_queue() -> None:
    wide, small = Job("a", "long, wide", 8, 1, 0.0), Job("b", "short, small", 1, 1, 0.0)
    idle = (None,) * 7
    samples = [
        Sample(0.0, (wide,) * 8 + (None,) * 8, waiting=1),
        Sample(1.0, (small, *idle, *(None,) * 8), waiting=0),
    ]
    drawn = schedule(Run("x", Path("/x"), samples=samples), False, 1.0).plain.splitlines()
    assert drawn[:2] == ["n1  Ws", "    W."]
    assert drawn[8] == "n3  .."
    assert drawn[16] == "    █ "


@pytest.fixture
def shell_path(tmp_path: Path) -> str:
    """PATH of a shell that has evaluated ``scripts/demo env`` twice."""
    demo.prepare(tmp_path / "demo")
    env = f'eval "$({ROOT}/scripts/demo env --dir {tmp_path}/demo)"'
    ended = subprocess.run(
        ["bash", "-c", f'{env}; {env}; printf %s "$PATH"'],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout


def test_a_shell_that_evaluates_the_demos_environment_finds_the_program_and_no_other_python(
    tmp_path: Path, shell_path: str
) -> None:
    assert shell_path == f"{tmp_path}/demo/bin:/usr/bin:/bin"
    assert [path.name for path in (tmp_path / "demo" / "bin").iterdir()] == ["tiresias-slurm"]
    version = subprocess.run(
        ["tiresias-slurm", "--version"],
        env={"PATH": shell_path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert version.stdout.startswith("tiresias-slurm")
