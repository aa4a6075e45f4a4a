"""One test round on the in-memory Slurm: jobs arrive, the site changes, all jobs must finish.

What must hold at every cycle is checked by ``World``; here is what only holds without its faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from random import Random

from scripts.testbed.in_memory.extras import NONE
from scripts.testbed.in_memory.records import BAD_CONSTRAINTS
from scripts.testbed.lifecycle import memory
from scripts.testbed.lifecycle.world import IDLE_AFTER_S, START_BOUND_S, World
from scripts.testbed.sites.drawn import Ask, ask, site
from scripts.testbed.sites.round import DRAIN, FAIL, PENDING, RESUME, Round, Shown

QUIET_S = 12 * START_BOUND_S
"""A job that did not start is nominated again within eight times the start bound."""

LATEST_S = 15.0
"""Tolerance for preemptions, which are recorded when seen: the preemptor may have started then."""

HELD_UNSEEN = 1
"""How often a job may be held for a node list if Slurm does not show that its request is opaque:
Slurm may reject the first list; the next cycle removes it, and no other is written."""

COUNTED = ("cycles", "starts", "requeues by themselves")
"""What the world counts for a round."""


@dataclass
class InMemoryRound(Round):
    """A round in a ``World``, with what only the memory of Slurm and controller shows."""

    world: World = field(kw_only=True)
    times_held: Counter[str] = field(default_factory=Counter)
    first_preemption: int = 0
    """The first row of the ledger's preemptions since times and ids were last broken off."""

    events = (3, 14)
    happenings = (
        *("submit",) * 20,
        *("submit_several",) * 4,
        *("drain", "resume", "resume", "fail", "hold", "cancel") * 2,
        *("forget", "forget", "lose_state", "step_clock"),
        *("submit_idle_ones", "hang") * 2,
        *("suspend", "suspend", "resume-job") * 2,
    )
    pauses_s = (1.5, 3.0, 9.0, 30.0)
    look_every_s = 30.0
    quiet_s = QUIET_S
    settles_within_s = 18_000.0
    early_s, late_s = LATEST_S, 0.0

    @property
    def now_s(self) -> float:
        return self.world.now_s

    def queue(self) -> dict[str, Shown]:
        return {
            key: Shown(*(job.slurm_state, job.reason, job.priority, job.spec.required_node_list))
            for key, job in self.world.jobs().items()
            if job.state is not None
        }

    def send(self, wanted: Ask) -> str:
        keys = self.world.submit(wanted)
        for key in keys:
            del self.times_held[key]
        return keys[0].partition("_")[0]

    def set_node(self, name: str, state: str) -> None:
        world = self.world
        {DRAIN: world.drain, RESUME: world.return_to_service, FAIL: world.fail}[state](name)

    def set_epilogs(self, name: str, hang: bool) -> None:
        self.world.hang(name, hang)

    def change_job(self, what: str, key: str) -> None:
        match what:
            case "hold":
                self.world.hold(key, by_admin=False)
            case "release":
                self.world.let_go(key)
            case _:
                getattr(self.world, what)(key)

    def kill_slurmctld(self, lose_state: bool) -> None:
        self.break_off()
        self.world.restart_slurm(wiped=lose_state)
        for key, shown in self.queue().items():
            if shown.node_list and shown.state == PENDING and self.times_held[key]:
                # The list for which it was held has come back, and so does the hold.
                self.times_held[key] -= 1

    def stop_controller(self) -> None:
        self.world.come_to_rest()
        self.world.cycles.take_lists_back()

    def leave_alone(self) -> None:
        self.world.hand_all_back()
        for _ in range(20):
            self.world.sim.advance(self.look_every_s)

    def preemptions(self) -> Iterable[tuple[str, str, float]]:
        return memory.preemptions_since(self.world.cycles, self.first_preemption)

    def starts_s(self, key: str) -> Iterable[float]:
        return [run.start_s for run in self.world.sim.runs([key], 0.0) if run.start_s is not None]

    # Events

    def pass_time(self, seconds: float) -> None:
        """Let time pass; cycles follow quickly while starts or preemptions are under way."""
        until_s, unsettled = self.now_s + seconds, True
        while self.now_s < until_s:
            self.world.sim.advance(min(3.0 if unsettled else 15.0, until_s - self.now_s))
            self.look_for_holds()
            outcome = self.world.cycle()
            assert outcome is not None, "no cycle fails here"
            unsettled = outcome.unsettled
            self.world.check()

    def submit_idle_ones(self) -> None:
        """Submit two jobs with the same request, which use none of their GPUs."""
        wanted = ask(self.site, self.random)
        for _ in range(2):
            key = self.submit_one(wanted)
            tasks = wanted.submission.array
            for one in [f"{key}_{task}" for task in tasks] or [key]:
                self.world.use_gpus(one, "none")

    def step_clock(self) -> None:
        seconds = self.random.choice((-3600.0, -20.0, 20.0, 3600.0))
        self.note(f"clock {seconds:+g} s")
        self.changed_s.append(self.now_s)
        self.break_off()
        self.world.step_clock(seconds)
        self.changed_s.append(self.now_s)

    def break_off(self) -> None:
        """Check the preemptions until now, because later times and ids cannot be compared."""
        self.look_at_preemptions()
        self.first_preemption += len(list(self.preemptions()))

    # What must hold

    def look_for_holds(self) -> None:
        """Report jobs that Slurm holds because of a node list of the controller."""
        for key, shown in self.queue().items():
            held = shown.priority == 0 and shown.reason.strip("()") == BAD_CONSTRAINTS
            if not held or not shown.node_list or shown.state != PENDING:
                continue
            self.times_held[key] += 1
            asked = self.asks[key.partition("_")[0]].submission
            unseen = asked.extras is not NONE and not asked.request.opaque
            if self.times_held[key] == (HELD_UNSEEN if unseen else 0) + 1:
                self.find(f"job {key} is held for {shown.node_list}")

    def look_at_the_end(self) -> Mapping[str, Shown]:
        """Report, too, jobs taken for earlier ones, and preemptions for jobs that use no GPU."""
        self.look_at_ids()
        self.look_at_idle_pairs()
        return super().look_at_the_end()

    def look_at_idle_pairs(self) -> None:
        """Report jobs that were preempted for one which had been requeued while it used no GPU, and
        uses none."""
        for key, preemptor, at_s in self.preemptions() if self.site.setup.idle else ():
            runs = [run for run in self.world.sim.runs([preemptor], 0.0) if run.start_s is not None]
            ran_s = [run.elapsed_s for run in runs if (run.end_s or at_s) < at_s - LATEST_S]
            idle = preemptor in self.world.gpu_uses.idle
            if idle and max(ran_s, default=0.0) > 2 * IDLE_AFTER_S:
                self.find(f"job {key} was requeued for {preemptor}, which used no GPU before")

    def look_at_ids(self) -> None:
        """Report jobs that the ledger takes for earlier ones with the same id."""
        for key in self.world.jobs():
            record = self.world.cycles.job_store.accounts.of(key)
            submitted_s = self.world.own[key].submitted_s
            if record is not None and record.submitted_s != submitted_s:
                self.find(
                    f"job {key} was submitted at {submitted_s:.0f}, and is known as one "
                    f"submitted at {record.submitted_s:.0f}"
                )


def play(seed: int) -> InMemoryRound:
    """Play one round on the site of a seed."""
    random = Random(f"round {seed}")
    drawn = replace(site(seed), blocks=random.choice(((), (), (2,), (2, 4))))
    with closing(World(drawn.setup, drawn.in_memory())) as world:
        one = InMemoryRound(drawn, random, world=world)
        try:
            one.play()
        except AssertionError as error:
            one.find(str(error))
    one.counts.update({what: world.counts[what] for what in COUNTED})
    return one
