"""Which of several jobs that share a limit may preempt first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from slurm_tiresias.controller.turns import Awaited, turns
from slurm_tiresias.slurm.protocol import Limit
from tests.controller.test_job_store import pending

SPECS = {key: pending(key).spec for key in ("1", "2", "3", "4")}


def licence(left: float, takes: float = 1) -> Limit:
    return Limit("licence solver", left, takes, takes)


def not_counted(left: float) -> Limit:
    """A limit of which the job takes an unknown amount."""
    return Limit("CPUs of QOS cpus", left, 1, math.inf)


@pytest.mark.parametrize(
    ("limit", "starting", "now", "later"),
    [
        # What is left suffices for two.
        (licence(2), "", "12", "34"),
        (licence(4), "", "1234", ""),
        (licence(2), "4", "1", "23"),
        (licence(2, takes=2), "", "1", "234"),
        # Reached: Slurm will show the reason.
        (licence(0), "", "", ""),
        (licence(0), "4", "", ""),
        (not_counted(100), "", "1", "234"),
        (not_counted(100), "4", "", "123"),
        (not_counted(0), "", "", ""),
    ],
)
def test_shared_limits_bound_preemptors(limit: Limit, starting: str, now: str, later: str) -> None:
    order = [*starting, *(key for key in SPECS if key not in starting)]
    ready = SPECS.keys() - set(starting)
    found = turns(map(SPECS.__getitem__, order), ready, dict.fromkeys(SPECS, (limit,)))
    assert found.now == set(now)
    assert {key: one.limit for key, one in found.later.items()} == dict.fromkeys(later, limit.name)


def test_a_job_does_not_wait_for_jobs_of_lower_rank() -> None:
    found = turns(SPECS.values(), {"1"}, dict.fromkeys(SPECS, (licence(1),)))
    assert found.now == {"1"}


def test_jobs_that_share_nothing_do_not_wait_for_each_other() -> None:
    of_ann: Sequence[Limit] = (Limit("MaxJobs of ann", 1, 1, 1),)
    of_bob: Sequence[Limit] = (Limit("MaxJobs of bob", 1, 1, 1),)
    found = turns(SPECS.values(), SPECS, {"1": of_ann, "2": of_ann, "3": of_bob})
    assert found.now == {"1", "3", "4"}
    assert found.later == {"2": Awaited("MaxJobs of ann", frozenset({"1"}))}
