"""The worked example of the paper (Fig. 7 page 490, Fig. 20 page 499), run through ``decide``.

Two GPUs; at time 0 come J1 (2 GPUs, 2 slots), J2 (1, 8) and J3 (2, 6); one decision a slot.
"""

from __future__ import annotations

import pytest

from scripts.testbed.job_views import changed
from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.gittins import ServiceHistory
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.model import Action, Allocation, JobState
from tests.pictures import cluster, configured, gpus, job
from tests.policy.continuous import continuous_gittins, continuous_las, shortest_remaining_service

EXAMPLE = {"1": (2, 2), "2": (1, 8), "3": (2, 6)}
"""GPUs and slots of each job."""

HISTORY = ServiceHistory([4, 8, 12])
PLOTTED = [0.25, 0.28, 0.375, 0.75, 0.2, 0.235, 0.333, 0.667, 0.125, 0.167, 0.25, 0.5]
"""The index values drawn in Fig. 20 for 0 to 11 GPU-slots attained."""


def run(policy: Policy) -> tuple[list[str], dict[str, int]]:
    """Return the jobs chosen in each slot, and when each job was done."""
    jobs = {
        job_id: job(job_id, gpus(width, spanning=True), submitted_s=0.0, remaining_s=float(slots))
        for job_id, (width, slots) in EXAMPLE.items()
    }
    nodes = cluster("n1 . .", []).nodes
    slots: list[str] = []
    done: dict[str, int] = {}
    while jobs:
        plan = decide(Snapshot(0.0, nodes, tuple(jobs.values())), policy, configured())
        ran = {
            d.job_id for d in plan.decisions.values() if d.action in (Action.START, Action.RUN_ON)
        }
        slots.append("+".join(sorted(ran)))
        for job_id, one in list(jobs.items()):
            start_on = plan.decisions[job_id].start_on or one.allocation
            jobs[job_id] = _advance(one, start_on) if job_id in ran else _stopped(one)
            if jobs[job_id].remaining_s == 0:
                done[job_id] = len(slots)
                del jobs[job_id]
    return slots, done


def _advance(one: Job, allocation: Allocation) -> Job:
    attained = one.attained_gpu_s + EXAMPLE[one.job_id][0]
    return changed(
        one,
        state=JobState.RUNNING,
        allocation=allocation,
        attained_gpu_s=attained,
        remaining_s=(one.remaining_s or 0) - 1,
    )


def _stopped(one: Job) -> Job:
    return changed(one, state=JobState.PENDING, allocation={})


@pytest.mark.parametrize(
    ("policy", "slots", "done"),
    [
        pytest.param(
            shortest_remaining_service(), "1122222222333333", {"1": 2, "2": 10, "3": 16}, id="SRSF"
        ),
        pytest.param(continuous_las(), "1232123223223233", {"1": 5, "2": 14, "3": 16}, id="2D-LAS"),
        pytest.param(
            continuous_gittins(lambda attained: PLOTTED[int(attained)]),
            "1122223322223333",
            {"1": 2, "2": 12, "3": 16},
            id="2D-Gittins with the values of Fig. 20",
        ),
        pytest.param(
            continuous_gittins(HISTORY.best_index),
            "1122222222333333",
            {"1": 2, "2": 10, "3": 16},
            id="2D-Gittins by the formula of Pseudocode 1",
        ),
    ],
)
def test_the_worked_example_runs_slot_by_slot_as_in_the_paper(
    policy: Policy, slots: str, done: dict[str, int]
) -> None:
    ran, finished = run(policy)
    assert "".join(ran) == slots
    assert finished == done


def test_the_printed_formula_gives_other_index_values_than_the_figure_plots() -> None:
    values = [round(HISTORY.best_index(attained), 3) for attained in range(12)]
    assert values == [0.125, 0.143, 0.167, 0.333, 0.167, 0.2, 0.25, 0.5, 0.25, 0.333, 0.5, 1.0]
