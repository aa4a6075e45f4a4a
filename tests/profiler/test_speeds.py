"""The cost of spreading, from runs in both placements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_tiresias.profiler.profile import JOB, TRAFFIC, Key
from slurm_tiresias.profiler.skew import Skew
from slurm_tiresias.profiler.speeds import RunTraffic, pairs_of, what_spreading_costs

KEY = Key(JOB, "train", "ann")
RUN = RunTraffic(KEY, TRAFFIC, Skew(400, 500, 5), 6000, gpus=4, nodes=1, elapsed_s=100.0)


def on(nodes: int, sent_bytes: int = 6000, **changes: Any) -> RunTraffic:
    return replace(RUN, nodes=nodes, sent_bytes=sent_bytes, **changes)


def test_the_gain_is_the_rate_on_few_nodes_over_that_on_more() -> None:
    costs = what_spreading_costs([on(1), on(1), on(3, 3000), on(4, 5000)])
    assert costs[KEY].gain == pytest.approx(1.5)
    assert costs[KEY].runs == 4
    assert costs[KEY].pair.skew == 0.8


@pytest.mark.parametrize(
    "runs",
    [
        [on(1), on(1), on(2)],
        [on(1), on(1), on(1)],
        [on(1), on(1), on(2, gpus=8), on(2, gpus=8)],
        [on(1), on(1), on(2, source="collectives"), on(2, source="collectives")],
        [on(1), on(1), on(2, elapsed_s=5.0), on(2, elapsed_s=5.0)],
        [on(1, skew=Skew(100, 500, 5)), on(1, skew=Skew(100, 500, 5)), on(2), on(2)],
        [on(1, gpus=0), on(1, gpus=0), on(2, gpus=0), on(2, gpus=0)],
    ],
)
def test_runs_that_cannot_be_compared_give_no_spreading_cost(runs: list[RunTraffic]) -> None:
    assert what_spreading_costs(runs) == {}


def test_no_single_user_decides_the_fitted_limit() -> None:
    keys = [Key(JOB, f"train{number}", "eve") for number in range(50)]
    costs = what_spreading_costs(
        replace(run, key=key) for key in keys for run in (on(1), on(1), on(2), on(2))
    )
    assert len(costs) == 50
    assert len(pairs_of(costs)) == 3
