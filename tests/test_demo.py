"""The demo: a seed always gives the same jobs, and its figures are what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.demo_lib.jobs import COMPLETED, REQUEUED, Incarnation, Submitted, incarnation
from scripts.demo_lib.measure import measured, quantile
from scripts.demo_lib.mix import (
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
        assert job.needs_s < 0.9 * job.limit_min * 60


@pytest.mark.parametrize("count", [8, 40, 200])
def test_the_kinds_have_their_shares(count: int) -> None:
    kinds = [job.kind for job in make_jobs(1, count)]
    for kind in KINDS:
        assert abs(kinds.count(kind.name) - kind.share * count) <= 2


def submitted(job_id: str, gpus: int, kind: str) -> Submitted:
    return Submitted(Job(f"demo{job_id}", kind, gpus, 4, 1, 0.0), job_id, Path(job_id))


def test_completion_times_count_from_the_first_submission_over_all_incarnations() -> None:
    jobs = [submitted("1", 16, KINDS[3].name), submitted("2", 4, KINDS[0].name)]
    rows = [
        Incarnation("1", REQUEUED, submitted_s=100, elapsed_s=10, ended_s=110),
        Incarnation("1", COMPLETED, submitted_s=110, elapsed_s=20, ended_s=140),
        Incarnation("2", COMPLETED, submitted_s=108, elapsed_s=10, ended_s=120),
    ]
    result = measured(jobs, rows, [PROVEN, PROVEN])
    assert result.average_jct_s == (40 + 12) / 2
    assert result.average_jct_s_by_kind == {KINDS[0].name: 12, KINDS[3].name: 40}
    assert result.makespan_s == 40
    assert result.preemptions == 1
    assert result.gpu_use == (30 * 16 + 10 * 4) / (40 * 16)
    assert result.faults == ()


def test_a_job_that_failed_and_a_proof_that_fails_are_faults() -> None:
    jobs = [submitted("1", 1, KINDS[0].name)]
    rows = [Incarnation("1", "FAILED", submitted_s=0, elapsed_s=1, ended_s=1)]
    broken = {"each_step_once": False, "steps_redone": 0, "problems": ["step 7 was done twice"]}
    first, second = measured(jobs, rows, [broken]).faults
    assert "FAILED" in first
    assert "step 7" in second


def test_a_quantile_lies_between_its_neighbours() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([1.0, 2.0], 1.0) == 2.0
    assert quantile([5.0], 0.95) == 5.0


def test_a_row_of_the_accounting_is_read_also_before_its_end() -> None:
    row = incarnation(["7", "RUNNING", "100", "3", "Unknown"])
    assert row == Incarnation("7", "RUNNING", submitted_s=100, elapsed_s=3, ended_s=0)
    assert incarnation(["7", "CANCELLED by 0", "100", "3", "103"]).state == "CANCELLED"
