"""A Hypothesis state machine that applies random events to a ``World``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scripts.testbed.in_memory.records import SUSPENDED
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
from slurm_tiresias.model import JobState, JobStatus

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


Which = Callable[[JobStatus], bool]
Drawn = Mapping[str, st.SearchStrategy[Any]]


def pending(job: JobStatus) -> bool:
    return job.state is JobState.PENDING


def running(job: JobStatus) -> bool:
    return job.state is JobState.RUNNING


def live(job: JobStatus) -> bool:
    return pending(job) or running(job)


def held(job: JobStatus) -> bool:
    return job.state is not None and job.priority == 0


def suspended(job: JobStatus) -> bool:
    return job.slurm_state == SUSPENDED


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
        self.at_work.check()

    def to_one(self, pick: int, which: Which, act: Callable[[str], None]) -> Sequence[str]:
        """Do this to one of these jobs; return its key, or none if there is no such job."""
        keys = [key for key, job in self.at_work.jobs().items() if which(job)]
        if not keys:
            return ()
        act(keys[pick % len(keys)])
        return (keys[pick % len(keys)],)

    # Arrivals

    def has_room(self) -> bool:
        return len(self.at_work.alive()) < MOST_JOBS

    @paced(ask=asks)
    def arrives(self, ask: Ask) -> None:
        if self.has_room():
            self.at_work.submit(ask)

    @paced(ask=st.one_of(odd_asks, arrays))
    def odd_one_arrives(self, ask: Ask) -> None:
        if self.has_room():
            self.at_work.submit(ask)

    @paced(ask=asks, pick=picks)
    def dependent_one_arrives(self, ask: Ask, pick: int) -> None:
        alive = self.at_work.alive()
        if alive and self.has_room():
            after = alive[pick % len(alive)]
            self.at_work.submit(Ask(ask.gpus, user=ask.user, after=after))

    @paced(ask=asks)
    def an_idle_pair_arrives(self, ask: Ask) -> None:
        """Submit two jobs that use no GPU and mostly find room on the same nodes."""
        for _ in range(2):
            if self.has_room():
                (key,) = self.at_work.submit(replace(ask, gpus=GPUS))
                self.at_work.use_gpus(key, "none")

    @paced(first=asks, second=st.one_of(asks, odd_asks), wait_s=st.sampled_from([0.5, 1.5, 2.5]))
    def id_comes_again(self, first: Ask, second: Ask, wait_s: float) -> None:
        if self.has_room():
            self.at_work.come_again(first, second, wait_s)

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
        races: Sequence[tuple[Which, Callable[[str], None]]] = (
            *((live, world.cancel), (live, partial(world.hold, by_admin=False))),
            *((running, world.requeue), (running, world.finish)),
        )
        which, act = races[number]
        world.cycle(race=lambda: self.to_one(pick, which, act))

    @rule(pick=picks, wait_s=st.sampled_from([10.0, 16.0]), count=st.integers(3, 7))
    def leaves_its_gpus_idle(self, pick: int, wait_s: float, count: int) -> None:
        """Let a job use none of its GPUs for so many cycles."""
        self.to_one(pick, running, partial(self.at_work.use_gpus, how="none"))
        self.cycles_of(wait_s, count)

    # The controller itself

    @paced()
    def fails_over(self) -> None:
        if self.at_work.lease.term < MOST_TERMS:
            self.at_work.failover()

    @paced(fault=st.one_of(st.none(), st.none(), faults), at=effects)
    def releases(self, fault: Fault | None, at: int) -> None:
        self.at_work.release(fault, at)
        self.at_work.switch(ENFORCE)


OF_JOBS: Mapping[str, tuple[Which, Callable[..., None], Drawn]] = {
    # Users and administrators
    "finishes": (running, World.finish, {}),
    "fails": (running, World.fail_run, {}),
    "cancels": (live, World.cancel, {}),
    "holds_one": (live, World.hold, {"by_admin": st.booleans()}),
    "lets_go": (held, World.let_go, {}),
    "suspends": (running, World.suspend, {}),
    "resumes": (suspended, World.resume, {}),
    "requeues": (running, World.requeue, {}),
    "sets_priority": (
        live,
        World.set_priority,
        {"priority": st.sampled_from([1, 500, 2_999_999_999, 4_200_000_000])},
    ),
    "forbids_requeue": (live, World.forbid_requeue, {}),
    "names_nodes": (pending, World.name_nodes, {"node_list": st.sampled_from(["", *NODES])}),
    "moves": (pending, World.move, {"partitions": partitions}),
    "is_obstructed": (pending, World.obstruct, {}),
    "cannot_be_read": (live, World.garble, {}),
    # Reports of jobs, and what they do with their GPUs
    "reports": (
        running,
        World.report,
        {"steps": st.sampled_from([0, 1, 50]), "first_step": st.sampled_from([0, 0, 40])},
    ),
    "saves": (running, World.save, {}),
    "claims_a_save": (running, World.claim_save, {"ago_s": st.sampled_from([0.0, 5.0, 60.0])}),
    "uses_gpus": (
        live,
        World.use_gpus,
        {"how": st.sampled_from(["none", "none", "none", "one", "all"])},
    ),
}
"""By event: the jobs to one of which it happens, what happens, and with which drawn values."""

OF_THE_SITE: Mapping[str, tuple[Callable[..., None], Drawn]] = {
    "samplers": (World.silence_samplers, {"silent": st.booleans()}),
    "sampler_restarts": (World.restart_sampler, {"node": nodes}),
    "drains": (World.drain, {"node": nodes}),
    "node_fails": (World.fail, {"node": nodes}),
    "node_returns": (World.return_to_service, {"node": nodes}),
    "epilogs_hang": (World.hang, {"node": nodes, "hang": st.sampled_from([True, True, False])}),
    "reserves": (World.reserve, {"node": nodes, "in_s": st.sampled_from([0.0, 60.0])}),
    "slurm_forgets": (World.restart_slurm, {}),
    "state_is_lost": (partial(World.restart_slurm, wiped=True), {}),
    "clock_is_set": (
        World.step_clock,
        {"seconds": st.sampled_from([-3600.0, -20.0, 20.0, 3600.0])},
    ),
    "signals": (World.refuse_signals, {"refused": st.booleans()}),
    "accounting": (World.set_accounting, {"how": st.sampled_from(["well", "fails", "late"])}),
    "restarts": (World.restart, {}),
    "one_before_wakes": (World.wake, {}),
    "is_told": (World.switch, {"mode": st.sampled_from([ENFORCE, ENFORCE, PAUSED, SHADOW])}),
}
"""Events of nodes, of Slurm itself and of the controller: what happens, and the drawn values."""


def _of_a_job(which: Which, act: Callable[..., None]) -> Callable[..., None]:
    return lambda machine, pick, **values: machine.to_one(
        pick, which, lambda key: act(machine.at_work, key, **values)
    )


def _of_the_site(act: Callable[..., None]) -> Callable[..., None]:
    return lambda machine, **values: act(machine.at_work, **values)


def _add_events() -> None:
    for name, (which, act, drawn) in OF_JOBS.items():
        _add(name, _of_a_job(which, act), pick=picks, **drawn)
    for name, (act, drawn) in OF_THE_SITE.items():
        _add(name, _of_the_site(act), **drawn)


def _add(name: str, event: Callable[..., None], **drawn: Any) -> None:
    event.__name__ = name
    setattr(Lifecycle, name, paced(**drawn)(event))


_add_events()
