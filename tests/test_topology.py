"""Blocks and switches: jobs lie where Slurm would let them, and no victim is useless."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.testbed.in_memory.blocks import Blocks
from slurm_tiresias.core.placement.candidate_index import CandidateIndex
from slurm_tiresias.core.placement.candidate_matrix import Candidate, Preemptor
from slurm_tiresias.core.placement.choose import place
from slurm_tiresias.core.placement.free_resources import FreeResources
from slurm_tiresias.core.placement.node_index import NodeIndex
from slurm_tiresias.core.placement.victims import find_victims
from slurm_tiresias.core.rank import UniqueRank
from slurm_tiresias.model import Action, Amount, Node, PlacementStyle, Reason, Request
from tests.pictures import after, cluster, drawn, gpus, job, plan_for

GPUS = 4
WHOLE = Amount({"": GPUS})


def in_blocks(*sizes: int, nodes: int = 16) -> list[tuple[tuple[int, str], ...]]:
    return [tuple((size, f"{number // size:02}") for size in sizes) for number in range(nodes)]


@st.composite
def sites(draw: st.DrawFn) -> tuple[list[Node], Blocks]:
    """Up to five base blocks; a block may have a node more or less than its size."""
    base = draw(st.integers(1, 4))
    sizes = [base, *(base << level for level in sorted(draw(st.sets(st.integers(1, 3)))))]
    counts = draw(st.lists(st.integers(max(base - 1, 1), base + 1), min_size=1, max_size=5))
    nodes: list[Node] = []
    blocks = []
    for block, count in enumerate(counts):
        names = [f"n{len(nodes) + place:02}" for place in range(count)]
        where = tuple((size, f"{block // (size // base)}") for size in sizes)
        nodes += (Node(name, WHOLE, frozenset({"gpu"}), blocks=where) for name in names)
        blocks.append(frozenset(names))
    return nodes, Blocks(blocks, sizes)


@st.composite
def wide_requests(draw: st.DrawFn) -> Request:
    request = gpus(GPUS, nodes=draw(st.integers(1, 10)))
    segment = draw(st.sampled_from([0, 0, 1, 2, 3, 4]))
    return replace(request, chunk=WHOLE, segment=segment)


@given(sites(), wide_requests(), st.data(), st.sampled_from(PlacementStyle))
def test_a_wide_job_fits_where_slurm_would_start_it(
    site: tuple[list[Node], Blocks], request: Request, data: st.DataObject, style: PlacementStyle
) -> None:
    nodes, blocks = site
    free = FreeResources(nodes)
    taken = data.draw(st.sets(st.sampled_from([node.name for node in nodes])))
    free.take(dict.fromkeys(taken, WHOLE))
    idle = {node.name for node in nodes} - taken
    found = place(request, free.all_nodes, free, style)
    slurms = blocks.choose(idle, request.min_nodes, request.segment)
    assert (found is None) == (slurms is None)
    if found:
        assert blocks.choose(idle, request.min_nodes, request.segment, required=found) == frozenset(
            found
        )
    could = NodeIndex(nodes).could_hold(request)
    everywhere = {node.name for node in nodes}
    assert could == (blocks.choose(everywhere, request.min_nodes, request.segment) is not None)


@st.composite
def running_jobs(draw: st.DrawFn, nodes: Sequence[Node]) -> list[Candidate]:
    """Jobs on whole nodes, some on several."""
    names = draw(st.permutations([node.name for node in nodes]))
    jobs: list[Candidate] = []
    while names:
        count = draw(st.integers(1, min(4, len(names))))
        mine, names = names[:count], names[count:]
        if draw(st.integers(0, 4)):
            level = draw(st.integers(0, 2))
            rank = UniqueRank((float(level),), (), (len(jobs),), f"{len(jobs)}")
            jobs.append(Candidate(rank, dict.fromkeys(mine, WHOLE), 0, count * GPUS))
    return jobs


@given(sites(), wide_requests(), st.data())
def test_victims_of_a_wide_job_let_slurm_start_it_and_each_is_needed(
    site: tuple[list[Node], Blocks], request: Request, data: st.DataObject
) -> None:
    nodes, blocks = site
    free = FreeResources(nodes)
    candidates = data.draw(running_jobs(nodes))
    for candidate in candidates:
        candidate.nodes = free.nodes(candidate.allocation)
        free.take(candidate.allocation)
    before = free.table().copy()
    preemptor = Preemptor(request, PlacementStyle.CONSOLIDATE, free.all_nodes, (0.0,))
    plan = find_victims(preemptor, free, CandidateIndex(free, candidates))
    assert (free.table() == before).all()

    def idle(without: Sequence[Candidate]) -> set[str]:
        held = {name for one in candidates if one not in without for name in one.allocation}
        return {node.name for node in nodes} - held

    def starts(without: Sequence[Candidate]) -> bool:
        return blocks.choose(idle(without), request.min_nodes, request.segment) is not None

    lower = [one for one in candidates if one.level > (0.0,)]
    assert (plan is not None) == starts(lower)
    if plan is None:
        return
    needed = list(plan.victims)
    on = plan.allocation
    wide = request.min_nodes, request.segment
    assert blocks.choose(idle(needed), *wide, required=on) == frozenset(on)
    for victim in needed:
        assert not starts([one for one in needed if one is not victim])


def row(nodes: str) -> str:
    """Draw nodes that are written in one line: ``.. 1#``."""
    lines = (f"n{number} {' '.join(on)}" for number, on in enumerate(nodes.split(), start=1))
    return "\n".join(lines)


def expect(before: str, request: Request, then: str) -> None:
    """Two blocks of four nodes with two GPUs each; job 9 waits in the top tier."""
    blocks = in_blocks(4, 8, nodes=8)
    fields = {f"n{n}": {"blocks": where} for n, where in enumerate(blocks, start=1)}
    ids = sorted(set(before) - set(" .#"))
    jobs = [*(job(one, gpus(2), tier=2) for one in ids), job("9", request)]
    snapshot = cluster(row(before), jobs, **fields)
    assert after(snapshot, plan_for(snapshot)) == drawn(row(then))


@pytest.mark.parametrize(
    ("before", "request_", "then"),
    [
        # A narrow job goes into the block that is in use.
        (".. .. .. .. ## .. .. ..", gpus(1), ".. .. .. .. ## 9. .. .."),
        # A node that is in use is filled before a block that is in use.
        (".. .. .. #. ## .. .. ..", gpus(1), ".. .. .. #9 ## .. .. .."),
        # A job that fits into no block waits, whatever is idle in all.
        ("## ## .. .. ## ## .. ..", gpus(2, nodes=3), "## ## .. .. ## ## .. .."),
        # Its segments may lie in different blocks.
        ("## ## .. .. ## ## .. ..", gpus(2, nodes=4, segment=2), "## ## 99 99 ## ## 99 99"),
        # It preempts in one block only, where fewer jobs leave.
        ("11 22 .. .. 33 .. .. ..", gpus(2, nodes=4), "11 22 .. .. 99 99 99 99"),
        # With --exclusive=topo the whole block is emptied, and no other job is put there.
        (
            "## .. .. .. 1. .. .. ..",
            gpus(2, nodes=2, exclusive=True, whole_blocks=True),
            "## .. .. .. 99 99 .. ..",
        ),
    ],
)
def test_jobs_lie_in_blocks(before: str, request_: Request, then: str) -> None:
    expect(before, request_, then)


def test_no_job_is_put_into_the_blocks_of_a_job_that_wants_them_for_itself() -> None:
    fields = {f"n{n}": {"blocks": at} for n, at in enumerate(in_blocks(4, nodes=8), start=1)}
    alone = job("1", gpus(2, exclusive=True, whole_blocks=True))
    others = [job("2", gpus(2, nodes=2)), job("3", gpus(2, nodes=2))]
    before = cluster(row("11 .. .. ## ## .. .. ##"), [alone, *others], **fields)
    assert after(before, plan_for(before)) == drawn(row("11 .. .. ## ## 22 22 ##"))


@pytest.mark.parametrize(("most", "starts"), [(1, False), (2, True), (0, True)])
def test_a_job_spans_no_more_switches_than_it_allows(most: int, starts: bool) -> None:
    fields = {"n1": {"switch": "a"}, "n2": {"switch": "a"}, "n3": {"switch": "b"}}
    snapshot = cluster(row("## .. .."), [job("9", gpus(2, nodes=2, most_switches=most))], **fields)
    assert (plan_for(snapshot).decisions["9"].action is Action.START) == starts


def test_a_job_that_no_block_can_hold_is_told_so() -> None:
    fields = {f"n{n}": {"blocks": at} for n, at in enumerate(in_blocks(4, 8, nodes=8), start=1)}
    wide = job("9", gpus(2, nodes=8, segment=3))
    decision = plan_for(cluster(row(" ".join([".."] * 8)), [wide], **fields)).decisions["9"]
    assert decision.reason is Reason.NEVER_FITS
    assert "the blocks or switches of gpu" in decision.detail
