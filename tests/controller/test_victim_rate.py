"""How many jobs a controller preempts in a given time, however often it decides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.testbed.constants import replaced
from slurm_tiresias.model import JobState, Protection, Reason
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import INTERVAL_S, ONE_GPU, Managed
from tests.slurm.contract import Asked

MOST, SPAN_S = 2, 10.0


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with replaced({"MAX_VICTIMS": MOST}):
        yield


@pytest.fixture
def site(ledger: Ledger) -> Managed:
    """A cluster that is full of jobs of the second tier, each with one GPU. The controller makes
    twenty decisions in each interval."""
    site = Managed(
        ledger,
        {
            "policy": {"thresholds_gpu_s": [2]},
            "preemption": {"min_run_s": 1},
            "controller": {"interval_s": SPAN_S},
        },
    )
    for key in [site.submit(ONE_GPU) for _ in range(16)]:
        site.wait_for_tier(key, 1)
    return site


def victims(site: Managed) -> int:
    return len(site.events("preempted"))


def test_decisions_in_quick_succession_preempt_no_more_jobs_than_one(site: Managed) -> None:
    short = [site.submit(ONE_GPU) for _ in range(6)]
    told = [0]
    while site.seen(short[-1]).state is not JobState.RUNNING:
        site.cycle()
        told.append(victims(site))
    assert told[-1] == len(short)
    in_a_span = round(SPAN_S / INTERVAL_S)
    # Victims of one decision leave in different cycles, so a span may meet those of two intervals.
    assert max(b - a for a, b in zip(told, told[in_a_span:], strict=False)) <= 2 * MOST
    assert len(told) * INTERVAL_S > (len(short) / MOST - 1) * SPAN_S


def test_a_job_with_more_victims_than_the_limit_starts_and_others_wait(site: Managed) -> None:
    wide = site.submit(Asked(gpus=8))
    site.wait_for_state(wide, JobState.RUNNING)
    assert victims(site) == 8
    began_s = site.last.seen.at_s
    short = site.submit(ONE_GPU)
    decision = site.wait_for_reason(short, Reason.PROTECTED)
    assert {each for _, each in decision.blockers} == {Protection.MAX_VICTIMS}
    site.wait_for_state(short, JobState.RUNNING)
    assert victims(site) == 9
    assert site.last.seen.at_s - began_s == pytest.approx(8 / MOST * SPAN_S, abs=SPAN_S)


def test_victims_that_are_spared_do_not_count(site: Managed) -> None:
    began_s = site.last.seen.at_s
    gone = [site.submit(ONE_GPU) for _ in range(MOST)]
    site.wait_until(lambda: len(site.last.plan.preemptions) == MOST, "victims are chosen")
    for key in gone:
        site.cancel(key)
    for key in [site.submit(ONE_GPU) for _ in range(MOST)]:
        site.wait_for_state(key, JobState.RUNNING)
    assert victims(site) == MOST
    assert site.last.seen.at_s - began_s < SPAN_S
