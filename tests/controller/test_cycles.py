"""The controller over several cycles, on the in-memory Slurm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from scripts.testbed.constants import replaced
from slurm_tiresias.controller.cycle import ENFORCE, PAUSED, SHADOW
from slurm_tiresias.core.lifecycle.preemption import PreemptionState
from slurm_tiresias.model import JobState, Reason
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import WHOLE_NODE, Managed, Tables, merged

QUICK: Tables = {"policy": {"thresholds_gpu_s": [8]}, "preemption": {"min_run_s": 1}}
"""Two tiers, the second after two seconds on four GPUs."""

Manage = Callable[..., Managed]


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with replaced({"PROMOTE_FLOOR_S": 4.0, "START_BOUND_S": 8.0}):
        yield


@pytest.fixture
def managed(ledger: Ledger) -> Manage:
    """A managed cluster; ``settings`` override ``QUICK``, table by table."""
    return lambda **settings: Managed(ledger, merged(QUICK, settings))


@pytest.mark.parametrize("mode", [ENFORCE, SHADOW, PAUSED])
def test_a_demotion_is_recorded_also_without_acting(managed: Manage, mode: str) -> None:
    cluster = managed()
    long = cluster.submit(WHOLE_NODE)
    cluster.cycle(mode, times=10)
    assert cluster.tier(long) == 1
    record = cluster.ledger.jobs.one(long)
    assert record is not None and record.tier == 1
    assert record.tier_entered_s > record.submitted_s
    assert cluster.events("demoted") == [(long, "")]


@pytest.mark.parametrize("mode", [PAUSED, SHADOW])
def test_a_controller_that_stops_acting_abandons_its_plans(managed: Manage, mode: str) -> None:
    cluster = managed(preemption={"checkpoint": "USR1@60"})
    wall = cluster.fill()
    short = cluster.submit(WHOLE_NODE)
    store = cluster.cycles.job_store
    cluster.wait_until(
        lambda: any(
            one.state is PreemptionState.SIGNALLED for one in store.lifecycles.preemptions.values()
        ),
        "a victim is signalled",
    )
    assert cluster.seen(short).spec.required_node_list
    cluster.cycle(mode)
    assert not store.lifecycles.preemptions and not store.lifecycles.nominations
    assert not cluster.seen(short).spec.required_node_list
    for _ in range(150):
        cluster.cycle(mode)
        assert not cluster.last.outcome.writes
    assert [cluster.seen(key).restarts for key in wall] == [0, 0, 0, 0]


@pytest.mark.parametrize("mode", [PAUSED, SHADOW])
def test_a_requeued_victim_starts_at_once_also_without_acting(managed: Manage, mode: str) -> None:
    """Without a new StartTime Slurm would delay it by two minutes."""
    cluster = managed()
    wall = cluster.fill()
    short = cluster.submit(WHOLE_NODE)
    cluster.wait_until(lambda: any(cluster.seen(key).restarts for key in wall), "a requeue")
    cluster.cancel(short)
    cluster.cycle(mode, times=20)
    assert all(cluster.seen(key).state is JobState.RUNNING for key in wall)


def test_jobs_that_share_a_licence_preempt_one_at_a_time(managed: Manage) -> None:
    cluster = managed(preemption={"checkpoint": "USR1@3"})
    cluster.fill()
    short = [cluster.submit(replace(WHOLE_NODE, licenses="solver")) for _ in range(3)]

    def are(*reasons: Reason) -> bool:
        found = (cluster.decision(key) for key in short)
        return sorted(one.reason.value for one in found if one) == sorted(r.value for r in reasons)

    shares, waits = Reason.SHARES_LIMIT, Reason.SLURM_WAITS
    cluster.wait_until(lambda: are(Reason.NOMINATED, shares, shares), "one is in front")
    cluster.wait_until(lambda: are(Reason.RUNS_ON, waits, waits), "it runs, and has the licence")
    assert len(cluster.events("preempted")) == 1
