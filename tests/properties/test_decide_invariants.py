"""Invariants of every decision on every cluster."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from scripts.testbed.job_views import changed, view
from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features import victim_rate
from slurm_tiresias.core.features.gittins import ServiceHistory
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.features.policy import Policy, rank_of
from slurm_tiresias.core.features.protections import protection_of
from slurm_tiresias.core.features.recurring import RunHistory
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.core.placement.candidate_index import CandidateIndex
from slurm_tiresias.core.placement.candidate_matrix import Candidate, Preemptor
from slurm_tiresias.core.placement.choose import fits, place, place_on_any
from slurm_tiresias.core.placement.free_resources import FreeResources
from slurm_tiresias.core.placement.victims import find_victims
from slurm_tiresias.core.rank import UniqueRank
from slurm_tiresias.model import (
    NO_PAST_LOSSES,
    Action,
    Allocation,
    Amount,
    Claim,
    JobState,
    Lane,
    Node,
    PastLosses,
    PlacementStyle,
    Plan,
    Reason,
    RecentVictims,
    Request,
    WorkAtStake,
)
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.policy import ORDERS
from tests.one_by_one import node_sets
from tests.pictures import NOW_S, configured

PARTITIONS = ("gpu", "other")
TYPES = ("", "a100")
FEATURES = ("fast", "big")

amounts_of_nodes = st.builds(
    lambda plain, typed, cpus: Amount({"": plain, "a100": typed}, cpus, 1000),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(1, 12),
)

nodes_lists = st.lists(
    st.builds(
        Node,
        name=st.just(""),
        total=amounts_of_nodes,
        partitions=st.frozensets(st.sampled_from(PARTITIONS), min_size=1),
        features=st.frozensets(st.sampled_from(FEATURES)),
        available=st.integers(0, 9).map(lambda n: n > 0),
    ),
    min_size=1,
    max_size=6,
).map(lambda nodes: [replace(node, name=f"n{i}") for i, node in enumerate(nodes)])

counted = st.builds(
    lambda count, kind, cpus, low: Request(
        Amount({kind: 1}, cpus), count, min_nodes=min(low, count)
    ),
    st.integers(1, 10),
    st.sampled_from(TYPES),
    st.integers(0, 2),
    st.integers(1, 2),
)
shaped = st.builds(
    lambda count, kind, cpus, memory, nodes: Request(
        Amount({kind: count}, cpus, memory),
        nodes,
        max_chunks_per_node=1,
        min_nodes=nodes,
        max_nodes=nodes,
    ),
    st.integers(1, 4),
    st.sampled_from(TYPES),
    st.integers(1, 4),
    st.sampled_from([0, 100, 600]),
    st.integers(1, 3),
)
requests = st.builds(
    replace,
    st.one_of(counted, shaped),
    partitions=st.sampled_from([("gpu",), ("gpu",), ("other",), PARTITIONS]),
    exclusive=st.integers(0, 9).map(lambda n: n == 0),
    features=st.sampled_from(["", "", "fast", "fast&big", "fast|big"]),
    excluded_nodes=st.sampled_from([frozenset(), frozenset({"n0"})]),
    required_nodes=st.sampled_from([frozenset(), frozenset(), frozenset({"n1"})]),
    reserved_nodes=st.sampled_from([frozenset(), frozenset(), frozenset({"n0", "n2"})]),
)

RUNS = [
    (user, name, limit_s, run_s)
    for user, name in (("ann", "train"), ("ann", "debug"), ("ben", "x"))
    for limit_s in (None, 100.0, 1000.0)
    for run_s in (1.0, 9.0, 40.0, 200.0)
]

HISTORY = ServiceHistory([20.0, 130.0, 510.0, 900.0])

STAKES = (
    None,
    None,
    WorkAtStake(math.inf, restart_s=40.0),
    WorkAtStake(NOW_S - 1500, math.inf, 40.0, NOW_S + 300),
    WorkAtStake(NOW_S - 100, math.inf, 40.0, NOW_S + 3000),
    WorkAtStake(-math.inf, 900.0, 20.0),
)
"""A job that saves on request, one that saves soon, one that has just saved, and one that does not
report."""

jobs_lists = st.lists(
    st.builds(
        view,
        job_id=st.just("0"),
        state=st.just(JobState.PENDING),
        request=requests,
        submitted_s=st.floats(0, 100),
        user=st.sampled_from(["ann", "ben", ""]),
        name=st.sampled_from(["train", "debug"]),
        managed=st.integers(0, 9).map(lambda n: n > 0),
        attained_gpu_s=st.sampled_from([500.0, 600.0]),
        attained_since_promotion_gpu_s=st.sampled_from([0.0, 50.0, 150.0, 500.0]),
        inherited_gpu_s=st.sampled_from([0.0, 0.0, 120.0]),
        executed_since_promotion_s=st.sampled_from([0.0, 40.0]),
        queued_s=st.sampled_from([None, NOW_S - 50, NOW_S - 5000]),
        promotions=st.integers(0, 2),
        claim=st.none()
        | st.builds(
            Claim, st.sampled_from([505.0, 620.0, 1500.0]), st.sampled_from([550.0, 700.0, 2500.0])
        ),
        time_limit_s=st.sampled_from([None, 100.0, 1000.0]),
        first_started_s=st.one_of(st.none(), st.floats(0, 100)),
        running_since_s=st.sampled_from([NOW_S - 5, NOW_S - 500]),
        preemptions=st.integers(0, 3),
        past_losses=st.sampled_from(
            [
                *[NO_PAST_LOSSES] * 3,
                *[PastLosses(program_lost=3), PastLosses(stuck_runs=2)],
                *[PastLosses(redoing_until_s=NOW_S + 60), PastLosses(redoing_until_s=NOW_S - 1)],
            ]
        ),
        ranks_last=st.integers(0, 5).map(lambda n: n == 0),
        held=st.integers(0, 19).map(lambda n: n == 0),
        backs_off=st.integers(0, 19).map(lambda n: n == 0),
        style=st.sampled_from([None, *PlacementStyle]),
        at_stake=st.sampled_from(STAKES),
        lane=st.sampled_from([*[Lane.PREEMPTIBLE] * 5, Lane.INTERACTIVE, Lane.IDLE_ONLY]),
    ),
    max_size=14,
).map(lambda jobs: [changed(one, job_id=str(i + 1)) for i, one in enumerate(jobs)])

configs = st.builds(
    lambda name, estimates, order, thresholds, knob, min_run_s: configured(
        policy={
            "name": name,
            "estimates": estimates,
            "order": order,
            "thresholds_gpu_s": thresholds,
            "promote_knob": knob,
        },
        preemption={"min_run_s": min_run_s},
    ),
    st.sampled_from(["2d-las", "2d-gittins"]),
    st.sampled_from([[], ["reports"], ["history"], ["reports", "history"]]),
    st.sampled_from(ORDERS),
    st.sampled_from([[100], [100, 200], [10, 60, 140, 200, 400, 550, 700]]),
    st.sampled_from([0, 0, 2]),
    st.sampled_from([0, 60]),
)


RECENT_VICTIMS = (RecentVictims(), RecentVictims(1, NOW_S + 5), RecentVictims(250, NOW_S + 5))


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """A random cluster on which some of the jobs already run, on random nodes."""
    nodes = draw(nodes_lists)
    free = FreeResources(nodes)
    jobs = []
    for one in draw(jobs_lists):
        allocation = _anywhere(one, nodes, free) if draw(st.booleans()) else None
        if allocation is not None:
            free.take(allocation)
            one = changed(one, state=JobState.RUNNING, allocation=allocation, held=False)
        jobs.append(one)
    recent = draw(st.sampled_from(RECENT_VICTIMS))
    return Snapshot(NOW_S, tuple(nodes), tuple(jobs), recent)


def _anywhere(one: Job, nodes: list[Node], free: FreeResources) -> Allocation | None:
    sets = [free.nodes(names) for names in node_sets(one.request, nodes)]
    return place_on_any(one.request, sets, free, PlacementStyle.SPREAD)


def _decided(snapshot: Snapshot, config: Config) -> tuple[Plan, Policy]:
    policy = make_policy(config.policy, HISTORY, RunHistory(RUNS))
    return decide(snapshot, policy, config), policy


def _free_after(snapshot: Snapshot, plan: Plan) -> FreeResources:
    free = FreeResources(snapshot.nodes)
    for one in snapshot.jobs:
        decision = plan.decisions[one.job_id]
        if one.state is JobState.RUNNING and decision.action is not Action.PREEMPT:
            free.take(one.allocation)
        free.take(decision.start_on)
    return free


def _promoted(one: Job, now_s: float) -> Job:
    return changed(
        one,
        attained_since_promotion_gpu_s=0.0,
        executed_since_promotion_s=0.0,
        inherited_gpu_s=0.0,
        queued_s=now_s,
        promotions=one.promotions + 1,
    )


def _next(snapshot: Snapshot, plan: Plan, later_s: float, served_s: float = 0.0) -> Snapshot:
    """The cluster once the plan has been carried out, without arrivals and ends.

    Jobs that then run have attained this many more seconds of service.
    """
    now_s = snapshot.now_s
    jobs = []
    for one in snapshot.jobs:
        decision = plan.decisions[one.job_id]
        if decision.promoted:
            one = _promoted(one, now_s)
        if decision.action is Action.START:
            one = changed(
                one,
                state=JobState.RUNNING,
                allocation=decision.start_on,
                running_since_s=now_s,
                first_started_s=one.first_started_s or now_s,
            )
        elif decision.action is Action.PREEMPT:
            one = changed(
                one,
                state=JobState.PENDING,
                allocation={},
                preemptions=one.preemptions + 1,
                queued_s=now_s,
                ranks_last=False,
            )
        if one.state is JobState.RUNNING:
            served_gpu_s = served_s * one.gpus_held
            one = changed(
                one,
                attained_gpu_s=one.attained_gpu_s + served_gpu_s,
                attained_since_promotion_gpu_s=one.attained_since_promotion_gpu_s + served_gpu_s,
                executed_since_promotion_s=one.executed_since_promotion_s + served_s,
            )
        jobs.append(one)
    return Snapshot(now_s + later_s, snapshot.nodes, tuple(jobs))


@given(snapshots(), configs)
def test_every_plan_fits_its_nodes(snapshot: Snapshot, config: Config) -> None:
    plan, _ = _decided(snapshot, config)
    free = _free_after(snapshot, plan)
    for node in snapshot.nodes:
        amount = free.on(node.name)
        assert amount.cpus >= 0
        assert amount.memory_mb >= 0
        assert all(count >= 0 for count in amount.gpus.values())


@given(snapshots(), configs)
def test_every_start_matches_request_and_eligible_nodes(snapshot: Snapshot, config: Config) -> None:
    plan, _ = _decided(snapshot, config)
    jobs = {one.job_id: one for one in snapshot.jobs}
    for start in plan.starts:
        one = jobs[start.job_id]
        usable = [node for node in snapshot.nodes if node.available]
        sets = node_sets(one.request, usable)
        assert any(start.start_on.keys() <= set(names) for names in sets)
        assert one.request.required_nodes <= start.start_on.keys()
        assert len(start.start_on) >= one.request.min_nodes
        assert one.request.max_nodes is None or len(start.start_on) <= one.request.max_nodes
        asked = one.request.chunks * one.request.chunk.gpu_count
        given_gpus = sum(amount.gpu_count for amount in start.start_on.values())
        assert given_gpus == asked or (one.request.exclusive and given_gpus >= asked)


@given(snapshots(), configs)
def test_no_victim_is_protected_or_of_too_high_a_tier(snapshot: Snapshot, config: Config) -> None:
    plan, policy = _decided(snapshot, config)
    # A job that is promoted in this plan is ranked as if it had attained nothing.
    jobs = {
        one.job_id: changed(
            one,
            attained_since_promotion_gpu_s=0.0,
            executed_since_promotion_s=0.0,
            inherited_gpu_s=0.0,
        )
        if plan.decisions[one.job_id].promoted
        else one
        for one in snapshot.jobs
    }
    for preemption in plan.preemptions:
        victim, preemptor = jobs[preemption.job_id], jobs[preemption.preempted_for]
        assert victim.managed
        assert victim.lane is Lane.PREEMPTIBLE and preemptor.lane is not Lane.IDLE_ONLY
        if plan.decisions[preemptor.job_id].promoted:
            preemptor = _promoted(preemptor, snapshot.now_s)
        level = rank_of(preemptor, policy).level
        assert rank_of(victim, policy).level > level
        assert protection_of(victim, snapshot.now_s, config, level) is None
        assert plan.decisions[preemptor.job_id].action is Action.START
        assert victim.job_id in plan.decisions[preemptor.job_id].victims
    # While fewer than the limit are victims, a job may preempt all that it needs.
    victims = [len(start.victims) for start in plan.starts if start.victims]
    if victims:
        assert snapshot.recent_victims.jobs + sum(victims) - max(victims) < victim_rate.MAX_VICTIMS


@given(snapshots(), requests, st.sampled_from(PlacementStyle))
def test_each_victim_is_needed(snapshot: Snapshot, request: Request, style: PlacementStyle) -> None:
    """If any one of the victims is put back, the job no longer fits."""
    free = FreeResources(snapshot.nodes)
    running = [one for one in snapshot.jobs if one.state is JobState.RUNNING]
    for one in running:
        free.take(one.allocation)
    candidates = [
        Candidate(
            UniqueRank((i % 3,), (i,), (), one.job_id),
            one.allocation,
            free.nodes(one.allocation),
            one.gpus_held,
        )
        for i, one in enumerate(running)
    ]
    nodes = free.nodes(next(iter(node_sets(request, snapshot.nodes)), []))
    before = [free.on(node.name) for node in snapshot.nodes]
    preemptor = Preemptor(request, style, nodes, level=(-1,))
    preemption = find_victims(preemptor, free, CandidateIndex(free, candidates))
    assert [free.on(node.name) for node in snapshot.nodes] == before
    if preemption is None:
        for candidate in candidates:
            free.give(candidate.allocation)
        assert place(request, nodes, free, style) is None
        return
    for candidate in preemption.victims:
        free.give(candidate.allocation)
    assert place(request, nodes, free, style) == preemption.allocation
    for candidate in preemption.victims:
        free.take(candidate.allocation)
        assert place(request, nodes, free, style) is None
        free.give(candidate.allocation)


@given(snapshots(), requests, st.sampled_from(PlacementStyle))
def test_whether_a_job_fits_is_known_without_computing_its_placement(
    snapshot: Snapshot, request: Request, style: PlacementStyle
) -> None:
    free = FreeResources(snapshot.nodes)
    for one in snapshot.jobs:
        if one.state is JobState.RUNNING:
            free.take(one.allocation)
    for names in node_sets(request, snapshot.nodes):
        nodes = free.nodes(names)
        laid = place(request, nodes, free, style, last_resort=nodes & 5)
        assert fits(request, nodes, free) == (laid is not None)


@given(snapshots(), configs)
def test_no_gpu_idles_while_a_job_that_fits_it_waits(snapshot: Snapshot, config: Config) -> None:
    plan, _ = _decided(snapshot, config)
    free = _free_after(snapshot, plan)
    usable = [node for node in snapshot.nodes if node.available]
    for one in snapshot.jobs:
        decision = plan.decisions[one.job_id]
        may_start = one.state is JobState.PENDING and one.managed and not one.held
        if may_start and not one.backs_off and decision.action is Action.WAIT:
            for names, style in product(node_sets(one.request, usable), PlacementStyle):
                assert place(one.request, free.nodes(names), free, style) is None


@given(snapshots(), configs, st.sampled_from([10, 1000]))
def test_preemption_stops_by_itself(snapshot: Snapshot, config: Config, later_s: float) -> None:
    preempted: Counter[str] = Counter()
    busy, quiet_s = 0, 0.0
    # After that time all protections have ended, and waiting jobs have been promoted if they ever
    # are.
    while quiet_s <= 400:
        plan, _policy = _decided(snapshot, config)
        acts = plan.starts or plan.preemptions
        quiet_s = 0.0 if acts else quiet_s + later_s
        busy += bool(acts)
        preempted.update(one.job_id for one in plan.preemptions)
        assert busy < 40, f"still preempting: {preempted}"
        snapshot = _next(snapshot, plan, later_s)


@given(snapshots(), configs)
def test_no_job_needs_victims_twice_without_changes(snapshot: Snapshot, config: Config) -> None:
    """Each job runs long enough to reach the lowest tier, so that none has a lower one."""
    busy = tuple(changed(one, ranks_last=False) for one in snapshot.jobs)
    snapshot = replace(snapshot, jobs=busy)
    las = replace(config, policy=replace(config.policy, name="2d-las", promote_knob=0.0))
    needed: Counter[str] = Counter()
    for _ in range(20):
        plan, _policy = _decided(snapshot, las)
        needed.update(start.job_id for start in plan.starts if start.victims)
        assert max(needed.values(), default=0) <= 1
        snapshot = _next(snapshot, plan, later_s=1000, served_s=1000)
    assert not plan.preemptions


@given(snapshots(), configs, st.randoms(use_true_random=False))
def test_plans_do_not_depend_on_the_order_of_jobs_and_nodes(
    snapshot: Snapshot, config: Config, chance: random.Random
) -> None:
    nodes, jobs = list(snapshot.nodes), list(snapshot.jobs)
    chance.shuffle(nodes)
    chance.shuffle(jobs)
    shuffled = replace(snapshot, nodes=tuple(nodes), jobs=tuple(jobs))
    assert _decided(snapshot, config)[0] == _decided(shuffled, config)[0]


@given(snapshots(), configs)
def test_every_job_gets_a_decision_and_a_reason(snapshot: Snapshot, config: Config) -> None:
    plan, _ = _decided(snapshot, config)
    assert plan.decisions.keys() == {one.job_id for one in snapshot.jobs}
    waits = [d for d in plan.decisions.values() if d.action is Action.WAIT]
    assert all(d.reason not in (Reason.STARTS, Reason.RUNS_ON) for d in waits)
