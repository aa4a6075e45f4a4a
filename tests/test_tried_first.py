"""Nodes that Slurm withholds for waiting jobs of a higher PriorityTier."""

from __future__ import annotations

import math

import pytest

from slurm_tiresias.core.tried_first import Contender, Holder, TriedFirst
from slurm_tiresias.model import Amount, Node, Request

NODES = tuple(
    Node(f"n{number}", Amount({"": 4}, cpus=16, memory_mb=8000), partitions=frozenset({"urgent"}))
    for number in (1, 2, 3)
)
URGENT, GPU = 10, 1


def asking(gpus: int, nodes: int = 1) -> Request:
    return Request(
        Amount({"": gpus}, cpus=1),
        chunks=nodes,
        min_nodes=nodes,
        max_nodes=nodes,
        partitions=("urgent",),
    )


def holding(node: str, gpus: int, ends_s: float) -> Holder:
    return Holder({node: Amount({"": gpus}, cpus=1)}, ends_s)


def singles(node: str, ends_s: float) -> tuple[Holder, ...]:
    return tuple(holding(node, 1, ends_s) for _ in range(4))


FULL = (*singles("n1", 100.0), *singles("n2", 200.0), *singles("n3", 300.0))
ALL = {"n1", "n2", "n3"}


@pytest.mark.parametrize(
    ("waits", "gpus", "ends_s", "kept"),
    [
        # The other job would take the GPUs that are freed for a job as wide.
        (asking(4), 4, 50.0, ALL),
        # One more GPU is not enough for it, and it can start on n1 at 100.
        (asking(4), 1, 50.0, set()),
        (asking(4), 1, 150.0, {"n1"}),
        # On two nodes at 200, on three at 300.
        (asking(4, nodes=2), 4, 150.0, set()),
        (asking(4, nodes=2), 4, 250.0, {"n1", "n2"}),
        (asking(4, nodes=3), 4, 250.0, set()),
        (asking(4, nodes=3), 4, math.inf, ALL),
        # It never fits.
        (asking(5), 4, math.inf, set()),
    ],
)
def test_a_job_avoids_nodes_that_slurm_keeps_for_a_higher_priority_job(
    waits: Request, gpus: int, ends_s: float, kept: set[str]
) -> None:
    first = TriedFirst(NODES, FULL, [Contender(waits, URGENT)])
    assert first.kept_from(asking(gpus), GPU, ends_s) == kept
    assert first.kept_from(asking(gpus), URGENT, ends_s) == set()


def test_idle_gpus_count_together_with_freed_ones() -> None:
    holders = FULL[2:]
    first = TriedFirst(NODES, holders, [Contender(asking(4), URGENT)])
    assert first.kept_from(asking(1), GPU, 50.0) == set()
    assert first.kept_from(asking(2), GPU, 50.0) == ALL


def test_a_victim_may_free_more_than_it_is_preempted_for() -> None:
    holders = (holding("n1", 4, 100.0), *FULL[4:])
    first = TriedFirst(NODES, holders, [Contender(asking(4), URGENT)])
    assert first.kept_from(asking(1), GPU, 50.0) == ALL
    wide = TriedFirst(NODES, holders, [Contender(asking(4, nodes=2), URGENT)])
    assert wide.kept_from(asking(4), GPU, 50.0) == set()


def test_a_plan_is_never_later_than_slurms_however_many_jobs_run() -> None:
    """Not every one of many job ends is tried, so the computed start may be earlier than the real
    one."""
    nodes = tuple(
        Node(f"n{number:03}", Amount({"": 4}, 16, 8000), frozenset({"urgent"}))
        for number in range(100)
    )
    holders = tuple(holding(node.name, 4, 10.0 * at) for at, node in enumerate(nodes, start=1))
    for width in range(2, 101):
        first = TriedFirst(nodes, holders, [Contender(asking(4, nodes=width), URGENT)])
        starts_s = 10.0 * width
        assert first.kept_from(asking(2), GPU, starts_s + 1)
        early = first.kept_from(asking(2), GPU, starts_s - 1)
        assert not early or width > 32
