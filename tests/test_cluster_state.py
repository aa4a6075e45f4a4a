"""The cluster state: how one choice affects the next, in cases too small to be found at random."""

from __future__ import annotations

import math
from typing import Any

from slurm_tiresias.core.cluster import ClusterState
from slurm_tiresias.core.features.protection import Protected
from slurm_tiresias.core.features.victim_rate import VictimRate
from slurm_tiresias.core.rank import UniqueRank
from slurm_tiresias.model import Amount, Node, PlacementStyle, Protection
from tests.pictures import gpus

MIN_RUN = Protected(Protection.MIN_RUN, -math.inf, 20.0)


def rank(job_id: str, tier: int, place: int) -> UniqueRank:
    return UniqueRank((float(tier),), (float(place),), (), job_id)


def node(gpus: int = 4) -> Node:
    return Node("n1", Amount({"": gpus}, cpus=8), frozenset({"gpu"}))


def waits(state: ClusterState, job_id: str, tier: int, place: int, count: int) -> None:
    asked = state.class_of(count, gpus(count, spanning=True), PlacementStyle.CONSOLIDATE)
    state.wait(rank(job_id, tier, place), asked)


def runs(state: ClusterState, job_id: str, tier: int, place: int, count: int, *more: Any) -> None:
    held = {"n1": Amount({"": count}, cpus=count)}
    state.book(held)
    state.run(rank(job_id, tier, place), held, count, *more)


def test_gpus_freed_by_a_preemption_are_offered_to_jobs_like_one_just_started() -> None:
    state = ClusterState([node()])
    runs(state, "wide", 1, 0, 3)
    waits(state, "first", 0, 0, 1)
    waits(state, "pushing", 0, 1, 2)
    waits(state, "lower", 1, 2, 1)
    starts = state.choose(0.0)
    assert [(start.job_id, start.victims) for start in starts] == [
        ("first", ()),
        ("pushing", ("wide",)),
        ("lower", ()),
    ]
    assert state.choose(1.0) == []


def test_a_single_pending_job_starts_in_the_first_cycle_in_which_it_fits() -> None:
    state = ClusterState([node()])
    runs(state, "same", 0, 0, 3)
    waits(state, "wide", 0, 1, 2)
    assert state.choose(0.0) == []
    state.leave("same")
    assert [start.job_id for start in state.choose(1.0)] == ["wide"]
    assert state.choose(2.0) == []


def test_jobs_that_all_start_on_idle_gpus_need_no_ranks_of_running_jobs() -> None:
    state = ClusterState([node()])
    asked: list[str] = []
    runs(state, "wide", 1, 0, 1)
    waits(state, "later", 1, 2, 2)
    waits(state, "first", 0, 1, 1)
    starts = state.choose(0.0, before_ranking=lambda: asked.append("ranks"))
    assert [start.job_id for start in starts] == ["first", "later"]
    assert not asked and state.free.most_free_gpus == 0
    waits(state, "last", 0, 3, 1)
    (start,) = state.choose(1.0, before_ranking=lambda: asked.append("ranks"))
    assert (start.victims, asked) == (("wide",), ["ranks"])


def test_a_refused_class_is_retried_when_capacity_grows() -> None:
    state = ClusterState([node()])
    runs(state, "running", 0, 0, 4)
    waits(state, "first", 0, 1, 4)
    assert state.choose(0.0) == []
    state.leave("running")
    waits(state, "first", 1, 1, 3)
    (start,) = state.choose(1.0)
    state.run(rank("first", 1, 1), start.allocation, 3)
    waits(state, "second", 0, 2, 4)
    assert [(start.job_id, start.victims) for start in state.choose(2.0)] == [
        ("second", ("first",))
    ]


def test_a_refused_class_is_retried_when_a_preemption_frees_more_than_needed() -> None:
    state = ClusterState([node()])
    runs(state, "running", 1, 0, 4)
    waits(state, "first", 1, 1, 1)
    assert state.choose(0.0) == []
    waits(state, "first", 0, 1, 2)
    (start,) = state.choose(1.0)
    assert start.victims == ("running",)
    state.run(rank("first", 0, 1), start.allocation, 2)
    waits(state, "second", 1, 2, 1)
    assert [start.job_id for start in state.choose(2.0)] == ["second"]


def test_a_job_wider_than_the_victim_rate_starts_and_delays_the_next_preemption() -> None:
    state = ClusterState([node(6)], victim_rate=VictimRate(2, 10.0))
    for place in range(6):
        runs(state, f"low{place}", 1, place, 1)
    waits(state, "wide", 0, 0, 4)
    waits(state, "narrow", 0, 1, 1)
    (start,) = state.choose(0.0)
    assert (start.job_id, len(start.victims)) == ("wide", 4)
    assert state.choose(5.0) == []
    assert state.next_try_s == 10.0
    assert state.choose(10.0) == []
    assert state.next_try_s == 20.0
    (start,) = state.choose(20.0)
    assert (start.job_id, len(start.victims)) == ("narrow", 1)
    assert state.next_try_s == math.inf


def test_with_a_victim_rate_of_zero_nothing_is_tried_again_for_it() -> None:
    state = ClusterState([node(1)], victim_rate=VictimRate(0, 10.0))
    runs(state, "low", 1, 0, 1)
    waits(state, "first", 0, 0, 1)
    assert state.choose(0.0) == []
    assert state.next_try_s == math.inf


def test_two_protections_of_one_job_may_end_at_the_same_moment() -> None:
    """The job was preempted and started again while protected, with the same end: both entries are
    in the heap of ends, and the first is found only when it is due."""
    state = ClusterState([node()])
    for _ in range(2):
        runs(state, "protected", 1, 0, 4, 0.0, [MIN_RUN])
        state.leave("protected")
    runs(state, "protected", 1, 0, 4, 0.0, [MIN_RUN])
    waits(state, "first", 0, 1, 4)
    assert state.choose(19.0) == []
    assert state.next_try_s == 20.0
    (start,) = state.choose(20.0)
    assert start.victims == ("protected",)
