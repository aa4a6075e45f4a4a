"""Failures of nodes in simulations."""

from __future__ import annotations

from itertools import islice

import pytest

from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.failures import DAY_S, FailureModel
from slurm_tiresias.simulator.report import figures
from slurm_tiresias.simulator.run import POLICIES, Setup, simulate
from slurm_tiresias.simulator.saves import ON_REQUEST_S, SaveModel
from slurm_tiresias.simulator.sim_cluster import Costs, SimCluster
from slurm_tiresias.simulator.workload import TraceJob, Workload

HOUR_S = 3600.0
CLUSTER = SimCluster(4, 4)
ON_REQUEST = SaveModel(((ON_REQUEST_S, 1.0),))
EVERY_MINUTE = SaveModel(((60.0, 1.0),))


def outcomes(
    *widths: int, rate: float = 0.0, saves: SaveModel = ON_REQUEST, policy: str = "tiresias-l"
) -> tuple[Outcome, ...]:
    jobs = tuple(
        TraceJob(str(n), 60.0 * n, gpus, HOUR_S, user=f"user{n % 3}")
        for n, gpus in enumerate(widths)
    )
    failures = FailureModel(rate) if rate else None
    setup = Setup(
        CLUSTER, Config(), Costs(CLUSTER, False, 60.0, saves), Timing(), failures=failures
    )
    return simulate(Workload("test", jobs), policy, setup)


def test_nodes_fail_as_often_as_the_rate_says() -> None:
    model = FailureModel(6.5)
    found = list(islice(model.failures([f"n{n}" for n in range(1000)], 0.0), 650))
    assert found[-1][0] == pytest.approx(100 * DAY_S, rel=0.15)
    assert found == list(islice(model.failures([f"n{n}" for n in range(1000)], 0.0), 650))


def test_a_failure_loses_what_was_not_saved_and_the_job_ends_later() -> None:
    (before,) = outcomes(1)
    (after,) = outcomes(1, rate=30_000)
    assert before.failures == 0
    assert after.failures > 0
    assert after.again_s > 0
    assert after.end_s == pytest.approx(before.end_s + after.again_s + after.lost_s)


def test_frequent_saves_save_goodput() -> None:
    lost = [
        figures(outcomes(*[4] * 12, rate=20_000, saves=saves), 16).goodput
        for saves in (ON_REQUEST, EVERY_MINUTE)
    ]
    assert lost[0] < lost[1] < 1.0


def test_wide_jobs_fail_more_often() -> None:
    wide = sum(each.failures for each in outcomes(*[16] * 10, rate=5_000))
    narrow = sum(each.failures for each in outcomes(*[1] * 10, rate=5_000))
    assert wide > 2 * narrow


@pytest.mark.parametrize("policy", POLICIES)
def test_all_jobs_end_under_each_policy(policy: str) -> None:
    found = outcomes(*[1, 4, 8, 16] * 8, rate=5_000, policy=policy)
    assert len(found) == 32
    assert sum(each.failures for each in found) > 0
