"""The controller over several cycles, on the in-memory Slurm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from scripts.testbed.constants import replaced
from slurm_tiresias.controller.cycle import ENFORCE, PAUSED, SHADOW
from slurm_tiresias.core.lifecycle.preemption import PreemptionState
from slurm_tiresias.model import JobState, Protection, Reason
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import ONE_GPU, WHOLE_NODE, Managed

QUICK: Mapping[str, Mapping[str, object]] = {
    "policy": {"thresholds_gpu_s": [8]},
    "preemption": {"min_run_s": 1},
}
"""Two tiers, the second after two seconds on four GPUs."""

Manage = Callable[..., Managed]


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with replaced({"PROMOTE_FLOOR_S": 4.0, "START_BOUND_S": 8.0}):
        yield


@pytest.fixture
def managed(ledger: Ledger) -> Manage:
    """A managed cluster; ``settings`` override ``QUICK``, table by table."""
    return lambda **settings: Managed(
        ledger, {name: {**table, **settings.get(name, {})} for name, table in QUICK.items()}
    )


def test_a_demoted_job_keeps_running_until_a_higher_job_can_use_its_gpus(managed: Manage) -> None:
    cluster = managed()
    wall = cluster.fill()
    never = cluster.submit(replace(WHOLE_NODE, nodes=5, held=True))
    same_tier_as_all = cluster.submit(replace(WHOLE_NODE, dependency=f"afterany:{wall[0]}"))
    cluster.wait_for_reason(never, Reason.HELD)
    cluster.wait_for_reason(same_tier_as_all, Reason.SLURM_WAITS)
    for _ in range(3):
        cluster.cycle()
    assert [cluster.seen(key).restarts for key in wall] == [0, 0, 0, 0]
    assert all(cluster.seen(key).state is JobState.RUNNING for key in wall)


@pytest.mark.parametrize("mode", [ENFORCE, SHADOW, PAUSED])
def test_a_demotion_is_recorded_whether_or_not_the_controller_acts(
    managed: Manage, mode: str
) -> None:
    cluster = managed()
    long = cluster.submit(WHOLE_NODE)
    for _ in range(10):
        cluster.cycle(mode)
    assert cluster.tier(long) == 1
    record = cluster.ledger.jobs.one(long)
    assert record is not None and record.tier == 1
    assert record.tier_entered_s > record.submitted_s
    assert cluster.events("demoted") == [(long, "")]


def test_no_job_is_preempted_before_its_minimum_run_time(managed: Manage) -> None:
    cluster = managed(preemption={"min_run_s": 15})
    wall = cluster.fill()
    short = cluster.submit(replace(ONE_GPU, script="ends"))
    decision = cluster.wait_for_reason(short, Reason.PROTECTED)
    assert {each for _, each in decision.blockers} == {Protection.MIN_RUN}
    cluster.wait_for_state(short, None)
    assert [cluster.seen(key).restarts for key in wall].count(1) == 1
    ran_s = [run.elapsed_s for key in wall for run in cluster.ledger.runs.of(key)]
    assert min(ran_s) >= 14


@pytest.mark.parametrize("mode", [PAUSED, SHADOW])
def test_a_controller_that_stops_acting_abandons_what_is_under_way(
    managed: Manage, mode: str
) -> None:
    cluster = managed(preemption={"signal": "USR1", "grace_s": 60})
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
def test_a_requeued_victim_starts_again_at_once_although_the_controller_stops_acting(
    managed: Manage, mode: str
) -> None:
    """Without a new StartTime Slurm would delay it by two minutes."""
    cluster = managed()
    wall = cluster.fill()
    short = cluster.submit(WHOLE_NODE)
    cluster.wait_until(lambda: any(cluster.seen(key).restarts for key in wall), "a requeue")
    cluster.cancel(short)
    for _ in range(20):
        cluster.cycle(mode)
    assert all(cluster.seen(key).state is JobState.RUNNING for key in wall)


def test_jobs_that_share_a_licence_preempt_one_at_a_time(managed: Manage) -> None:
    cluster = managed(preemption={"signal": "USR1", "grace_s": 3})
    cluster.fill()
    short = [cluster.submit(replace(WHOLE_NODE, licenses="solver")) for _ in range(3)]

    def are(*reasons: Reason) -> bool:
        found = (cluster.decision(key) for key in short)
        return sorted(one.reason.value for one in found if one) == sorted(r.value for r in reasons)

    shares, waits = Reason.SHARES_LIMIT, Reason.SLURM_WAITS
    cluster.wait_until(lambda: are(Reason.NOMINATED, shares, shares), "one is in front")
    cluster.wait_until(lambda: are(Reason.RUNS_ON, waits, waits), "it runs, and has the licence")
    assert len(cluster.events("preempted")) == 1


def test_a_job_that_has_waited_long_enough_is_promoted_to_the_top_tier(managed: Manage) -> None:
    cluster = managed(policy={"promote_knob": 0.5})
    wall = cluster.fill()
    urgent = cluster.submit(WHOLE_NODE)
    cluster.wait_until(lambda: cluster.events("preempted"), "a preemption")
    victim = cluster.events("preempted")[0][0]
    cluster.wait_until(lambda: (victim, "") in cluster.events("promoted"), "it is promoted")
    cluster.wait_for_state(victim, JobState.RUNNING)
    cluster.wait_until(lambda: len(cluster.events("preempted")) > 1, "it pushed one out")
    pushed, by = cluster.events("preempted")[1]
    assert pushed in {*wall, urgent} - {victim}
    assert by == victim
