"""What an administrator orders for one job: to go first for a while, or to be Slurm's own again."""

from __future__ import annotations

import pytest

from slurm_tiresias.controller.bands import is_in_a_band
from slurm_tiresias.controller.job_store import GIVEN_BACK
from slurm_tiresias.controller.orders import obey
from slurm_tiresias.errors import TiresiasError, UsageError
from slurm_tiresias.model import Action, JobState, Reason
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import WHOLE_NODE, Managed


@pytest.fixture
def site(ledger: Ledger) -> Managed:
    return Managed(ledger, {"policy": {"thresholds_gpu_s": [200]}, "preemption": {"min_run_s": 1}})


def order(site: Managed, *words: str) -> None:
    obey(site.cycles.job_store, words[0], words[1:], "by root")


def boost(site: Managed, job_id: str, for_s: float) -> float:
    until_s = site.last.seen.at_s + for_s
    order(site, "boost", job_id, str(until_s))
    return until_s


def test_a_boosted_job_goes_first_and_keeps_its_gpus_until_the_time(site: Managed) -> None:
    wall = [site.submit(WHOLE_NODE) for _ in range(4)]
    first, second = site.submit(WHOLE_NODE), site.submit(WHOLE_NODE)
    site.wait_until(lambda: all(site.tier(key) == 0 for key in wall), "four jobs in the top tier")
    until_s = boost(site, second, for_s=60.0)
    site.wait_for_state(second, JobState.RUNNING)
    assert site.seen(first).state is JobState.PENDING
    assert site.events("boosted") == [(second, "")]
    ((victim, _),) = site.events("preempted")
    assert victim in wall
    # Boosted jobs do not preempt each other.
    for key in (*wall, first):
        if key != victim:
            boost(site, key, for_s=600.0)
    site.wait_until(lambda: site.last.seen.at_s >= until_s - 1.0, "the boost is nearly over")
    assert site.seen(second).state is JobState.RUNNING
    site.wait_for_state(first, JobState.RUNNING)
    assert site.events("preempted") == [(victim, second), (second, first)]


def test_a_job_handed_back_is_slurms_own_until_it_is_managed_again(site: Managed) -> None:
    wall = site.fill()
    waiting = site.submit(WHOLE_NODE)
    site.cycle()
    for key in (waiting, *wall):
        order(site, "hand-back", key)
    site.cycle()
    decision = site.decision(waiting)
    assert decision and (decision.action, decision.detail) == (Action.LEAVE, GIVEN_BACK)
    site.cycle()
    assert not is_in_a_band(site.seen(waiting).priority, "pinned")
    short = site.submit(WHOLE_NODE)
    site.wait_for_reason(short, Reason.NO_ROOM)
    order(site, "resume", wall[0])
    site.wait_for_state(short, JobState.RUNNING)
    assert site.events("preempted") == [(wall[0], short)]


def test_an_order_for_a_job_that_is_not_there_is_refused(site: Managed) -> None:
    with pytest.raises(TiresiasError, match="no job 4711 "):
        boost(site, "4711", 60.0)


def test_a_boost_without_a_time_is_refused(site: Managed) -> None:
    for words in (["1"], ["1", "soon"], ["1", "inf"]):
        with pytest.raises(UsageError, match="until a time"):
            order(site, "boost", *words)
