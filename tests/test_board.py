"""The board: what one choice does to the next, in cases too small to be found by chance."""

from __future__ import annotations

from slurm_tiresias.board import Board, Kind
from slurm_tiresias.model import Amount, Node, PlacementStyle
from slurm_tiresias.policy.standing import Rank
from tests.pictures import gpus


def rank(job_id: str, tier: int, place: int) -> Rank:
    return Rank((float(tier),), (float(place),), (), job_id)


def kind(board: Board, count: int) -> Kind:
    return board.kind(count, gpus(count, spanning=True), PlacementStyle.CONSOLIDATE)


def test_what_a_preemption_frees_is_offered_to_jobs_like_one_that_has_just_started() -> None:
    board = Board([Node("n1", Amount({"": 4}, cpus=8), frozenset({"gpu"}))])
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
    board = Board([Node("n1", Amount({"": 4}, cpus=8), frozenset({"gpu"}))])
    held = {"n1": Amount({"": 3}, cpus=3)}
    board.book(held)
    board.run(rank("same", 0, 0), held, 3)
    board.wait(rank("wide", 0, 1), kind(board, 2))
    assert board.choose(0.0) == []
    board.leave("same")
    assert [start.job_id for start in board.choose(1.0)] == ["wide"]
    assert board.choose(2.0) == []
