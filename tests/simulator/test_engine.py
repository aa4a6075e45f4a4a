"""The engine: starts, preemptions, thresholds and ends, each at the right time."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.testbed.constants import replaced
from slurm_tiresias.config import parse
from slurm_tiresias.core.engine import Engine
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.saves import ON_REQUEST_S, SaveModel
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480


def simulate(
    jobs: Workload,
    policy: str,
    cluster: str,
    *,
    flat_s: float = 0.0,
    placement: str = "pooled",
    thresholds_gpu_s: tuple[float, ...] = (3200,),
    timing: Timing | None = None,
    saves: SaveModel | None = None,
    first_tier_wait_s: float = 0.0,
    estimates: tuple[str, ...] = (),
) -> tuple[Outcome, ...]:
    sim_cluster = parse_cluster(cluster, placement)
    config = parse(
        {
            "policy": {"thresholds_gpu_s": list(thresholds_gpu_s), "estimates": list(estimates)},
            "preemption": {"min_run_s": 0},
        }
    )
    costs = Costs(sim_cluster, speeds=False, flat_s=flat_s, saves=saves)
    setup = run.Setup(sim_cluster, config, costs, timing or Timing())
    with replaced({"FIRST_TIER_WAIT_S": first_tier_wait_s}):
        return run.simulate(jobs, policy, setup)


def _jobs(*rows: tuple[float, int, float]) -> Workload:
    jobs = (TraceJob(str(i), at_s, gpus, long_s) for i, (at_s, gpus, long_s) in enumerate(rows))
    return Workload("drawn", tuple(jobs))


def test_a_preempted_job_pays_for_its_restart_and_the_rest_of_its_work() -> None:
    long, short = simulate(_jobs((0, 4, 2000), (1000, 4, 100)), "tiresias-l", "1x4", flat_s=50)
    assert (short.first_start_s, short.end_s) == (1000, 1100)
    assert (long.preemptions, long.lost_s, long.waited_s) == (1, 50, 100)
    assert long.end_s == 2000 + 100 + 50


def test_nothing_is_decided_while_jobs_only_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that crosses a threshold is ranked again once another job may preempt it."""
    decided_at_s: list[float] = []

    def choose(engine: Engine, now_s: float, chosen: Any = Engine.choose) -> Any:
        decided_at_s.append(now_s)
        return chosen(engine, now_s)

    monkeypatch.setattr(Engine, "choose", choose)
    simulate(_jobs((0, 4, 2000), (5000, 4, 2000), (6500, 4, 100)), "tiresias-l", "1x4")
    assert decided_at_s == [0, 2000, 5000, 6500, 6600, 7100]


EVERY_600_S = SaveModel(((600.0, 1.0),))


def test_a_preempted_job_repeats_unsaved_work() -> None:
    jobs = _jobs((0, 4, 2000), (1000, 4, 100))
    long, _ = simulate(jobs, "tiresias-l", "1x4", flat_s=50, saves=EVERY_600_S)
    assert (long.again_s, long.lost_s) == (400, 50)
    assert long.end_s == 2000 + 100 + 50 + 400
    asked = SaveModel(((ON_REQUEST_S, 1.0),))
    long, _ = simulate(jobs, "tiresias-l", "1x4", flat_s=50, saves=asked)
    assert (long.again_s, long.end_s) == (0, 2000 + 100 + 50)


@pytest.mark.parametrize(
    ("submitted_s", "first_start_s", "again_s"), [(850, 850, 250), (950, 1200, 0)]
)
def test_a_preemption_waits_for_a_save_that_is_due(
    submitted_s: float, first_start_s: float, again_s: float
) -> None:
    """The long job has saved at 600 s, and saves next at 1200 s."""
    jobs = _jobs((0, 4, 2000), (submitted_s, 4, 100))
    long, short = simulate(jobs, "tiresias-l", "1x4", saves=EVERY_600_S, first_tier_wait_s=300)
    assert (short.first_start_s, long.again_s) == (first_start_s, again_s)


def test_preemptions_do_not_wait_for_unknown_saves() -> None:
    silent = SaveModel(EVERY_600_S.shares, told=0.0)
    jobs = _jobs((0, 4, 2000), (1100, 4, 100))
    long, short = simulate(jobs, "tiresias-l", "1x4", saves=silent, first_tier_wait_s=300)
    assert (short.first_start_s, long.again_s) == (1100, 500)


def test_a_job_can_be_preempted_only_after_its_demotion() -> None:
    long, short = simulate(_jobs((0, 4, 2000), (10, 4, 100)), "tiresias-l", "1x4")
    assert short.first_start_s == pytest.approx(800, abs=0.01)
    assert long.preemptions == 1


def test_a_victim_runs_until_its_grace_ends() -> None:
    timing = Timing(preempting_delay_s=5, requeue_delay_s=20)
    jobs = _jobs((0, 4, 2000), (1000, 4, 10))
    long, short = simulate(jobs, "tiresias-l", "1x4", timing=timing)
    assert (short.first_start_s, short.end_s) == (1005, 1015)
    assert long.runs == ((0, 1005), (1025, 2020))


def test_a_victim_that_ends_during_its_grace_was_not_preempted() -> None:
    timing = Timing(preempting_delay_s=5)
    long, short = simulate(_jobs((0, 4, 1003), (1000, 4, 10)), "tiresias-l", "1x4", timing=timing)
    assert (long.end_s, long.preemptions) == (1003, 0)
    assert short.first_start_s == 1005


def test_a_job_wider_than_the_cluster_is_left_out_and_reported() -> None:
    kept, wide = run.fitting(_jobs((0, 4, 10), (0, 64, 10)), parse_cluster("1x8", "skew"))
    assert (len(kept.jobs), len(wide)) == (1, 1)


@pytest.mark.parametrize(("estimates", "first"), [((), "ben"), (("history",), "ann")])
def test_in_a_tier_jobs_of_short_programs_go_first(estimates: tuple[str, ...], first: str) -> None:
    ran_s = {"ann": 1, "ben": 4000}
    ended = [
        TraceJob(f"{user}{number}", 10_000 * number, 1, ran_s[user], user=user, name="x")
        for number in range(20)
        for user in ran_s
    ]
    begin_s = 300_000
    long = TraceJob("long", begin_s, 4, 9000, user="eve", name="x")
    waiting = [
        TraceJob(user, begin_s + second, 4, ran_s[user], user=user, name="x")
        for second, user in enumerate(("ben", "ann"), 1)
    ]
    workload = Workload("two users", (*ended, long, *waiting))
    outcomes = simulate(workload, "tiresias-l", "1x4", estimates=estimates)
    waited = sorted(outcomes[-2:], key=lambda one: one.first_start_s)
    assert waited[0].job.job_id == first


def test_every_job_ends_whatever_the_policy() -> None:
    few = Workload("few", paper480().jobs[:60])
    for policy in run.POLICIES:
        assert len(simulate(few, policy, "8x4", placement="skew", flat_s=20)) == 60


@pytest.mark.parametrize("interval_s", [0.1, 0.3, 0.6, 0.7, 15, 60])
def test_simulations_end_for_any_interval(interval_s: float) -> None:
    """In binary fractions the third tick of 0.6 s is slightly less than 1.8."""
    jobs = _jobs(*((number * 3 / 10, 1, number / 5 + 0.1) for number in range(40)))
    for one in simulate(jobs, "tiresias-l", "1x4", timing=Timing(interval_s=interval_s)):
        assert one.first_start_s >= one.job.submitted_s
        ticks = one.first_start_s / interval_s
        assert ticks == pytest.approx(round(ticks))
