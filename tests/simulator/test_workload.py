"""The generated workloads: what is exact, what is drawn, and that they never change."""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter

import pytest

from slurm_tiresias.simulator.physics import MODELS
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480, philly_like


def bin_of(job: TraceJob) -> str:
    return ("S" if job.gpus <= 4 else "L") + ("S" if job.duration_s < 800 else "L")


def fingerprint(workload: Workload) -> str:
    rows = (f"{j.job_id},{j.submitted_s},{j.gpus},{j.duration_s},{j.model}" for j in workload.jobs)
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


@pytest.mark.parametrize("seed", range(1, 11))
def test_the_papers_workload_has_its_widths_models_and_bins_at_every_seed(seed: int) -> None:
    jobs = paper480(seed).jobs
    assert Counter(job.gpus for job in jobs) == {1: 240, 2: 40, 4: 80, 8: 90, 16: 25, 32: 5}
    assert sum(job.gpus for job in jobs) == 1920
    assert Counter(job.model for job in jobs) == dict.fromkeys(MODELS, 48)
    assert Counter(map(bin_of, jobs)) == {"SS": 300, "SL": 60, "LS": 84, "LL": 36}


@pytest.mark.parametrize("seed", range(1, 11))
def test_its_jobs_last_two_minutes_to_two_hours_and_come_every_half_minute(seed: int) -> None:
    jobs = paper480(seed).jobs
    assert all(120 <= job.duration_s <= 7200 for job in jobs)
    assert all(job.duration_s == int(job.duration_s) for job in jobs)
    assert jobs[0].submitted_s == 0
    assert 24 < jobs[-1].submitted_s / len(jobs) < 36
    assert list(jobs) == sorted(jobs, key=lambda job: job.submitted_s)
    assert len({job.job_id for job in jobs}) == 480


def test_a_seed_always_gives_the_same_workload() -> None:
    assert fingerprint(paper480(1)) == "98264db1a252f528"
    assert fingerprint(philly_like(500, seed=1, gpus=256, load=1.05)) == "49c62ed749d68122"
    assert paper480(1) == paper480(1)
    assert paper480(1).jobs != paper480(2).jobs


def test_a_philly_like_workload_offers_the_load_that_was_asked_for() -> None:
    jobs = philly_like(20_000, seed=3, gpus=256, load=1.05).jobs
    work_gpu_s = sum(job.gpus * job.duration_s for job in jobs)
    assert work_gpu_s / (256 * jobs[-1].submitted_s) == pytest.approx(1.05, rel=0.01)


def test_a_philly_like_workload_is_mostly_narrow_and_short_with_a_long_tail() -> None:
    jobs = philly_like(20_000, seed=3, gpus=256, load=1.0).jobs
    shares = {gpus: n / len(jobs) for gpus, n in Counter(job.gpus for job in jobs).items()}
    expected = {1: 0.70, 2: 0.10, 4: 0.12, 8: 0.05, 16: 0.02, 32: 0.01}
    assert shares == pytest.approx(expected, abs=0.01)
    durations_s = [job.duration_s for job in jobs]
    assert statistics.median(durations_s) == pytest.approx(1000, rel=0.05)
    assert statistics.mean(durations_s) > 5 * statistics.median(durations_s)


def test_more_philly_like_jobs_come_at_noon_than_at_midnight() -> None:
    jobs = philly_like(20_000, seed=3, gpus=256, load=1.0).jobs
    quarters = Counter(int((job.submitted_s % 86400) // 21600) for job in jobs)
    assert quarters[1] + quarters[2] > 1.5 * (quarters[0] + quarters[3])


@pytest.mark.parametrize(("jobs", "gpus", "load"), [(0, 4, 1.0), (5, 0, 1.0), (5, 4, 0.0)])
def test_a_workload_without_jobs_is_refused(jobs: int, gpus: int, load: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        philly_like(jobs, 1, gpus, load)
