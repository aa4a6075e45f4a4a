"""A Hypothesis state machine that applies random events to a ``World``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scripts.testbed.lifecycle.faulty import Fault
from scripts.testbed.lifecycle.world import (
    GPUS,
    MANAGED,
    MOST_TERMS,
    NODES,
    OTHER,
    SMALL,
    Ask,
    Setup,
    World,
)
from slurm_tiresias.controller.cycle import ENFORCE, PAUSED, SHADOW
from slurm_tiresias.model import JobState

DONE: Counter[str] = Counter()
"""Counts of the events in all interleavings of this process."""

USERS = ("ann", "ben")
MOST_JOBS = 14
FIRST_CYCLES = 3

partitions = st.sampled_from(
    [(MANAGED,), (MANAGED,), (SMALL,), (MANAGED, SMALL), (SMALL, MANAGED), (OTHER,), (SMALL, OTHER)]
)
setups = st.builds(
    Setup,
    write=st.sampled_from(["pinned", "pinned", "site-factor"]),
    signal=st.sampled_from(["USR1", "USR1", ""]),
    accounting=st.sampled_from([True, True, False]),
    policy=st.sampled_from(["2d-las", "2d-las", "2d-gittins"]),
    estimates=st.sampled_from([("reports",), ("reports",), ("reports", "history")]),
    budget_share=st.sampled_from([0.0, 0.0, 0.1]),
    idle=st.sampled_from(["", "leave", "leave", "rank-last"]),
)

asks = st.builds(
    Ask,
    gpus=st.integers(1, GPUS),
    nodes=st.sampled_from([1, 1, 1, 2, 3]),
    user=st.sampled_from(USERS),
    partitions=st.sampled_from([(MANAGED,)] * 4 + [(MANAGED, SMALL), (SMALL, MANAGED)]),
    checkpoint=st.sampled_from(["", "", "USR2@5", "TERM@30", "HUP@3600"]),
    requeues_itself_in_s=st.sampled_from([None, None, None, 0.0, 4.0, 12.0]),
    restarts=st.sampled_from([0, 0, 1, 2]),
)
odd_asks = st.builds(
    Ask,
    gpus=st.integers(1, GPUS),
    user=st.sampled_from(USERS),
    node_list=st.sampled_from(["", "", "n1", "n2"]),
    features=st.sampled_from(["", "", "fast"]),
    requeue=st.sampled_from([True, True, False]),
    begin_in_s=st.sampled_from([0.0, 0.0, 40.0]),
    partitions=partitions,
    batch=st.sampled_from([True, True, True, False]),
)
arrays = st.builds(
    Ask,
    gpus=st.integers(1, 2),
    user=st.sampled_from(USERS),
    tasks=st.integers(2, 4),
    array_limit=st.sampled_from([None, 1, 2]),
)

faults = st.sampled_from(list(Fault))
MOST_EFFECTS = 8
"""Most cycles have no more effects."""

effects = st.integers(0, MOST_EFFECTS)
picks = st.integers(0, MOST_JOBS)
nodes = st.sampled_from(NODES)
waits_s = st.sampled_from([1.0, 3.0, 10.0, 10.0, 16.0, 31.0, 61.0, 125.0])

FAULTY = tuple((5.0, fault, at) for fault in Fault for at in range(MOST_EFFECTS))
turns = st.sampled_from([(0.0, None, 0)] * 12 + [(5.0, None, 0), (10.0, None, 0)] * 14 + [*FAULTY])
"""What follows an event: mostly a pause and a cycle; every other such cycle has a fault."""


def paced(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """Make a rule after which the controller mostly runs a cycle."""

    def decorated(act: Callable[..., None]) -> Any:
        def run(machine: Lifecycle, turn: tuple[float, Fault | None, int], **values: Any) -> None:
            act(machine, **values)
            pace_s, fault, at = turn
            if pace_s:
                machine.at_work.advance(pace_s)
                machine.at_work.cycle(fault, at)

        run.__name__, run.__doc__ = act.__name__, act.__doc__
        decorate: Any = rule(turn=turns, **strategies)
        return decorate(run)

    return decorated


LIVE = (JobState.PENDING, JobState.RUNNING)


class Lifecycle(RuleBasedStateMachine):
    """The possible events from users, nodes, Slurm and the controller; ``World`` checks them."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @property
    def at_work(self) -> World:
        assert self.world is not None
        return self.world

    @initialize(
        setup=setups,
        ended=st.lists(asks, max_size=3),
        first=st.lists(asks, min_size=1, max_size=5),
        more=st.lists(asks, max_size=3),
    )
    def begin(
        self, setup: Setup, ended: Sequence[Ask], first: Sequence[Ask], more: Sequence[Ask]
    ) -> None:
        """Start with some jobs that have run for a while, and some new ones. Jobs in ``ended`` give
        the policies that use job history some data."""
        self.world = World(setup)
        for ask in ended:
            (key,) = self.world.submit(ask)
            self.world.advance(20.0)
            self.world.cycle()
            self.world.finish(key)
        for ask in first:
            self.world.submit(ask)
        for _ in range(FIRST_CYCLES):
            self.world.advance(20.0)
            self.world.cycle()
        for ask in more:
            self.world.submit(ask)

    def teardown(self) -> None:
        if self.world is None:
            return
        try:
            if not self.world.broken:
                self.world.settle()
        finally:
            note("\n".join(self.world.course))
            self.world.close()
            DONE.update(self.world.counts)
            DONE["interleavings"] += 1

    @invariant()
    def holds(self) -> None:
        if self.world is not None:
            self.world.check()

    def one_of(self, pick: int, *states: JobState) -> str | None:
        jobs = self.at_work.alive(*states)
        return jobs[pick % len(jobs)] if jobs else None

    # Arrivals

    @paced(ask=asks)
    def arrives(self, ask: Ask) -> None:
        if len(self.at_work.alive()) < MOST_JOBS:
            self.at_work.submit(ask)

    @paced(ask=st.one_of(odd_asks, arrays))
    def odd_one_arrives(self, ask: Ask) -> None:
        if len(self.at_work.alive()) < MOST_JOBS:
            self.at_work.submit(ask)

    @paced(ask=asks, pick=picks)
    def dependent_one_arrives(self, ask: Ask, pick: int) -> None:
        if len(self.at_work.alive()) < MOST_JOBS and (after := self.one_of(pick)):
            self.at_work.submit(Ask(ask.gpus, user=ask.user, after=after))

    # Cycles and time

    @rule(wait_s=waits_s, count=st.integers(1, 4))
    def cycles(self, wait_s: float, count: int) -> None:
        self.cycles_of(wait_s, count)

    def cycles_of(self, wait_s: float, count: int) -> None:
        for _ in range(count):
            self.at_work.advance(wait_s)
            self.at_work.cycle()

    @rule(wait_s=waits_s)
    def waits(self, wait_s: float) -> None:
        self.at_work.advance(wait_s)

    @rule(fault=faults, at=effects, wait_s=waits_s)
    def faulty_cycle(self, fault: Fault, at: int, wait_s: float) -> None:
        self.at_work.advance(wait_s)
        self.at_work.cycle(fault, at)

    @rule(pick=picks, number=st.integers(0, 3), node=nodes)
    def cycle_in_a_race(self, pick: int, number: int, node: str) -> None:
        """Run a cycle in which a job changes between the observation and the writes."""
        world = self.at_work
        races: Sequence[Callable[[], Sequence[str]]] = (
            lambda: self._to_one(pick, world.cancel),
            lambda: self._to_one(pick, lambda key: world.hold(key, by_admin=False)),
            lambda: self._to_one(pick, world.requeue, JobState.RUNNING),
            lambda: self._to_one(pick, world.finish, JobState.RUNNING),
        )
        world.cycle(race=races[number])

    def _to_one(self, pick: int, what: Callable[[str], None], *states: JobState) -> Sequence[str]:
        key = self.one_of(pick, *(states or LIVE))
        if key is None:
            return ()
        what(key)
        return (key,)

    # Users and administrators

    @paced(pick=picks)
    def finishes(self, pick: int) -> None:
        self._to_one(pick, self.at_work.finish, JobState.RUNNING)

    @paced(pick=picks)
    def fails(self, pick: int) -> None:
        self._to_one(pick, self.at_work.fail_run, JobState.RUNNING)

    @paced(pick=picks)
    def cancels(self, pick: int) -> None:
        self._to_one(pick, self.at_work.cancel)

    @paced(pick=picks, by_admin=st.booleans())
    def holds_one(self, pick: int, by_admin: bool) -> None:
        self._to_one(pick, lambda key: self.at_work.hold(key, by_admin=by_admin))

    @paced(pick=picks)
    def lets_go(self, pick: int) -> None:
        held = [key for key, job in self.at_work.jobs().items() if job.state and not job.priority]
        if held:
            self.at_work.let_go(held[pick % len(held)])

    @paced(pick=picks)
    def suspends(self, pick: int) -> None:
        self._to_one(pick, self.at_work.suspend, JobState.RUNNING)

    @paced(pick=picks)
    def resumes(self, pick: int) -> None:
        jobs = self.at_work.jobs()
        suspended = [key for key, job in jobs.items() if job.slurm_state == "SUSPENDED"]
        if suspended:
            self.at_work.resume(suspended[pick % len(suspended)])

    @paced(pick=picks)
    def requeues(self, pick: int) -> None:
        self._to_one(pick, self.at_work.requeue, JobState.RUNNING)

    @paced(pick=picks, priority=st.sampled_from([1, 500, 2_999_999_999, 4_200_000_000]))
    def sets_priority(self, pick: int, priority: int) -> None:
        self._to_one(pick, lambda key: self.at_work.set_priority(key, priority))

    @paced(pick=picks)
    def forbids_requeue(self, pick: int) -> None:
        self._to_one(pick, self.at_work.forbid_requeue)

    @paced(pick=picks, node_list=st.sampled_from(["", *NODES]))
    def names_nodes(self, pick: int, node_list: str) -> None:
        self._to_one(pick, lambda key: self.at_work.name_nodes(key, node_list), JobState.PENDING)

    @paced(pick=picks, partitions=partitions)
    def moves(self, pick: int, partitions: tuple[str, ...]) -> None:
        self._to_one(pick, lambda key: self.at_work.move(key, *partitions), JobState.PENDING)

    @paced(pick=picks)
    def is_obstructed(self, pick: int) -> None:
        """Let a pending job lack a licence from now on."""
        self._to_one(pick, self.at_work.obstruct, JobState.PENDING)

    @paced(pick=picks)
    def cannot_be_read(self, pick: int) -> None:
        self._to_one(pick, self.at_work.garble)

    # Reports of jobs

    @paced(pick=picks, steps=st.sampled_from([0, 1, 50]), first_step=st.sampled_from([0, 0, 40]))
    def reports(self, pick: int, steps: int, first_step: int) -> None:
        self._to_one(
            pick, lambda key: self.at_work.report(key, steps, first_step), JobState.RUNNING
        )

    @paced(pick=picks)
    def saves(self, pick: int) -> None:
        self._to_one(pick, self.at_work.save, JobState.RUNNING)

    @paced(pick=picks, ago_s=st.sampled_from([0.0, 5.0, 60.0]))
    def claims_a_save(self, pick: int, ago_s: float) -> None:
        self._to_one(pick, lambda key: self.at_work.claim_save(key, ago_s), JobState.RUNNING)

    # What jobs do with their GPUs

    @paced(pick=picks, how=st.sampled_from(["none", "none", "none", "one", "all"]))
    def uses_gpus(self, pick: int, how: str) -> None:
        self._to_one(pick, lambda key: self.at_work.use_gpus(key, how))

    @rule(pick=picks, wait_s=st.sampled_from([10.0, 16.0]), count=st.integers(3, 7))
    def leaves_its_gpus_idle(self, pick: int, wait_s: float, count: int) -> None:
        """Let a job use none of its GPUs for so many cycles."""
        self._to_one(pick, lambda key: self.at_work.use_gpus(key, "none"), JobState.RUNNING)
        self.cycles_of(wait_s, count)

    @paced(ask=asks)
    def an_idle_pair_arrives(self, ask: Ask) -> None:
        """Submit two jobs that use no GPU and mostly find room on the same nodes."""
        for _ in range(2):
            if len(self.at_work.alive()) < MOST_JOBS:
                (key,) = self.at_work.submit(replace(ask, gpus=GPUS))
                self.at_work.use_gpus(key, "none")

    @paced(silent=st.booleans())
    def samplers(self, silent: bool) -> None:
        self.at_work.silence_samplers(silent)

    @paced(node=nodes)
    def sampler_restarts(self, node: str) -> None:
        self.at_work.restart_sampler(node)

    # Nodes and Slurm itself

    @paced(node=nodes)
    def drains(self, node: str) -> None:
        self.at_work.drain(node)

    @paced(node=nodes)
    def node_fails(self, node: str) -> None:
        self.at_work.fail(node)

    @paced(node=nodes)
    def node_returns(self, node: str) -> None:
        self.at_work.return_to_service(node)

    @paced(node=nodes, hang=st.sampled_from([True, True, False]))
    def epilogs_hang(self, node: str, hang: bool) -> None:
        self.at_work.hang(node, hang)

    @paced(node=nodes, in_s=st.sampled_from([0.0, 60.0]))
    def reserves(self, node: str, in_s: float) -> None:
        self.at_work.reserve(node, in_s)

    @paced()
    def slurm_forgets(self) -> None:
        self.at_work.restart_slurm()

    @paced()
    def state_is_lost(self) -> None:
        """Let the ids of jobs begin again."""
        self.at_work.restart_slurm(wiped=True)

    @paced(first=asks, second=st.one_of(asks, odd_asks), wait_s=st.sampled_from([0.5, 1.5, 2.5]))
    def id_comes_again(self, first: Ask, second: Ask, wait_s: float) -> None:
        if len(self.at_work.alive()) < MOST_JOBS:
            self.at_work.come_again(first, second, wait_s)

    @paced(seconds=st.sampled_from([-3600.0, -20.0, 20.0, 3600.0]))
    def clock_is_set(self, seconds: float) -> None:
        self.at_work.step_clock(seconds)

    @paced(refused=st.booleans())
    def signals(self, refused: bool) -> None:
        self.at_work.refuse_signals(refused)

    @paced(how=st.sampled_from(["well", "fails", "late"]))
    def accounting(self, how: str) -> None:
        self.at_work.set_accounting(how)

    # The controller itself

    @paced()
    def restarts(self) -> None:
        self.at_work.restart()

    @paced()
    def fails_over(self) -> None:
        if self.at_work.lease.term < MOST_TERMS:
            self.at_work.failover()

    @paced()
    def one_before_wakes(self) -> None:
        self.at_work.wake()

    @paced(mode=st.sampled_from([ENFORCE, ENFORCE, PAUSED, SHADOW]))
    def is_told(self, mode: str) -> None:
        self.at_work.switch(mode)

    @paced(fault=st.one_of(st.none(), st.none(), faults), at=effects)
    def releases(self, fault: Fault | None, at: int) -> None:
        self.at_work.release(fault, at)
        self.at_work.switch(ENFORCE)
