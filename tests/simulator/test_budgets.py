"""One user attacks a job: a stream of jobs that request its GPUs, and end as soon as they have
them."""

from __future__ import annotations

from typing import Any

from scripts.testbed.constants import replaced
from slurm_tiresias.config import parse
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.workload import TraceJob, Workload

HOUR_S = 3600
HUNTED = TraceJob("long", 0, 4, 4 * HOUR_S, user="ann")
HUNT = [TraceJob(f"eve{i}", 1000 + 10 * i, 4, 1, user="eve") for i in range(2000)]
HONEST = TraceJob("short", 9000, 4, 60, user="bob")


def simulated(**preemption: Any) -> dict[str, Outcome]:
    sim_cluster = parse_cluster("1x4", "pooled")
    tables = {"policy": {"thresholds_gpu_s": [400]}, "preemption": {"min_run_s": 20} | preemption}
    setup = run.Setup(
        sim_cluster, parse(tables), Costs(sim_cluster, speeds=False, flat_s=15.0), Timing()
    )
    jobs = sorted((HUNTED, HONEST, *HUNT), key=lambda job: job.submitted_s)
    outcomes = run.simulate(Workload("hunt", tuple(jobs)), "tiresias-l", setup)
    return {outcome.job.job_id: outcome for outcome in outcomes}


def test_without_any_bound_a_repeatedly_preempted_job_makes_hardly_any_progress() -> None:
    with replaced({"KEPT_TIMES": 0.0}):
        hunted = simulated(budget_share=0)["long"]
    assert hunted.preemptions > 400
    assert hunted.lost_s > 6000


def test_longer_minimum_run_times_bound_the_loss_of_a_repeatedly_preempted_job() -> None:
    hunted = simulated(budget_share=0)["long"]
    assert hunted.preemptions < 20
    assert hunted.lost_s <= 15 * hunted.preemptions


def test_a_user_over_budget_preempts_no_more_and_another_user_still_does() -> None:
    with replaced({"KEPT_TIMES": 0.0}):
        outcomes = simulated(budget_share=0.01)
    assert outcomes["long"].preemptions < 20
    assert outcomes["short"].waited_s <= 20


def test_the_preemption_budget_does_not_apply_among_a_users_own_jobs() -> None:
    own = [TraceJob(f"own{i}", 1000 + 100 * i, 4, 1, user="ann") for i in range(100)]
    sim_cluster = parse_cluster("1x4", "pooled")
    tables = {
        "policy": {"thresholds_gpu_s": [400]},
        "preemption": {"min_run_s": 20, "budget_share": 0.001},
    }
    setup = run.Setup(
        sim_cluster, parse(tables), Costs(sim_cluster, speeds=False, flat_s=0.0), Timing()
    )
    with replaced({"KEPT_TIMES": 0.0}):
        outcomes = run.simulate(Workload("own", (HUNTED, *own)), "tiresias-l", setup)
    assert {o.job.job_id: o.preemptions for o in outcomes}["long"] == 100
