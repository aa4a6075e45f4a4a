"""A victim that leaves more GPUs than its preemptor needs: another preemptor starts on the rest."""

from __future__ import annotations

from slurm_tiresias.model import JobState
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import Managed
from tests.slurm.contract import Asked

PAIR = Asked(gpus=2, per_node=True)


def test_two_jobs_start_on_what_a_victim_of_one_of_them_leaves(ledger: Ledger) -> None:
    """Each node has a job of three GPUs and one of one, so two jobs of two GPUs share a node.

    The plan gives the victim of three GPUs to the job of the higher tier. Slurm tries nominated
    jobs by their ids, the other one first, and withholds the node from the job after it.
    """
    site = Managed(
        ledger, {"policy": {"thresholds_gpu_s": [2, 4, 6, 8]}, "preemption": {"min_run_s": 1}}
    )
    second = site.submit(PAIR)
    site.wait_for_tier(second, 1)
    site.requeue(second)
    site.hold(second)
    gpus = {site.submit(Asked(gpus=each, per_node=True)): each for each in 4 * [3] + 4 * [1]}
    for key in gpus:
        site.wait_for_tier(key, 4)
    # Slurm starts a requeued job two minutes later at the earliest.
    may_start_s = site.seen(second).eligible_s or 0.0
    site.wait_until(lambda: site.last.seen.at_s > may_start_s, "the delay of the requeue is over")
    site.release(second)
    first = site.submit(PAIR)
    for key in (first, second):
        site.wait_for_state(key, JobState.RUNNING)
    assert site.seen(first).allocation.keys() == site.seen(second).allocation.keys()
    assert {other: gpus[key] for key, other in site.events("preempted")} == {first: 3, second: 1}
    assert site.events("backed-off") == []
