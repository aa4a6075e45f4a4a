"""A planner that is kept from snapshot to snapshot makes the same plans as a new one."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scripts.testbed.job_views import changed
from scripts.testbed.kept_engine import KeptEngine
from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.features.recurring import RunHistory
from slurm_tiresias.core.job import NOT_KEPT, Job, KeptBySlurm, Snapshot
from slurm_tiresias.core.placement.free_resources import FreeResources
from slurm_tiresias.model import (
    NO_PAST_LOSSES,
    Action,
    Allocation,
    Decision,
    JobState,
    Lane,
    Node,
    PastLosses,
    Plan,
    WorkAtStake,
)
from slurm_tiresias.settings import Config
from tests.properties.test_decide_invariants import (
    HISTORY,
    RECENT_VICTIMS,
    RUNS,
    configs,
    jobs_lists,
    nodes_lists,
    snapshots,
)

BLOCKED = ("", "", "Dependency")


class Cluster:
    """Carries out plans in parts, as Slurm and its users would: some parts late or never."""

    def __init__(self, before: Snapshot, others: list[Job], nodes: list[Node]) -> None:
        self.snapshot = before
        self._others = others
        self._nodes = [replace(node, name=f"m{i}") for i, node in enumerate(nodes)]
        self._came = 0

    def goes_on(self, plan: Plan, chance: random.Random) -> None:
        """Let some time pass. Unchanged objects stay the same objects."""
        after = [
            self._later(job, plan.decisions[job.job_id], chance) if chance.random() < 0.5 else job
            for job in self.snapshot.jobs
        ]
        jobs = [job for job in after if job is not None]
        for _ in range(chance.choice((0, 0, 1, 3))):
            if self._others:
                self._came += 1
                jobs.append(changed(chance.choice(self._others), job_id=str(100 + self._came)))
        if chance.random() < 0.1:
            chance.shuffle(jobs)
        passed_s = chance.choice((0.0, 1.0, 10.0, 60.0, 600.0, 6000.0, -30.0))
        self.snapshot = Snapshot(
            self.snapshot.now_s + passed_s,
            self._nodes_later(chance),
            self._that_fit(jobs),
            chance.choice((self.snapshot.recent_victims, *RECENT_VICTIMS)),
        )

    def _nodes_later(self, chance: random.Random) -> tuple[Node, ...]:
        nodes = list(self.snapshot.nodes)
        happens = chance.random()
        if happens < 0.1:
            nodes[0] = replace(nodes[0], available=not nodes[0].available)
        elif happens < 0.2:
            nodes[0] = replace(nodes[0], state="MIXED")
        elif happens < 0.25 and len(nodes) > 1:
            nodes.pop()
        elif happens < 0.3 and self._nodes:
            nodes.append(self._nodes.pop())
        return tuple(nodes)

    def _that_fit(self, jobs: list[Job]) -> tuple[Job, ...]:
        """Slurm allocates each GPU only once, whatever has been planned."""
        free = FreeResources(self.snapshot.nodes)
        return tuple(
            changed(job, state=JobState.PENDING, allocation={})
            if job.state is JobState.RUNNING and not _take(free, job.allocation)
            else job
            for job in jobs
        )

    def _later(self, job: Job, decision: Decision, chance: random.Random) -> Job | None:
        now_s = self.snapshot.now_s
        happens = chance.random()
        if job.state is JobState.COMPLETING:
            return None
        if job.state is JobState.RUNNING:
            if decision.action is Action.PREEMPT and happens < 0.5:
                return changed(job, preemptor=decision.preempted_for)
            if happens < 0.2:
                return changed(job, state=JobState.COMPLETING)
            if happens < 0.4 or job.preemptor:
                return _requeued(job, now_s)
            if happens < 0.5:
                return changed(job, in_slurm=chance.choice((NOT_KEPT, KeptBySlurm(held=True))))
            if happens < 0.6:
                return changed(job, at_stake=_other_stake(now_s, chance))
            if happens < 0.68:
                last = not job.ranks_last
                return changed(job, ranks_last=last, leaves_idle=last and chance.random() < 0.5)
            if happens < 0.69:
                return changed(job, leaves_idle=not job.leaves_idle)
            if happens < 0.7:
                redoing = PastLosses(redoing_until_s=now_s + chance.choice((-1.0, 10.0, 300.0)))
                return changed(job, past_losses=chance.choice((NO_PAST_LOSSES, redoing)))
            return _served(job, chance.choice((1.0, 30.0, 200.0)))
        if decision.action is Action.START and happens < 0.7:
            if job.nominated_to is None and happens < 0.4:
                return changed(job, nominated_to=decision.start_on)
            return _started(job, decision.start_on, now_s)
        if happens < 0.1:
            return None
        if decision.promoted and happens < 0.5:
            return changed(
                job,
                attained_since_promotion_gpu_s=0.0,
                executed_since_promotion_s=0.0,
                inherited_gpu_s=0.0,
                promotions=job.promotions + 1,
                queued_s=now_s,
            )
        return chance.choice(
            (
                changed(job, held=not job.held),
                changed(job, not_eligible=chance.choice(BLOCKED)),
                changed(job, backs_off=not job.backs_off),
                changed(job, boosted=not job.boosted),
                changed(job, cools_down=not job.cools_down),
                changed(job, lane=chance.choice(list(Lane)), lane_because="submitted so"),
                changed(job, over_budget=not job.over_budget),
                changed(job, inherited_gpu_s=chance.choice((0.0, 120.0, 700.0))),
                changed(job, managed=not job.managed, unmanaged_because="not requeueable"),
                changed(job, nominated_to=None),
                changed(job, name="debug"),
                changed(
                    job,
                    request=replace(
                        job.request, reserved_nodes=chance.choice((frozenset(), frozenset({"n0"})))
                    ),
                ),
                changed(job),
            )
        )


def _take(free: FreeResources, allocation: Allocation) -> bool:
    """Take this amount unless it exceeds what is free."""
    known = free.nodes(allocation).bit_count() == len(allocation)
    free.take(allocation)
    amounts = [free.on(node) for node in allocation if known]
    enough = known and all(
        min(some.cpus, some.memory_mb, *some.gpus.values()) >= 0 for some in amounts
    )
    if not enough:
        free.give(allocation)
    return enough


def _other_stake(now_s: float, chance: random.Random) -> WorkAtStake | None:
    since_s = now_s - chance.choice((0.0, 50.0, 2000.0))
    due_s = chance.choice((None, since_s + 600.0, since_s + 4000.0))
    return chance.choice((None, WorkAtStake(since_s, math.inf, 30.0, due_s)))


def _requeued(job: Job, now_s: float) -> Job:
    return changed(
        job,
        state=JobState.PENDING,
        allocation={},
        preemptor="",
        preemptions=job.preemptions + 1,
        queued_s=now_s,
    )


def _started(job: Job, on: Allocation, now_s: float) -> Job:
    return changed(
        job,
        state=JobState.RUNNING,
        allocation=on,
        nominated_to=None,
        held=False,
        running_since_s=now_s,
        first_started_s=job.first_started_s or now_s,
    )


def _served(job: Job, ran_s: float) -> Job:
    return changed(
        job,
        attained_gpu_s=job.attained_gpu_s + ran_s * job.gpus_held,
        attained_since_promotion_gpu_s=job.attained_since_promotion_gpu_s + ran_s * job.gpus_held,
        executed_since_promotion_s=job.executed_since_promotion_s + ran_s,
    )


@given(snapshots(), configs, jobs_lists, nodes_lists, st.lists(st.integers(0, 2**32), max_size=12))
def test_a_kept_planner_plans_what_a_new_one_would(
    first: Snapshot, config: Config, others: list[Job], nodes: list[Node], steps: list[int]
) -> None:
    cluster = Cluster(first, others, nodes)
    policy = make_policy(config.policy, HISTORY, RunHistory(RUNS))
    engine = KeptEngine(policy, config)
    plan_before = expected_before = Plan({})
    for step in [0, *steps]:
        plan = engine.plan(cluster.snapshot)
        expected = decide(cluster.snapshot, policy, config)
        assert plan == expected
        assert plan_before == expected_before, "a later plan has changed an earlier one"
        plan_before, expected_before = plan, expected
        assert list(plan.decisions) == list(expected.decisions)
        assert engine.plan(cluster.snapshot) == expected
        if step % 7 == 0:
            # A policy that has learned more may rank all jobs differently.
            runs = RunHistory([*RUNS, ("ann", "train", None, float(step % 1000))])
            policy = make_policy(config.policy, HISTORY, runs)
            plan = engine.plan(cluster.snapshot, policy)
            assert plan == decide(cluster.snapshot, policy, config)
        cluster.goes_on(plan, random.Random(step))
