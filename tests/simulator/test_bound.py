"""The lower bound: below every schedule, and close to the best schedule if that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_tiresias.config import parse
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.bound import best_speed, lower_bound_jct_s
from slurm_tiresias.simulator.engine import Timing
from slurm_tiresias.simulator.sim_cluster import Costs, SimCluster
from slurm_tiresias.simulator.traces import load_trace
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480
from tests.simulator.test_real_traces import trace

GPUS = 4
A_ROUNDING_ERROR = 1e-9


def simulated_jct_s(
    jobs: Sequence[TraceJob], policy: str, sim_cluster: SimCluster, *, speeds: bool = False
) -> float:
    config = parse({"policy": {"thresholds_gpu_s": [20]}, "preemption": {"min_run_s": 0}})
    setup = run.Setup(sim_cluster, config, Costs(sim_cluster, speeds=speeds, flat_s=0.0), Timing())
    ordered = tuple(sorted(jobs, key=lambda job: job.submitted_s))
    return fmean(outcome.jct_s for outcome in run.simulate(Workload("", ordered), policy, setup))


def pooled(gpus: int) -> SimCluster:
    return SimCluster(1, gpus, "pooled")


def jobs_of(rows: Sequence[tuple[int, int, int]]) -> tuple[TraceJob, ...]:
    """Jobs from (submitted, GPUs, duration)."""
    return tuple(
        TraceJob(str(number), submitted_s, gpus, duration_s)
        for number, (submitted_s, gpus, duration_s) in enumerate(rows)
    )


def workloads(
    *, widths: st.SearchStrategy[int], latest_s: int = 60, longest_s: int = 40, most: int = 12
) -> st.SearchStrategy[tuple[TraceJob, ...]]:
    row = st.tuples(st.integers(0, latest_s), widths, st.integers(1, longest_s))
    return st.lists(row, min_size=1, max_size=most).map(jobs_of)


@pytest.mark.parametrize("policy", run.POLICIES)
@settings(max_examples=30, deadline=None)
@given(jobs=workloads(widths=st.integers(1, GPUS)))
def test_no_policy_is_below_the_bound(policy: str, jobs: tuple[TraceJob, ...]) -> None:
    reached_s = simulated_jct_s(jobs, policy, pooled(GPUS))
    assert lower_bound_jct_s(jobs, GPUS) <= reached_s + A_ROUNDING_ERROR


def best_jct_s(jobs: Sequence[TraceJob], gpus: int) -> float:
    """Return the least average of all schedules that decide every second, by trying them all."""
    last_submission_s = max(job.submitted_s for job in jobs)

    @cache
    def remaining_s(now_s: float, left_s: tuple[float, ...]) -> float:
        """Remaining seconds in the system, summed over the jobs."""
        if not any(left_s):
            return 0.0
        here = [
            number for number, job in enumerate(jobs) if left_s[number] and job.submitted_s <= now_s
        ]
        choices = (
            running
            for size in range(len(here) + 1)
            for running in combinations(here, size)
            if sum(jobs[number].gpus for number in running) <= gpus
            and (running or not here or now_s < last_submission_s)
        )
        return len(here) + min(
            remaining_s(
                now_s + 1, tuple(left - (number in running) for number, left in enumerate(left_s))
            )
            for running in choices
        )

    return remaining_s(0.0, tuple(job.duration_s for job in jobs)) / len(jobs)


@settings(max_examples=60, deadline=None)
@given(
    gpus=st.integers(1, 3),
    jobs=workloads(widths=st.integers(1, 3), latest_s=4, longest_s=4, most=4),
)
def test_the_best_schedule_is_not_below_the_bound(gpus: int, jobs: tuple[TraceJob, ...]) -> None:
    narrow = [replace(job, gpus=min(job.gpus, gpus)) for job in jobs]
    assert lower_bound_jct_s(narrow, gpus) <= best_jct_s(narrow, gpus) + A_ROUNDING_ERROR


@pytest.mark.parametrize(
    ("rows", "best_s", "bound_s"),
    [
        ([(0, 1, 2), (0, 1, 2), (0, 2, 1)], 7 / 3, 7 / 3),
        ([(0, 2, 4), (1, 1, 1), (1, 1, 1)], 7 / 3, 2.25),
        ([(0, 1, 3), (0, 2, 1), (1, 1, 1)], 2.0, 17 / 9),
    ],
)
def test_the_distance_to_the_bound_on_two_gpus_is_as_computed(
    rows: list[tuple[int, int, int]], best_s: float, bound_s: float
) -> None:
    jobs = jobs_of(rows)
    assert best_jct_s(jobs, 2) == pytest.approx(best_s)
    assert lower_bound_jct_s(jobs, 2) == pytest.approx(bound_s, abs=0.001)


@settings(max_examples=60, deadline=None)
@given(gpus=st.sampled_from((1, GPUS)), data=st.data())
def test_if_all_jobs_take_all_gpus_the_bound_is_srtf(gpus: int, data: st.DataObject) -> None:
    jobs = data.draw(workloads(widths=st.just(gpus)))
    best_s = simulated_jct_s(jobs, "srtf", pooled(gpus))
    assert lower_bound_jct_s(jobs, gpus) == pytest.approx(best_s)


@given(jobs=workloads(widths=st.integers(1, GPUS)))
def test_if_all_jobs_fit_at_once_the_bound_is_their_mean(jobs: tuple[TraceJob, ...]) -> None:
    enough = sum(job.gpus for job in jobs)
    assert lower_bound_jct_s(jobs, enough) == pytest.approx(fmean(job.duration_s for job in jobs))


@given(jobs=workloads(widths=st.integers(1, GPUS)), later_s=st.integers(-100, 10**6))
def test_the_bound_depends_neither_on_job_order_nor_on_the_start_time(
    jobs: tuple[TraceJob, ...], later_s: int
) -> None:
    moved = [replace(job, submitted_s=job.submitted_s + later_s) for job in reversed(jobs)]
    assert lower_bound_jct_s(moved, GPUS) == pytest.approx(lower_bound_jct_s(jobs, GPUS), rel=1e-6)


def test_the_more_gpus_the_lower_the_bound() -> None:
    jobs = paper480(1).jobs
    bounds_s = [lower_bound_jct_s(jobs, gpus) for gpus in (32, 48, 60, 80, 120, 480, 1920)]
    assert bounds_s == sorted(bounds_s, reverse=True)
    assert bounds_s[-1] == pytest.approx(fmean(job.duration_s for job in jobs))


def test_a_spread_job_may_beat_the_bound_at_unit_speed_but_not_that_at_best_speed() -> None:
    """Two jobs take most of a node each; the third is left one GPU on either."""
    jobs = [TraceJob(str(number), 0, 2, 1000, "resnet50") for number in range(3)]
    reached_s = simulated_jct_s(jobs, "srsf", SimCluster(2, 3, "consolidate"), speeds=True)
    assert lower_bound_jct_s(jobs, 6, best_speed) < reached_s < lower_bound_jct_s(jobs, 6)


@pytest.mark.parametrize(
    ("model", "gpus", "speed"),
    [("resnet50", 2, 1.08), ("resnet50", 1, 1.0), ("vgg16", 8, 1.0), ("never heard of", 8, 1.0)],
)
def test_the_best_speed_is_that_of_a_better_placement(model: str, gpus: int, speed: float) -> None:
    assert best_speed(TraceJob("1", 0, gpus, 100, model)) == speed


def test_a_job_without_work_counts_with_zero_time() -> None:
    jobs = [TraceJob("1", 0, 1, 100), TraceJob("2", 0, 1, 0)]
    assert lower_bound_jct_s(jobs, 1) == 50.0


def test_the_bound_without_jobs_is_zero() -> None:
    assert lower_bound_jct_s([], 1) == 0.0


def test_a_cluster_without_gpus_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one GPU"):
        lower_bound_jct_s([TraceJob("1", 0, 1, 100)], 0)


@pytest.mark.parametrize(("seed", "bound_s"), [(1, 1084.1), (2, 1077.6), (3, 932.9)])
def test_the_bound_on_the_papers_workload_is_the_published_one(seed: int, bound_s: float) -> None:
    assert lower_bound_jct_s(paper480(seed).jobs, 60) == pytest.approx(bound_s, abs=0.1)


def test_the_bound_is_85_percent_of_the_references_best_average() -> None:
    """The authors' simulator averages 1051.26 s on this workload under SRSF."""
    jobs = load_trace(trace("synthetic480_seed1.csv")).jobs
    assert lower_bound_jct_s(jobs, 60) / 1051.26 == pytest.approx(0.855, abs=0.001)
