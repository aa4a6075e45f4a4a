"""The board: what one choice does to the next, in cases too small to be found by chance."""

from __future__ import annotations

from slurm_tiresias.model import Amount, Node, PlacementStyle
from slurm_tiresias.policy.standing import Rank
from slurm_tiresias.scheduling.cluster import ClusterState, EquivalenceClass
from tests.pictures import gpus


def rank(job_id: str, tier: int, place: int) -> Rank:
    return Rank((float(tier),), (float(place),), (), job_id)


def kind(board: ClusterState, count: int) -> EquivalenceClass:
    return board.class_of(count, gpus(count, spanning=True), PlacementStyle.CONSOLIDATE)


def test_what_a_preemption_frees_is_offered_to_jobs_like_one_that_has_just_started() -> None:
    board = ClusterState([Node("n1", Amount({"": 4}, cpus=8), frozenset({"gpu"}))])
    wide = {"n1": Amount({"": 3}, cpus=3)}
    board.book(wide)
    board.run(rank("wide", 1, 0), wide, 3)
    board.wait(rank("first", 0, 0), kind(board, 1))
    board.wait(rank("pushing", 0, 1), kind(board, 2))
    board.wait(rank("lower", 1, 2), kind(board, 1))
    starts = board.choose(0.0)
    assert [(start.job_id, start.victims) for start in starts] == [
        ("first", ()),
        ("pushing", ("wide",)),
        ("lower", ()),
    ]
    assert board.choose(1.0) == []


def test_a_job_that_waits_alone_starts_at_once_or_not_at_all() -> None:
    board = ClusterState([Node("n1", Amount({"": 4}, cpus=8), frozenset({"gpu"}))])
    held = {"n1": Amount({"": 3}, cpus=3)}
    board.book(held)
    board.run(rank("same", 0, 0), held, 3)
    board.wait(rank("wide", 0, 1), kind(board, 2))
    assert board.choose(0.0) == []
    board.leave("same")
    assert [start.job_id for start in board.choose(1.0)] == ["wide"]
    assert board.choose(2.0) == []


def test_a_refusal_ends_when_room_grows_though_the_refused_job_asks_for_less_by_then() -> None:
    board = ClusterState([Node("n1", Amount({"": 4}, cpus=8), frozenset({"gpu"}))])
    held = {"n1": Amount({"": 4}, cpus=4)}
    board.book(held)
    board.run(rank("running", 0, 0), held, 4)
    board.wait(rank("first", 0, 1), kind(board, 4))
    assert board.choose(0.0) == []
    board.leave("running")
    board.wait(rank("first", 1, 1), kind(board, 3))
    (start,) = board.choose(1.0)
    board.run(rank("first", 1, 1), start.allocation, 3)
    board.wait(rank("second", 0, 2), kind(board, 4))
    assert [(start.job_id, start.victims) for start in board.choose(2.0)] == [
        ("second", ("first",))
    ]


def test_a_refusal_ends_when_a_preemption_frees_more_than_is_needed() -> None:
    board = ClusterState([Node("n1", Amount({"": 4}, cpus=8), frozenset({"gpu"}))])
    held = {"n1": Amount({"": 4}, cpus=4)}
    board.book(held)
    board.run(rank("running", 1, 0), held, 4)
    board.wait(rank("first", 1, 1), kind(board, 1))
    assert board.choose(0.0) == []
    board.wait(rank("first", 0, 1), kind(board, 2))
    (start,) = board.choose(1.0)
    assert start.victims == ("running",)
    board.run(rank("first", 0, 1), start.allocation, 2)
    board.wait(rank("second", 1, 2), kind(board, 1))
    assert [start.job_id for start in board.choose(2.0)] == ["second"]


def test_two_protections_of_one_job_may_end_at_the_same_moment() -> None:
    """It was preempted and started again in its protection, with the same end: both lie in the
    heap of ends, where the first is found only when it comes up."""
    board = ClusterState([Node("n1", Amount({"": 4}, cpus=8), frozenset({"gpu"}))])
    held = {"n1": Amount({"": 4}, cpus=4)}
    for _ in range(2):
        board.book(held)
        board.run(rank("guarded", 1, 0), held, 4, guarded_until_s=20.0)
        board.leave("guarded")
    board.book(held)
    board.run(rank("guarded", 1, 0), held, 4, guarded_until_s=20.0)
    board.wait(rank("first", 0, 1), kind(board, 4))
    assert board.choose(19.0) == []
    assert board.next_try_s == 20.0
    (start,) = board.choose(20.0)
    assert start.victims == ("guarded",)
