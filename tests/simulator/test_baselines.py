"""The baselines: the authors' own numbers to the last digit, and small drawn cases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_tiresias.config import parse
from slurm_tiresias.core.cluster import Start
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.model import Node
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.baselines import BASELINES, CONSOLIDATED_ONLY
from slurm_tiresias.simulator.baselines.backfill import (
    DEFAULTS,
    Backfill,
    SlurmParameters,
)
from slurm_tiresias.simulator.baselines.repack import Cost, fewest_gpus, least_service, least_time
from slurm_tiresias.simulator.cluster_file import NodeGroup
from slurm_tiresias.simulator.engine import Outcome, Scheduler, SimJob, Simulation, Timing
from slurm_tiresias.simulator.limits import ALIKE_S, ROUND_S, with_users_limits
from slurm_tiresias.simulator.report import figures
from slurm_tiresias.simulator.saves import NEVER_S, SaveModel
from slurm_tiresias.simulator.sim_cluster import Costs, SimCluster, parse_cluster
from slurm_tiresias.simulator.traces import load_trace
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480
from tests.simulator.test_real_traces import trace

CONFIG: Config = parse({"policy": {"thresholds_gpu_s": [3200]}, "preemption": {"min_run_s": 0}})


def setup_on(
    sim_cluster: SimCluster, *, flat_s: float = 0.0, timing: Timing | None = None
) -> run.Setup:
    costs = Costs(sim_cluster, speeds=False, flat_s=flat_s)
    return run.Setup(sim_cluster, CONFIG, costs, timing or Timing())


def jobs_of(*rows: tuple[float, int, float]) -> Workload:
    """Jobs from (submitted, GPUs, duration)."""
    jobs = (TraceJob(str(i), at_s, gpus, long_s) for i, (at_s, gpus, long_s) in enumerate(rows))
    return Workload("drawn", tuple(jobs))


def simulated(
    workload: Workload, policy: str, cluster: str, placement: str = "consolidate"
) -> tuple[Outcome, ...]:
    return run.simulate(workload, policy, setup_on(parse_cluster(cluster, placement)))


# --------------------------------------------------------------------------- the authors' numbers

SIXTY = "tiresias_60_job.csv"
THE_480 = "synthetic480_seed1.csv"


@pytest.mark.parametrize(
    ("name", "cluster", "placement", "policy", "average", "median", "p95", "makespan", "preempted"),
    [
        (SIXTY, "2x4", "pooled", "yarn-cs", 1556.48, 1415.5, 3896, 5747, 0),
        (SIXTY, "2x4", "nodes", "yarn-cs", 1556.48, 1415.5, 3896, 5747, 0),
        (SIXTY, "2x4", "pooled", "best-effort", 715.27, 150.5, 3388, 4806, 0),
        (SIXTY, "2x4", "pooled", "sf", 725.70, 146.5, 3388, 4806, 8),
        (SIXTY, "2x4", "pooled", "srtf", 519.87, 142, 2827, 4901, 7),
        (SIXTY, "2x4", "pooled", "srsf", 563.38, 146.5, 2990, 4962, 13),
        (SIXTY, "2x4", "nodes", "gandiva", 787.18, 194, 3465, 4879, None),
        (SIXTY, "4x4", "pooled", "yarn-cs", 200.82, 149.5, 366, 3335, 0),
        (SIXTY, "4x4", "nodes", "yarn-cs", 219.18, 178.5, 368, 3341, 0),
        (SIXTY, "4x4", "pooled", "best-effort", 190.68, 130, 366, 3271, 0),
        (SIXTY, "4x4", "pooled", "sf", 198.20, 126.5, 462, 3271, 8),
        (SIXTY, "4x4", "pooled", "srtf", 192.12, 126.5, 383, 3271, 4),
        (SIXTY, "4x4", "pooled", "srsf", 195.90, 126.5, 460, 3315, 7),
        (SIXTY, "4x4", "nodes", "gandiva", 224.52, 162, 383, 3289, None),
        (THE_480, "15x4", "pooled", "yarn-cs", 7609.63, None, None, None, 0),
        (THE_480, "15x4", "nodes", "yarn-cs", 7928.00, 8678, 15158, 32794, 0),
        (THE_480, "15x4", "pooled", "best-effort", 2132.98, 816.5, 8311, 31331, 0),
        (THE_480, "15x4", "pooled", "srtf", 1100.77, 309, 4529, 31385, 728),
        (THE_480, "15x4", "pooled", "srsf", 1051.26, 309, 4390, 31274, 265),
        (THE_480, "15x4", "nodes", "gandiva", 4561.84, 2316, 16937, 36127, None),
        (THE_480, "15x4", "pooled", "gandiva", 4561.84, 2316, 16937, 36127, None),
    ],
)
def test_averages_equal_those_of_the_authors_simulator(
    name: str,
    cluster: str,
    placement: str,
    policy: str,
    average: float,
    median: float | None,
    p95: float | None,
    makespan: float | None,
    preempted: int | None,
) -> None:
    placement = "consolidate" if placement == "nodes" else placement
    outcomes = simulated(load_trace(trace(name)), policy, cluster, placement)
    found = figures(outcomes, parse_cluster(cluster, placement).gpus)
    assert round(found.average_jct_s, 2) == average
    for value, expected in (
        (found.median_jct_s, median),
        (found.p95_jct_s, p95),
        (found.makespan_s, makespan),
        (found.preemptions, preempted),
    ):
        assert expected is None or value == expected


@pytest.mark.parametrize("name", [SIXTY, THE_480])
def test_the_95th_percentile_is_the_value_that_the_authors_take(name: str) -> None:
    outcomes = simulated(load_trace(trace(name)), "srtf", "15x4")
    jct_s = sorted(outcome.jct_s for outcome in outcomes)
    assert figures(outcomes, 60).p95_jct_s == jct_s[math.ceil(0.95 * len(jct_s)) - 1]


# --------------------------------------------------------------------------- SF, SRTF, SRSF


def told_plainly(jobs: Sequence[TraceJob], gpus: int, cost: Cost) -> dict[str, float]:
    """When each job ends if the whole list is sorted at every event, exactly by the rule."""
    left_s = {job.job_id: job.duration_s for job in jobs}
    coming, listed, ends_s = list(jobs), list[TraceJob](), dict[str, float]()
    running: list[TraceJob] = []
    now_s = 0.0
    while coming or listed:
        then_s = min(
            [now_s + left_s[job.job_id] for job in running]
            + [job.submitted_s for job in coming[:1]]
        )
        for job in running:
            left_s[job.job_id] -= then_s - now_s
        now_s = then_s
        ends_s |= {job.job_id: now_s for job in running if not left_s[job.job_id]}
        listed = [job for job in listed if job.job_id not in ends_s]
        while coming and coming[0].submitted_s == now_s:
            listed.append(coming.pop(0))
        listed.sort(key=lambda job: cost(job.gpus, left_s[job.job_id]))
        free, running = gpus, []
        for job in listed:
            if job.gpus <= free:
                running.append(job)
                free -= job.gpus
    return ends_s


COSTS: Mapping[str, Cost] = {"sf": fewest_gpus, "srtf": least_time, "srsf": least_service}

few_jobs = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([1, 1, 2, 3, 4, 6, 8]), st.integers(1, 30)),
    min_size=1,
    max_size=30,
).map(lambda rows: jobs_of(*sorted(rows, key=lambda row: row[0])))


@pytest.mark.parametrize("policy", COSTS)
@given(workload=few_jobs)
@settings(max_examples=150, deadline=None)
def test_sorting_only_the_running_jobs_equals_sorting_all(policy: str, workload: Workload) -> None:
    outcomes = simulated(workload, policy, "2x4", "pooled")
    found = {outcome.job.job_id: outcome.end_s for outcome in outcomes}
    assert found == told_plainly(workload.jobs, 8, COSTS[policy])


def test_no_job_that_can_keep_running_is_stopped_for_another() -> None:
    outcomes = simulated(jobs_of((0, 2, 100), (0, 1, 100), (1, 5, 10)), "srtf", "2x4")
    assert [outcome.runs for outcome in outcomes] == [((0, 100),), ((0, 100),), ((1, 11),)]


def test_a_preempted_job_keeps_its_progress_and_its_place() -> None:
    outcomes = simulated(jobs_of((0, 4, 50), (10, 4, 30), (10, 4, 40)), "srtf", "1x4")
    # At 10 the first has as much left as the third, 40 s, and reached this cost first.
    assert [outcome.runs for outcome in outcomes] == [
        ((0, 10), (40, 80)),
        ((10, 40),),
        ((80, 120),),
    ]


def test_no_job_is_preempted_for_a_job_that_would_still_not_fit() -> None:
    # Two kinds of node: all of a is taken, and half of b. The third job could use GPUs of a, but b
    # fits more tightly; so the fourth, which requires b, finds none, and the first can stay.
    sim_cluster = SimCluster(groups=(NodeGroup(1, 4, "a"), NodeGroup(1, 4, "b")))
    rows = [(0.0, 4, 100.0, "a"), (0.0, 2, 90.0, "b"), (5.0, 2, 10.0, ""), (5.0, 2, 20.0, "b")]
    jobs = tuple(
        TraceJob(str(i), at_s, gpus, long_s, gpu_type=gpu_type)
        for i, (at_s, gpus, long_s, gpu_type) in enumerate(rows)
    )
    outcomes = run.simulate(Workload("drawn", jobs), "srtf", setup_on(sim_cluster))
    assert [outcome.first_start_s for outcome in outcomes] == [0, 0, 5, 15]
    assert [outcome.preemptions for outcome in outcomes] == [0, 0, 0, 0]


# --------------------------------------------------------------------------- yarn-cs


def test_under_yarn_cs_the_first_job_that_does_not_fit_blocks_all_behind_it() -> None:
    outcomes = simulated(jobs_of((0, 4, 100), (1, 8, 10), (2, 1, 10)), "yarn-cs", "2x4")
    assert [outcome.first_start_s for outcome in outcomes] == [0, 100, 110]


def test_a_job_may_wait_for_nodes_despite_enough_idle_gpus() -> None:
    # One GPU is free on node 1, one on node 2, and all four on node 3.
    rows = [(0.0, 3, 50.0), (0.0, 3, 90.0), (0.0, 6, 10.0)]
    pooled, on_nodes = (
        simulated(jobs_of(*rows), "yarn-cs", "3x4", placement)[2]
        for placement in ("pooled", "consolidate")
    )
    assert pooled.first_start_s == 0
    assert on_nodes.first_start_s == 50


def test_a_job_gets_the_first_node_with_room_and_not_the_tightest() -> None:
    # The second has left two GPUs on node 1 and one on node 2. The third takes from node 1, so the
    # fourth, which requests two, must wait until another job ends.
    rows = [(0.0, 2, 50.0), (0.0, 3, 90.0), (0.0, 1, 70.0), (0.0, 2, 10.0)]
    assert simulated(jobs_of(*rows), "yarn-cs", "2x4")[3].first_start_s == 50


def test_a_job_that_fits_the_largest_node_is_not_split_over_smaller_ones() -> None:
    sim_cluster = SimCluster(groups=(NodeGroup(1, 8), NodeGroup(2, 4)))
    outcomes = run.simulate(jobs_of((0, 1, 50), (0, 8, 10)), "yarn-cs", setup_on(sim_cluster))
    assert outcomes[1].first_start_s == 50


# --------------------------------------------------------------------------- gandiva


def test_two_jobs_take_turns_of_a_minute_and_a_turn_costs_nothing() -> None:
    setup = setup_on(parse_cluster("1x4", "consolidate"), flat_s=50.0, timing=Timing(60, 20))
    outcomes = run.simulate(jobs_of((0, 4, 120), (0, 4, 120)), "gandiva", setup)
    assert outcomes[0].runs == ((0, 60), (120, 180))
    assert outcomes[1].runs == ((60, 120), (180, 240))
    assert sum(outcome.lost_s for outcome in outcomes) == 0


def test_a_job_that_ends_within_a_step_is_noticed_at_the_end_of_the_step() -> None:
    alone, _ = simulated(jobs_of((0, 1, 13), (100, 1, 10)), "gandiva", "1x4")
    assert alone.end_s == 20
    cut_short, _ = simulated(jobs_of((0, 1, 13), (15, 1, 10)), "gandiva", "1x4")
    assert cut_short.end_s == 15


def test_a_pool_of_gpus_is_time_sliced_like_its_nodes() -> None:
    jobs = jobs_of(*((10.0 * i, 1 + i % 8, 100.0 + 7 * i) for i in range(40)))
    pooled, on_nodes = (
        [outcome.runs for outcome in simulated(jobs, "gandiva", "3x4", placement)]
        for placement in ("pooled", "consolidate")
    )
    assert pooled == on_nodes


# --------------------------------------------------------------------------- dlas


def test_dlas_decides_every_six_minutes_and_gpus_that_come_free_between_stay_idle() -> None:
    outcomes = simulated(jobs_of((0, 4, 100), (10, 4, 300), (400, 4, 50)), "dlas", "1x4")
    assert [outcome.runs for outcome in outcomes] == [((0, 100),), ((360, 660),), ((720, 770),)]


def test_dlas_demotes_to_the_end_of_the_next_queue_where_no_job_preempts_another() -> None:
    # Four GPUs reach the 3200 GPU-seconds between the rounds at 720 and 1080. The second, demoted
    # later, waits for the first to end.
    outcomes = simulated(jobs_of((0, 4, 5000), (10, 4, 5000)), "dlas", "1x4")
    assert outcomes[0].runs == ((0, 1080), (2160, 6080))
    assert outcomes[1].runs == ((1080, 2160), (6120, 10040))


def test_dlas_passes_over_a_job_that_does_not_fit() -> None:
    outcomes = simulated(jobs_of((0, 3, 700), (1, 4, 50), (2, 1, 50)), "dlas", "1x4")
    assert [outcome.first_start_s for outcome in outcomes] == [0, 720, 360]


def test_dlas_moves_a_running_job_only_if_the_chosen_do_not_fit_beside_each_other() -> None:
    # The first three leave two GPUs on node 1 at 360, and two on node 2: the last needs a node, so
    # the third, which is on node 2, moves to node 1.
    rows = [(0.0, 2, 100.0), (0.0, 2, 600.0), (0.0, 2, 600.0), (10.0, 4, 50.0)]
    setup = setup_on(parse_cluster("2x4", "consolidate"), flat_s=20.0)
    outcomes = run.simulate(jobs_of(*rows), "dlas", setup)
    assert [outcome.preemptions for outcome in outcomes] == [0, 0, 1, 0]
    assert [outcome.end_s for outcome in outcomes] == [100, 600, 620, 410]
    narrower = run.simulate(jobs_of(*rows[:3], (10.0, 2, 50.0)), "dlas", setup)
    assert sum(outcome.preemptions for outcome in narrower) == 0


def test_dlas_preempts_no_job_if_none_starts() -> None:
    # At 1080 the wide jobs go behind the narrow ones, which packed first leave one wide job out.
    rows = [(0.0, 3, 2000.0), (0.0, 3, 2000.0), (0.0, 1, 2000.0), (0.0, 1, 2000.0)]
    outcomes = simulated(jobs_of(*rows), "dlas", "2x4")
    assert [outcome.end_s for outcome in outcomes] == [2000] * 4


# --------------------------------------------------------------------------- slurm

H = 3600.0
"""One hour in seconds."""


def backfilled(
    rows: Iterable[tuple[float, int, float, float | None]],
    cluster: str,
    parameters: SlurmParameters = DEFAULTS,
) -> list[float]:
    """Return the start times of jobs given as (submitted, GPUs, duration, time limit), all in
    hours."""
    sim_cluster = parse_cluster(cluster, "consolidate")
    jobs = tuple(
        TraceJob(str(i), at * H, gpus, long * H, limit_s=limit and limit * H)
        for i, (at, gpus, long, limit) in enumerate(rows)
    )
    setup = setup_on(sim_cluster)
    outcomes = Simulation(
        jobs,
        Backfill(sim_cluster.as_nodes(), parameters),
        setup.costs,
        setup.timing,
        run.asking(setup, only_consolidated=False),
    ).run()
    return [outcome.first_start_s / H for outcome in outcomes]


def test_a_short_narrow_job_fills_the_hole_before_a_wide_one() -> None:
    # A has two GPUs until 4 and B requests all four: C may have the other two until 3.
    assert backfilled([(0, 2, 4, 4), (0, 4, 1, 1), (1, 2, 2, 2)], "1x4") == [0, 4, 1]


def test_a_short_job_with_a_long_time_limit_is_not_backfilled() -> None:
    assert backfilled([(0, 2, 4, 4), (0, 4, 1, 1), (1, 2, 2, 24)], "1x4") == [0, 4, 5]


def test_a_job_without_a_limit_counts_as_one_of_a_day() -> None:
    days = SlurmParameters(bf_window_s=72 * H)
    assert backfilled([(0, 2, 30, 30), (0, 4, 1, 1), (1, 2, 2, None)], "1x4", days) == [0, 30, 1]
    assert backfilled([(0, 2, 24, 24), (0, 4, 1, 1), (1, 2, 2, None)], "1x4", days) == [0, 24, 25]


def test_a_reservation_holds_whole_nodes_also_where_gpus_are_left_over() -> None:
    # Two nodes. A fills node 1 until 4; B waits for six GPUs, so two remain unused, and still C
    # does not get them.
    assert backfilled([(0, 4, 4, 4), (0, 6, 1, 1), (1, 2, 9, 24)], "2x4") == [0, 4, 4]


def test_a_long_job_runs_on_a_node_without_a_reservation() -> None:
    # A and B have most of a node each; C requests a whole one and gets the first that becomes free.
    # D may run beside B, which runs longer, but not beside A.
    rows = [(0, 3, 2, 2), (0, 3, 6, 6), (0, 4, 1, 1), (1, 1, 9, 24), (1, 1, 9, 24)]
    assert backfilled(rows, "2x4") == [0, 0, 2, 1, 3]


def test_every_waiting_job_has_a_reservation_and_not_just_the_first() -> None:
    # A fills node 1 until 3, where C begins. B has half of node 2 until 5, where D begins; so E,
    # which would delay D but not C, waits for it.
    rows = [(0, 4, 3, 3), (0, 2, 5, 5), (0, 4, 10, 10), (0, 4, 1, 1), (1, 2, 8, 8)]
    assert backfilled(rows, "2x4") == [0, 0, 3, 5, 6]
    assert backfilled([*rows[:3], rows[4]], "2x4") == [0, 0, 3, 1]


def test_no_reservation_is_made_beyond_the_window() -> None:
    rows = [(0, 4, 3, 3), (0, 2, 5, 5), (0, 4, 10, 10), (0, 4, 1, 1), (1, 2, 8, 8)]
    short = SlurmParameters(bf_window_s=3.5 * H)
    assert backfilled(rows, "2x4", short) == [0, 0, 3, 9, 1]


def test_reservations_are_made_anew_when_a_job_has_ended() -> None:
    # D, on a whole node, ends before its limit, and C starts there; so B need not wait for it.
    rows = [(0, 4, 4, 4), (0, 4, 2, 9), (0, 8, 1, 1), (1, 2, 1, 1.5)]
    assert backfilled(rows, "2x4") == [0, 0, 4, 2]


def test_backfill_runs_at_its_interval_and_the_main_scheduler_at_once() -> None:
    soon = 1 + 10 / 3600
    rows: list[tuple[float, int, float, float | None]]
    rows = [(0, 2, 4, 4), (0, 4, 1, 1), (soon, 2, 2, 2)]
    assert backfilled(rows, "1x4") == [0, 4, 1 + 30 / 3600]
    seldom = SlurmParameters(bf_interval_s=600.0)
    assert backfilled(rows, "1x4", seldom) == [0, 4, 1 + 600 / 3600]
    assert backfilled([(0, 4, soon, 4), (0, 4, 1, 1)], "1x4") == [0, soon]


def test_limits_count_in_whole_minutes() -> None:
    # C should end just before B begins, except for the rounding of its limit.
    rows = [(0, 2, 4, 4), (0, 4, 1, 1), (1, 2, 2, 3 - 90 / 3600)]
    assert backfilled(rows, "1x4") == [0, 4, 1]
    assert backfilled(rows, "1x4", SlurmParameters(limit_grain_s=600.0)) == [0, 4, 5]


def test_jobs_get_the_nodes_that_a_real_slurm_chose() -> None:
    # The first jobs of a replay of paper480:1, 21 times as fast, on slurm-wlm 22.05.8: before any
    # had to wait.
    chosen = (
        "1 2 3 4 4 4 4 2 5 5 6-7 5 8 9-10-11-12 13-14 5 4 15 1 2 6 2 2 7-8 9-10 1 11 12 12 "
        "1-2-4-5-6 12"
    )
    jobs = tuple(
        replace(job, submitted_s=job.submitted_s / 21, duration_s=job.duration_s / 21)
        for job in paper480(1).jobs[: len(chosen.split())]
    )
    sim_cluster = parse_cluster("15x4", "consolidate")
    allocated: dict[str, str] = {}

    class Seen(Backfill):
        def choose(self, now_s: float) -> Iterable[Start]:
            for start in super().choose(now_s):
                allocated[start.job_id] = "-".join(str(int(name[1:])) for name in start.allocation)
                yield start

    Simulation(
        jobs,
        Seen(sim_cluster.as_nodes(), DEFAULTS),
        setup_on(sim_cluster).costs,
        Timing(interval_s=0.5),
        run.asking(setup_on(sim_cluster), only_consolidated=False),
    ).run()
    assert " ".join(allocated[job.job_id] for job in jobs) == chosen


def test_the_first_starts_before_its_time_if_others_end_before_their_limits() -> None:
    assert backfilled([(0, 4, 2, 24), (0, 4, 1, 1), (0, 4, 1, 1)], "1x4") == [0, 2, 3]


def test_a_job_past_its_time_limit_does_not_block_others_for_ever() -> None:
    assert backfilled([(0, 2, 8, 4), (0, 4, 1, 1), (5, 2, 1, 1)], "1x4") == [0, 8, 9]


def test_backfill_tests_at_most_bf_max_job_test_jobs() -> None:
    rows = [(0.0, 2, 4.0, 4.0), *[(0.0, 4, 1.0, 1.0)] * 3, (1.0, 2, 2.0, 2.0)]
    assert backfilled(rows, "1x4", SlurmParameters(bf_max_job_test=3)) == [0, 4, 5, 6, 7]
    assert backfilled(rows, "1x4", SlurmParameters(bf_max_job_test=4)) == [0, 4, 5, 6, 1]


# --------------------------------------------------------------------------- slurm-30d, slurm-users


def started(
    rows: Iterable[tuple[float, int, float, float | None]], policy: str, cluster: str = "1x4"
) -> list[float]:
    """Return the first starts of jobs given as (submitted, GPUs, duration, time limit), all in
    hours."""
    return [one.first_start_s / H for one in in_hours(rows, policy, cluster)]


def in_hours(
    rows: Iterable[tuple[float, int, float, float | None]],
    policy: str,
    cluster: str = "1x4",
    users: str = "",
    costs: Costs | None = None,
) -> tuple[Outcome, ...]:
    sim_cluster = parse_cluster(cluster, "consolidate")
    jobs = tuple(
        TraceJob(str(i), at * H, gpus, long * H, limit_s=limit and limit * H, user=users[i:][:1])
        for i, (at, gpus, long, limit) in enumerate(rows)
    )
    setup = setup_on(sim_cluster)
    return run.simulate(Workload("drawn", jobs), policy, replace(setup, costs=costs or setup.costs))


def test_with_limits_of_30_days_backfill_reserves_nothing() -> None:
    # C takes the GPUs that B waits for, although its own limit would end after B's start.
    rows = [(0, 2, 4, 4), (0, 4, 1, 1), (1, 2, 6, 6)]
    assert started(rows, "slurm") == [0, 4, 5]
    assert started(rows, "slurm-30d") == [0, 7, 1]


def test_limits_of_users_are_the_traces_own_where_it_has_them() -> None:
    rows = [(0.0, 2, 4.0, 4.0), (0.0, 4, 1.0, 1.0), (1.0, 2, 2.0, 2.0)]
    assert started(rows, "slurm-users") == started(rows, "slurm") == [0, 4, 1]
    own, *without = jobs_of(*[(0.0, 1, 100.0)] * 400).jobs
    drawn = with_users_limits(Workload("drawn", (replace(own, limit_s=7.0), *without)))
    first, *others = [job.limit_s or 0.0 for job in drawn.jobs]
    assert first == 7.0
    assert all(limit_s in (*ROUND_S, ALIKE_S) for limit_s in others)
    assert 0.2 < others.count(ALIKE_S) / len(others) < 0.3
    assert 0.55 < sum(limit_s == ROUND_S[0] for limit_s in others) / len(others) < 0.75


# --------------------------------------------------------------------------- slurm-qos


def test_a_short_job_preempts_one_of_the_normal_qos() -> None:
    long, short = in_hours([(0, 4, 9, 24), (1, 4, 0.5, 1)], "slurm-qos")
    assert [s / H for run in long.runs for s in run] == [0, 1, 1.5, 9.5]
    assert short.first_start_s == 1 * H
    # Neither preempts a job of its own QOS, and nor does a normal job a short one.
    assert started([(0, 4, 1, 1), (0.5, 4, 1, 1)], "slurm-qos") == [0, 1]
    assert started([(0, 4, 9, 24), (1, 4, 9, 24)], "slurm-qos") == [0, 9]
    assert started([(0, 4, 1, 1), (0.5, 4, 9, 24)], "slurm-qos") == [0, 1]


def test_a_short_job_preempts_no_more_than_it_needs() -> None:
    # Node 1 has a job of two GPUs and a short one; nodes 2 and 3 a wide job; node 4 one job. The
    # short job of a whole node gets node 4, because the jobs of one node are preempted first.
    rows = [(0.0, 2, 9.0, 24.0), (0.0, 2, 1.0, 1.0), (0.0, 8, 9.0, 24.0), (0.0, 4, 9.0, 24.0)]
    outcomes = in_hours([*rows, (0.5, 4, 0.5, 0.5)], "slurm-qos", "4x4")
    assert [one.preemptions for one in outcomes] == [0, 0, 0, 1, 0]
    # No job is preempted as long as that would not be enough.
    outcomes = in_hours([*rows[:2], (0.5, 4, 0.5, 0.5)], "slurm-qos", "1x4")
    assert outcomes[0].runs[0] == (0, 1 * H)


def test_a_job_waits_behind_those_of_users_who_have_used_less() -> None:
    rows = [(0, 4, 2, 24), (0.5, 4, 1, 24), (1, 4, 1, 24)]
    first_starts = [one.first_start_s / H for one in in_hours(rows, "slurm-qos", users="aab")]
    assert first_starts == [0, 3, 2]
    same_user = [one.first_start_s / H for one in in_hours(rows, "slurm-qos", users="aaa")]
    assert same_user == [0, 2, 3]


def test_use_decays_by_half_in_a_week() -> None:
    # A used its week of GPUs two weeks before the end, which counts less than the more recent 101
    # hours of B.
    week = 7 * 24
    rows = [(0, 4, week, 24 * 30), (0, 4, week * 0.6, 24 * 30), (0, 4, week, 24 * 30)]
    waiting = [(1, 4, 1, 24 * 30), (1, 4, 1, 24 * 30)]
    outcomes = in_hours([*rows, *waiting], "slurm-qos", users="abcab")
    assert outcomes[4].first_start_s > outcomes[3].first_start_s


def test_a_victim_of_a_qos_restarts_and_repeats_what_it_has_not_saved() -> None:
    sim_cluster = parse_cluster("1x4", "consolidate")
    never = SaveModel(((NEVER_S, 1.0),))
    costs = Costs(sim_cluster, speeds=False, flat_s=36.0, saves=never)
    rows = [(0.0, 4, 9.0, 24.0), (1.0, 4, 0.5, 1.0)]
    long, _ = in_hours(rows, "slurm-qos", costs=costs)
    assert (long.preemptions, long.lost_s, long.again_s) == (1, 36.0, 1 * H)
    assert long.end_s == 10.5 * H + 36.0


# --------------------------------------------------------------------------- all of them

MIXED = (
    NodeGroup(2, 8, "v100", nodes_per_switch=1),
    NodeGroup(3, 4, "k80", "rack"),
    NodeGroup(1, 2),
)
SIM_CLUSTERS = [
    *(
        SimCluster(3, 4, placement)
        for placement in ("skew", "consolidate", "spread", "random", "pooled")
    ),
    *(SimCluster(placement=placement, groups=MIXED) for placement in ("skew", "pooled")),
]

any_jobs = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.sampled_from([1, 1, 2, 3, 4, 6, 8, 12]),
        st.integers(1, 300),
        st.sampled_from(["vgg16", "resnet50", ""]),
        st.sampled_from(["", "", "v100", "K80", "h100"]),
        st.sampled_from([None, 60.0, 600.0]),
    ),
    min_size=1,
    max_size=30,
).map(
    lambda rows: Workload(
        "drawn",
        tuple(
            TraceJob(str(i), float(at_s), gpus, float(s), model, gpu_type, limit_s=limit_s)
            for i, (at_s, gpus, s, model, gpu_type, limit_s) in enumerate(
                sorted(rows, key=lambda row: row[0])
            )
        ),
    )
)


class Watched:
    """A scheduler wrapper that checks that no node is overallocated."""

    def __init__(self, watched: Scheduler, nodes: Sequence[Node], sim_cluster: SimCluster) -> None:
        self._watched = watched
        self._sim_cluster = sim_cluster
        self._nodes = {node.name: node for node in nodes}
        self._taken: Counter[str] = Counter()
        self._running: dict[str, SimJob] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watched, name)

    def runs(self, job: SimJob, now_s: float) -> None:
        self._running[job.job_id] = job
        bound_to = self._sim_cluster.type_for(job.trace.gpu_type)
        for name, amount in job.allocation.items():
            self._taken[name] += amount.gpu_count
            node = self._nodes[name]
            assert self._taken[name] <= node.total.gpu_count
            assert not bound_to or bound_to in node.features
        assert sum(amount.gpu_count for amount in job.allocation.values()) == job.width
        self._watched.runs(job, now_s)

    def failed(self, job: SimJob, now_s: float) -> None:
        self._gives_back(job.job_id)
        self._watched.failed(job, now_s)

    def ended(self, job: SimJob) -> None:
        self._gives_back(job.job_id)
        self._watched.ended(job)

    def choose(self, now_s: float) -> Iterable[Start]:
        for start in self._watched.choose(now_s):
            for victim in start.victims:
                self._gives_back(victim)
            yield start

    def _gives_back(self, job_id: str) -> None:
        for name, amount in self._running.pop(job_id).allocation.items():
            self._taken[name] -= amount.gpu_count


@pytest.mark.parametrize("policy", BASELINES)
@given(
    workload=any_jobs,
    sim_cluster=st.sampled_from(SIM_CLUSTERS),
    timing=st.sampled_from([Timing(), Timing(requeue_delay_s=25), Timing(interval_s=15)]),
)
@settings(max_examples=80, deadline=None)
def test_every_job_ends_and_no_node_is_overfull(
    policy: str, workload: Workload, sim_cluster: SimCluster, timing: Timing
) -> None:
    kept, _ = run.fitting(workload, sim_cluster)
    if policy == "gandiva":
        timing = Timing()
    setup = setup_on(sim_cluster, flat_s=7.0, timing=timing)
    baseline = BASELINES[policy](setup, kept)
    outcomes = Simulation(
        kept.jobs,
        cast(Scheduler, Watched(baseline, sim_cluster.as_nodes(), sim_cluster)),
        setup.costs,
        setup.timing,
        run.asking(setup, only_consolidated=policy in CONSOLIDATED_ONLY),
    ).run()
    assert len(outcomes) == len(kept.jobs)
    for outcome in outcomes:
        ran_s = sum(end_s - start_s for start_s, end_s in outcome.runs)
        assert ran_s >= outcome.job.duration_s + outcome.lost_s - 1e-6


class Idle:
    """A scheduler that starts no job."""

    def waits(self, job: SimJob, now_s: float) -> None: ...
    def runs(self, job: SimJob, now_s: float) -> None: ...
    def moved(self, job: SimJob, now_s: float) -> None: ...
    def ended(self, job: SimJob) -> None: ...

    def choose(self, now_s: float) -> Iterable[Start]:
        return []

    def next_change_s(self, job: SimJob, now_s: float) -> float:
        return math.inf

    def next_wake_s(self, now_s: float) -> float:
        return math.inf


def test_jobs_that_never_end_are_an_error_and_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast(dict[str, object], BASELINES), "yarn-cs", lambda *_: Idle())
    with pytest.raises(TiresiasError, match="under yarn-cs 2 of 2 jobs never ended"):
        simulated(jobs_of((0, 1, 10), (0, 1, 10)), "yarn-cs", "1x4")
