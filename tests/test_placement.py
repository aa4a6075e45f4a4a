"""Where jobs are placed: switches as drawings, and properties for any free resources."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.core.cluster import ClusterState
from slurm_tiresias.core.features.protection import Shield
from slurm_tiresias.core.placement.candidate_index import CandidateIndex
from slurm_tiresias.core.placement.candidate_matrix import Candidate, Preemptor
from slurm_tiresias.core.placement.choose import goes_by_count, place, place_on_any
from slurm_tiresias.core.placement.free_resources import FreeResources, chunks_that_fit
from slurm_tiresias.core.placement.node_index import NodeIndex
from slurm_tiresias.core.placement.node_set import NodeSet, numbers
from slurm_tiresias.core.rank import UniqueRank
from slurm_tiresias.model import Allocation, Amount, Node, PlacementStyle, Request
from tests import pictures
from tests.one_by_one import node_sets
from tests.pictures import gpus, job
from tests.properties.test_decide_invariants import nodes_lists, requests

# Switches


def place_9(picture: str, wanted: int, style: str = "consolidate") -> None:
    """Place job 9, with this many GPUs, on nodes whose switches are drawn behind their names."""
    rows = picture.strip().splitlines()
    switches = {row.split()[0]: {"switch": row.split()[1].strip("-")} for row in rows}
    drawing = "\n".join(row.replace(row.split()[1], "", 1) for row in rows)
    running = sorted(set(drawing.split()) - switches.keys() - {".", "->", "9"})
    comer = job("9", gpus(wanted, spanning=True), style=PlacementStyle(style))
    pictures.expect(drawing, [*(job(one, gpus(1)) for one in running), comer], None, **switches)


def test_a_job_that_needs_several_nodes_gets_those_of_one_switch() -> None:
    place_9(
        """
        n1 a  1 1 1 .
        n2 a  . . . .
        n3 b  . . . . -> 9 9 9 9
        n4 b  . . . . -> 9 9 9 9
        """,
        8,
    )


def test_the_switch_with_the_fewest_idle_gpus_left_is_chosen() -> None:
    place_9(
        """
        n1 a  . . . .
        n2 a  . . . .
        n3 a  . . . .
        n4 b  . . . . -> 9 9 9 9
        n5 b  . . . . -> 9 9 9 9
        n6 -  1 . . .
        """,
        8,
    )


def test_a_job_that_fits_no_switch_is_placed_across_switches() -> None:
    place_9(
        """
        n1 a  . . . . -> 9 9 9 9
        n2 a  1 1 1 1
        n3 b  . . . . -> 9 9 9 9
        """,
        8,
    )


def test_a_single_switch_is_not_preferred_if_it_needs_more_nodes() -> None:
    place_9(
        """
        n1 a  . . . . -> 9 9 9 9
        n2 b  . . . . -> 9 9 9 9
        n3 b  1 1 . .
        n4 b  2 2 . .
        """,
        8,
    )


def test_a_job_that_fits_one_node_goes_where_it_fits_best_whatever_the_switch() -> None:
    place_9(
        """
        n1 a  . . . .
        n2 a  . . . .
        n3 b  1 1 . . -> 1 1 9 9
        """,
        2,
    )


def test_a_job_that_is_spread_fills_the_fragments_of_all_switches() -> None:
    place_9(
        """
        n1 a  1 1 1 . -> 1 1 1 9
        n2 a  . . . .
        n3 b  2 2 2 . -> 2 2 2 9
        """,
        2,
        "spread",
    )


def test_required_nodes_take_precedence_over_switches() -> None:
    wanted = gpus(8, spanning=True, required_nodes=frozenset({"n1"}))
    hangs = {"n1": {"switch": "a"}, "n2": {"switch": "b"}, "n3": {"switch": "b"}}
    drawing = "n1  . . . . -> 9 9 9 9\nn2  . . . . -> 9 9 9 9\nn3  . . . ."
    jobs = [job("9", wanted, style=PlacementStyle.CONSOLIDATE)]
    pictures.expect(drawing, jobs, None, **hangs)


# At random


def _free(*gpus_of_nodes: int) -> FreeResources:
    return FreeResources(
        [Node(f"n{number:03}", Amount({"": count})) for number, count in enumerate(gpus_of_nodes)]
    )


def _at_random(wanted: int, free: FreeResources) -> Allocation:
    found = place(Request(Amount({"": 1}), wanted), free.all_nodes, free, PlacementStyle.RANDOM)
    assert found is not None
    return found


def test_random_placement_spreads_a_job_over_many_nodes_even_if_one_could_hold_it() -> None:
    assert len(_at_random(8, _free(*[8] * 32))) >= 5


def test_random_placement_depends_only_on_the_free_resources() -> None:
    free, same = _free(*[4] * 16), _free(*[4] * 16)
    first = _at_random(3, free)
    assert _at_random(3, same) == first
    free.take(first)
    assert _at_random(3, free) != first
    free.give(first)
    assert _at_random(3, free) == first


def test_random_placement_uses_every_node() -> None:
    """3,200 jobs on 16 nodes: 200 each; six standard deviations are 82."""
    free = _free(*[4] * 16)
    turns: Counter[str] = Counter()
    held: list[Allocation] = []
    for number in range(3200):
        if len(held) == 20:
            free.give(held.pop(number * 7 % 20))
        held.append(_at_random(1, free))
        free.take(held[-1])
        turns.update(held[-1].keys())
    assert len(turns) == 16
    assert all(118 <= count <= 282 for count in turns.values())


# Properties for any free resources


def test_nothing_fits_by_count_on_a_node_with_too_few_free_cpus() -> None:
    nodes = [Node(f"n{number}", Amount({"": 4 * number}), frozenset({"gpu"})) for number in (1, 2)]
    state = ClusterState(nodes)
    state.book({"n1": Amount({"": 1}, cpus=1)})
    job_class = state.class_of("", gpus(2, spanning=True), PlacementStyle.CONSOLIDATE)
    assert job_class.whole is None  # it requests CPUs
    by_count = Request(Amount({"": 2}), partitions=("gpu",))
    job_class = state.class_of("by count", by_count, PlacementStyle.CONSOLIDATE)
    assert job_class.whole == Amount({"": 2})
    assert state.on_idle(job_class) == {"n2": Amount({"": 2})}


large = st.builds(
    lambda plain, typed: Amount({"": plain, "a100": typed}, 4, 1000),
    st.sampled_from([8, 4, 2]),
    st.sampled_from([0, 0, 4]),
)
many_large = st.lists(large, min_size=4, max_size=9).map(
    lambda totals: [Node(f"n{number}", total) for number, total in enumerate(totals)]
)


@st.composite
def what_is_free(draw: st.DrawFn) -> FreeResources:
    """Nodes of several sizes and types, with or without switches, with some resources taken."""
    free = FreeResources(
        Node(one.name, one.total, switch=draw(st.sampled_from(["", "a", "b"])))
        for one in draw(st.one_of(many_large, nodes_lists))
    )
    for allocation in draw(st.lists(_allocations(free.names), max_size=3)):
        free.take(allocation)
    return free


def _allocations(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Amount]]:
    """Anything that a job might hold, even more than exists."""
    amounts = st.builds(
        lambda plain, typed, cpus: Amount({"": plain, "a100": typed}, cpus),
        st.integers(0, 3),
        st.integers(0, 2),
        st.integers(0, 2),
    )
    return st.dictionaries(st.sampled_from(names), amounts, max_size=3)


counted = st.builds(
    lambda size, count, most: Request(Amount({"": size}), count, max_nodes=most),
    st.sampled_from([1, 2, 3, 4, 0]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([None, 1, 2]),
)
bounded = st.builds(
    lambda count, fewest, more: Request(
        Amount({"": 1}), count, min_nodes=min(count, fewest), max_nodes=min(count, fewest) + more
    ),
    st.sampled_from([2, 3, 4, 6, 1, 10]),
    st.sampled_from([2, 3, 1]),
    st.sampled_from([0, 1, 2]),
)
some_nodes = st.one_of(st.just(-1), st.integers(0, 511))
"""A set of nodes: all, or any of the first nine."""


@st.composite
def cluster_states(draw: st.DrawFn) -> ClusterState:
    """Nodes of several sizes and perhaps types, with some resources taken."""
    types = draw(st.sampled_from([("",), ("",), ("", "a100")]))
    totals = draw(st.lists(st.sampled_from([8, 4, 2, 1]), min_size=1, max_size=9))
    state = ClusterState(
        Node(f"n{number}", Amount({types[number % len(types)]: total}), frozenset({"gpu"}))
        for number, total in enumerate(totals)
    )
    for allocation in draw(st.lists(_allocations(state.free.names), max_size=3)):
        state.book(allocation)
    return state


@given(cluster_states(), counted, st.sampled_from(PlacementStyle))
def test_placement_by_gpu_count_equals_full_placement(
    state: ClusterState, request: Request, style: PlacementStyle
) -> None:
    job_class = state.class_of("", replace(request, partitions=("gpu",)), style)
    assert state.on_idle(job_class) == place(request, job_class.nodes, state.free, style)


@given(what_is_free(), st.one_of(requests, bounded))
def test_a_job_fits_in_every_style_or_in_none(free: FreeResources, request: Request) -> None:
    found = [place(request, free.all_nodes, free, style) for style in PlacementStyle]
    assert len({allocation is None for allocation in found}) == 1
    for allocation in filter(None, found):
        assert len(allocation) >= request.min_nodes
        assert request.max_nodes is None or len(allocation) <= request.max_nodes
        assert request.exclusive or _gpus(allocation) == request.chunks * request.chunk.gpu_count


@given(what_is_free(), st.one_of(requests, bounded))
def test_one_switch_costs_a_consolidated_job_no_node(free: FreeResources, request: Request) -> None:
    blind = _without_switches(free)
    found = place(request, free.all_nodes, free, PlacementStyle.CONSOLIDATE)
    there = place(request, blind.all_nodes, blind, PlacementStyle.CONSOLIDATE)
    assert (found is None) == (there is None)
    assert len(found or ()) <= len(there or ())


def _without_switches(free: FreeResources) -> FreeResources:
    blind = FreeResources([Node(name, free.on(name)) for name in free.names])
    for number, name in enumerate(free.names):
        if not free.is_idle(number):
            blind.take({name: Amount()})
    return blind


def _gpus(allocation: Allocation) -> int:
    return sum(amount.gpu_count for amount in allocation.values())


@given(nodes_lists, st.data())
def test_free_resources_stay_consistent(nodes: list[Node], data: st.DataObject) -> None:
    free = FreeResources(nodes)
    held: list[dict[str, Amount]] = []
    for _ in range(data.draw(st.integers(0, 12))):
        gives: bool = data.draw(st.booleans())
        if held and gives:
            free.give(held.pop(data.draw(st.integers(0, len(held) - 1))))
        else:
            held.append(data.draw(_allocations(free.names)))
            free.take(held[-1])
    fresh = FreeResources(nodes)
    for allocation in held:
        fresh.take(allocation)
    assert free.mark == fresh.mark
    among = data.draw(some_nodes) & free.all_nodes
    for one in (free, fresh):
        _check_books(one, nodes, held, among)


def _check_books(
    free: FreeResources, nodes: list[Node], held: list[dict[str, Amount]], among: NodeSet
) -> None:
    """Compare the free resources with those found by counting."""
    counted = [
        one.total.gpu_count - sum(had[one.name].gpu_count for had in held if one.name in had)
        for one in nodes
    ]
    idle = [not any(one.name in had for had in held) for one in nodes]
    chosen = list(numbers(among))
    assert [free.free_gpus(number) for number in range(len(nodes))] == counted
    assert [free.is_idle(number) for number in range(len(nodes))] == idle
    assert free.most_free_gpus == sum(max(0, count) for count in counted)
    assert free.gpus_free(among) == sum(max(0, counted[number]) for number in chosen)
    assert list(free.fragments(among)) == sorted(
        (number for number in chosen if counted[number] > 0 and not idle[number]),
        key=lambda number: (-counted[number], number),
    )
    assert list(free.fullest_first(among, 2)) == sorted(
        (number for number in chosen if counted[number] >= 2),
        key=lambda number: (counted[number], number),
    )
    assert list(numbers(free.with_free_gpus(among, 2))) == [n for n in chosen if counted[n] >= 2]
    assert [
        (count, list(numbers(at_rest)), list(numbers(in_use)))
        for count, at_rest, in_use in free.emptiest_first(among)
    ] == [
        (
            count,
            [n for n in chosen if counted[n] == count and idle[n]],
            [n for n in chosen if counted[n] == count and not idle[n]],
        )
        for count in sorted({counted[n] for n in chosen}, reverse=True)
    ]


@given(nodes_lists, requests)
def test_a_node_index_knows_which_nodes_may_serve_a_request_and_whether_they_could(
    nodes: list[Node], request: Request
) -> None:
    node_index, free = NodeIndex(nodes), FreeResources(nodes)
    usable = [one for one in nodes if one.available]
    for some, among in ((nodes, free.all_nodes), (usable, node_index.usable)):
        sets = tuple(free.nodes(names) for names in node_sets(request, some))
        assert node_index.sets_for(request, among) == sets
        found = place_on_any(request, sets, free, PlacementStyle.CONSOLIDATE)
        assert node_index.could_hold(request, among) == (found is not None)


@given(nodes_lists, requests)
def test_a_possible_one_task_job_stays_on_one_node(nodes: list[Node], request: Request) -> None:
    node_index, free = NodeIndex(nodes), FreeResources(nodes)
    shared = replace(request, exclusive=False)
    enough = any(
        free.chunks_that_fit(number, shared) >= shared.chunks
        for allowed in node_index.sets_for(shared)
        for number in numbers(allowed)
    )
    assert node_index.on_one_node_if_any_can(shared).max_nodes == (
        1 if enough else shared.max_nodes
    )


@st.composite
def candidates_of(draw: st.DrawFn, free: FreeResources) -> list[Candidate]:
    """Jobs of three levels on random nodes, some of them protected."""
    held = draw(st.lists(_allocations(free.names), max_size=6))
    return [
        Candidate(
            UniqueRank(
                (float(draw(st.integers(0, 2))),), (draw(st.sampled_from([1.0, 2.0])),), (), str(n)
            ),
            allocation,
            free.nodes(allocation),
            _gpus(allocation),
            draw(st.sampled_from(Shield)),
        )
        for n, allocation in enumerate(held)
    ]


@given(nodes_lists, requests, st.booleans(), st.sampled_from([-1.0, 0.0, 1.0]), st.data())
def test_reclaimable_chunks_equal_those_that_fit_without_the_candidates(
    nodes: list[Node], request: Request, even_protected: bool, level: float, data: st.DataObject
) -> None:
    free = FreeResources(nodes)
    candidates = data.draw(candidates_of(free))
    for candidate in candidates:
        free.take(candidate.allocation)
    index = CandidateIndex(free, candidates)
    gone = data.draw(st.sets(st.sampled_from(candidates))) if candidates else set()
    index.matrix()
    for candidate in gone:
        index.leave(candidate)
        free.give(candidate.allocation)
    preemptor = Preemptor(
        request, PlacementStyle.SPREAD, free.all_nodes, (level,), even_protected=even_protected
    )
    offered = dict(index.matrix().reclaimable(preemptor).cheapest_first())
    for candidate in candidates:
        if candidate not in gone and preemptor.may_preempt(candidate):
            free.give(candidate.allocation)
    fits = {n: _chunks_by_number(n, request, free) for n in range(len(nodes))}
    assert offered == {number: chunks for number, chunks in fits.items() if chunks}


def _chunks_by_number(number: int, request: Request, free: FreeResources) -> int:
    amount = free.on(free.names[number])
    if goes_by_count(request):
        amount = Amount({"": amount.gpu_count})
    elif request.exclusive and not free.is_idle(number):
        return 0
    return chunks_that_fit(amount, request)


def test_the_preemption_cost_orders_by_level_number_and_rank() -> None:
    free = _free(4, 4, 4, 4, 4)
    candidates = [
        _candidate(free, "0", tier=1, place=9, on="n000", count=4),
        _candidate(free, "1", tier=2, place=1, on="n001", count=2),
        _candidate(free, "2", tier=2, place=2, on="n001", count=2),
        _candidate(free, "3", tier=2, place=3, on="n002", count=4),
        _candidate(free, "4", tier=2, place=4, on="n003", count=4),
    ]
    preemptor = Preemptor(
        Request(Amount({"": 4})), PlacementStyle.CONSOLIDATE, free.all_nodes, (0.0,)
    )
    reclaimable = CandidateIndex(free, candidates).matrix().reclaimable(preemptor)
    assert list(reclaimable.cheapest_first()) == [(4, 1), (3, 1), (2, 1), (1, 1), (0, 1)]


def _candidate(
    free: FreeResources, job_id: str, *, tier: int, place: int, on: str, count: int
) -> Candidate:
    allocation = {on: Amount({"": count})}
    free.take(allocation)
    rank = UniqueRank((float(tier),), (float(place),), (), job_id)
    return Candidate(rank, allocation, free.nodes(allocation), count)
