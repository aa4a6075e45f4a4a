"""The demo: a seed always gives the same jobs, and its figures match their definitions."""

from __future__ import annotations

import subprocess
from pathlib import Path
from statistics import median

import pytest

from scripts import ROOT
from scripts.testbed import place as demo
from scripts.testbed.jobs import COMPLETED, REQUEUED, AccountedRun, accounted_run
from scripts.testbed.place import Place
from scripts.tools.demo.jobs import Submitted
from scripts.tools.demo.measure import measured, quantile
from scripts.tools.demo.mix import (
    ARRIVALS_S,
    GPUS_PER_NODE,
    KINDS,
    MOST_GPUS,
    WORK_S,
    Job,
    make_jobs,
)

PROVEN = {"each_step_once": True, "steps_redone": 0, "problems": []}


def test_a_seed_always_gives_the_same_jobs() -> None:
    assert make_jobs(1, 40) == make_jobs(1, 40)
    assert make_jobs(1, 40) != make_jobs(2, 40)


@pytest.mark.parametrize("seed", range(20))
def test_every_seed_asks_for_the_same_work_and_for_jobs_that_fit(seed: int) -> None:
    jobs = make_jobs(seed, 40)
    assert len({job.name for job in jobs}) == 40
    assert sum(job.work_gpu_s for job in jobs) == pytest.approx(WORK_S * MOST_GPUS, rel=0.05)
    assert jobs == sorted(jobs, key=lambda job: job.arrives_s)
    assert jobs[0].arrives_s == 0
    assert jobs[-1].arrives_s <= ARRIVALS_S
    for job in jobs:
        assert job.gpus <= job.nodes * GPUS_PER_NODE <= MOST_GPUS
        assert job.needs_s < job.limit_min * 60 <= 96 * 60


def test_user_like_limits_distinguish_some_short_jobs_from_long_ones() -> None:
    jobs = [job for seed in range(20) for job in make_jobs(seed, 40)]
    assert {job.limit_min for job in jobs} == {1, 2, 4, 8, 16, 32, 48, 96}
    short, long = ([j.limit_min for j in jobs if j.kind.startswith(k)] for k in ("short", "long"))
    assert median(short) < median(long)
    assert 0.25 < sum(job.limit_min == 96 for job in jobs) / len(jobs) < 0.4


def test_exact_limits_are_in_proportion_to_what_jobs_need() -> None:
    for job in make_jobs(1, 40, "exact"):
        assert 20 * job.needs_s <= job.limit_min * 60 < 20 * job.needs_s + 60


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
        AccountedRun("1", REQUEUED, submitted_s=100, elapsed_s=10, ended_s=110),
        AccountedRun("1", COMPLETED, submitted_s=110, elapsed_s=20, ended_s=140),
        AccountedRun("2", COMPLETED, submitted_s=108, elapsed_s=10, ended_s=120),
    ]
    result = measured(jobs, rows, [PROVEN, PROVEN])
    assert result.average_jct_s == (40 + 12) / 2
    assert result.average_jct_s_by_kind == {KINDS[0].name: 12, KINDS[3].name: 40}
    assert result.makespan_s == 40
    assert result.preemptions == 1
    assert result.gpu_use == (30 * 16 + 10 * 4) / (40 * 16)
    assert result.faults == ()


def test_failed_jobs_and_failed_verifications_are_faults() -> None:
    jobs = [submitted("1", 1, KINDS[0].name)]
    rows = [AccountedRun("1", "FAILED", submitted_s=0, elapsed_s=1, ended_s=1)]
    broken = {"each_step_once": False, "steps_redone": 0, "problems": ["step 7 was done twice"]}
    first, second = measured(jobs, rows, [broken]).faults
    assert "FAILED" in first
    assert "step 7" in second


def test_a_quantile_lies_between_its_neighbours() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([1.0, 2.0], 1.0) == 2.0
    assert quantile([5.0], 0.95) == 5.0


def test_a_row_of_the_accounting_is_read_also_before_its_end() -> None:
    row = accounted_run(["7", "RUNNING", "100", "3", "Unknown"])
    assert row == AccountedRun("7", "RUNNING", submitted_s=100, elapsed_s=3, ended_s=0)
    assert accounted_run(["7", "CANCELLED by 0", "100", "3", "103"]).state == "CANCELLED"


@pytest.fixture
def shell_path(tmp_path: Path) -> str:
    """PATH of a shell that has evaluated ``scripts/demo env`` twice."""
    demo.prepare(Place(tmp_path / "demo"))
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
