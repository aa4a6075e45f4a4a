"""The engine, against what the authors' own simulator prints, and on its own."""

from __future__ import annotations

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.report import figures
from slurm_tiresias.simulator.traces import load_trace
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480
from slurm_tiresias.simulator.world import Costs, parse_site
from tests.simulator.test_real_traces import trace


def simulate(
    jobs: Workload,
    policy: str,
    cluster: str,
    *,
    flat_s: float = 0.0,
    placement: str = "pooled",
    thresholds_gpu_s: tuple[float, ...] = (3200,),
    timing: Timing | None = None,
) -> tuple[Outcome, ...]:
    site = parse_site(cluster, placement)
    config = parse(
        {
            "policy": {"thresholds_gpu_s": list(thresholds_gpu_s)},
            "preemption": {"min_run_s": 0, "max_victims_per_cycle": 10**9},
        }
    )
    costs = Costs(site, speeds=False, flat_s=flat_s)
    return run.simulate(jobs, policy, run.Setup(site, config, costs, timing or Timing()))


@pytest.mark.parametrize(
    ("cluster", "policy", "average", "median", "p95", "makespan", "preemptions"),
    [
        ("2x4", "yarn-cs", 1556.5, 1415.5, 3896, 5747, 0),
        ("2x4", "best-effort", 715.3, 150.5, 3388, 4806, 0),
        ("2x4", "sf", 725.7, 146.5, 3388, 4806, 8),
        ("2x4", "srtf", 519.9, 142, 2827, 4901, 7),
        ("2x4", "srsf", 563.4, 146.5, 2990, 4962, 13),
        ("4x4", "yarn-cs", 200.8, 149.5, 366, 3335, 0),
        ("4x4", "best-effort", 190.7, 130, 366, 3271, 0),
        ("4x4", "sf", 198.2, 126.5, 462, 3271, 8),
        ("4x4", "srtf", 192.1, 126.5, 383, 3271, 4),
    ],
)
def test_the_baselines_reproduce_the_authors_simulator_on_their_60_jobs(
    cluster: str,
    policy: str,
    average: float,
    median: float,
    p95: float,
    makespan: float,
    preemptions: int,
) -> None:
    jobs = load_trace(trace("tiresias_60_job.csv"))
    found = figures(simulate(jobs, policy, cluster), parse_site(cluster, "pooled").gpus)
    assert round(found.average_jct_s, 1) == average
    assert (found.median_jct_s, found.p95_jct_s, found.makespan_s) == (median, p95, makespan)
    assert found.preemptions == preemptions


@pytest.mark.parametrize(
    ("policy", "average", "median", "p95", "makespan", "preemptions"),
    [("best-effort", 2133, 816, 8311, 31331, 0), ("srsf", 1051, 309, 4390, 31274, 265)],
)
def test_and_on_480_jobs_on_60_gpus(
    policy: str, average: float, median: float, p95: float, makespan: float, preemptions: int
) -> None:
    jobs = load_trace(trace("synthetic480_seed1.csv"))
    found = figures(simulate(jobs, policy, "15x4"), 60)
    assert round(found.average_jct_s) == average
    assert abs(found.median_jct_s - median) <= 0.5
    assert (found.p95_jct_s, found.makespan_s, found.preemptions) == (p95, makespan, preemptions)


def _jobs(*rows: tuple[float, int, float]) -> Workload:
    jobs = (TraceJob(str(i), at_s, gpus, long_s) for i, (at_s, gpus, long_s) in enumerate(rows))
    return Workload("drawn", tuple(jobs))


def test_a_preempted_job_pays_for_its_restart_and_the_rest_of_its_work() -> None:
    long, short = simulate(_jobs((0, 4, 2000), (1000, 4, 100)), "tiresias-l", "1x4", flat_s=50)
    assert (short.first_start_s, short.end_s) == (1000, 1100)
    assert (long.preemptions, long.lost_s, long.waited_s) == (1, 50, 100)
    assert long.end_s == 2000 + 100 + 50


def test_a_job_is_demoted_at_its_threshold_and_only_then_makes_room() -> None:
    long, short = simulate(_jobs((0, 4, 2000), (10, 4, 100)), "tiresias-l", "1x4")
    assert short.first_start_s == pytest.approx(800, abs=0.01)
    assert long.preemptions == 1


def test_who_has_to_leave_runs_on_until_it_has_left() -> None:
    timing = Timing(preempting_delay_s=5, requeue_delay_s=20)
    jobs = _jobs((0, 4, 2000), (1000, 4, 10))
    long, short = simulate(jobs, "tiresias-l", "1x4", timing=timing)
    assert (short.first_start_s, short.end_s) == (1005, 1015)
    assert long.runs == ((0, 1005), (1025, 2020))


def test_who_gets_done_while_it_is_asked_to_leave_was_not_preempted() -> None:
    timing = Timing(preempting_delay_s=5)
    long, short = simulate(_jobs((0, 4, 1003), (1000, 4, 10)), "tiresias-l", "1x4", timing=timing)
    assert (long.end_s, long.preemptions) == (1003, 0)
    assert short.first_start_s == 1005


def test_a_job_wider_than_the_cluster_is_left_out_and_said_so() -> None:
    kept, wide = run.fitting(_jobs((0, 4, 10), (0, 64, 10)), parse_site("1x8", "skew"))
    assert (len(kept.jobs), len(wide)) == (1, 1)


def test_every_job_ends_whatever_the_policy() -> None:
    few = Workload("few", paper480().jobs[:60])
    for policy in run.POLICIES:
        assert len(simulate(few, policy, "8x4", placement="skew", flat_s=20)) == 60
