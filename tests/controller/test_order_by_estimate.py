"""Waiting jobs of a tier are ordered in Slurm too by how long jobs like them ran."""

from __future__ import annotations

import pytest

from scripts.testbed.in_memory.records import Submission
from slurm_tiresias.controller.bands import TOP_TIER
from slurm_tiresias.core.features.recurring import ENOUGH
from slurm_tiresias.model import Amount, JobState, Request
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import INTERVAL_S, WHOLE_NODE, Managed


@pytest.mark.parametrize("estimates", [[], ["history"]])
def test_new_jobs_have_priorities_by_their_estimates(ledger: Ledger, estimates: list[str]) -> None:
    managed = Managed(ledger, {"policy": {"thresholds_gpu_s": [1e6], "estimates": estimates}})

    def submit(name: str) -> str:
        request = Request(Amount({"": 1}, 1), max_chunks_per_node=1)
        return managed.slurm.submit(Submission(request, name=name))

    for name, ran_s in (("short", 2.0), ("long", 40.0)):
        jobs = [submit(name) for _ in range(ENOUGH)]
        for job in jobs:
            managed.wait_for_state(job, JobState.RUNNING)
        for _ in range(int(ran_s / INTERVAL_S)):
            managed.cycle()
        for job in jobs:
            managed.cancel(job)
        for job in jobs:
            managed.wait_for_state(job, None)
    for job in [managed.submit(WHOLE_NODE) for _ in range(4)]:
        managed.wait_for_state(job, JobState.RUNNING)
    long, short = submit("long"), submit("short")
    managed.cycle()
    managed.cycle()
    priorities = [managed.seen(job).priority for job in (short, long)]
    if estimates:
        assert priorities[0] > priorities[1] > TOP_TIER
    else:
        assert priorities == [TOP_TIER, TOP_TIER]
