"""One test round on the in-memory Slurm: jobs arrive, the site changes, all jobs must finish."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from unittest import mock

from scripts.testbed.constants import replaced
from scripts.testbed.in_memory import InMemorySlurm
from scripts.testbed.in_memory.extras import NONE
from scripts.testbed.lifecycle import memory
from scripts.testbed.lifecycle.gpu_use import GpuUses
from scripts.testbed.sites.drawn import (
    CONSTANTS,
    IDLE_AFTER_S,
    MAX_GRACE_S,
    START_BOUND_S,
    Ask,
    ask,
    site,
)
from scripts.testbed.sites.round import DRAIN, FAIL, PENDING, RESUME, Round, Shown
from scripts.testbed.user_text import IN_MEMORY
from slurm_tiresias.controller.cycle import ENFORCE, Cycles
from slurm_tiresias.core.lifecycle.nomination import IN_USE_BOUNDS
from slurm_tiresias.model import JobState, JobStatus
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.store.ledger import Ledger

ANSWER_IN_TIME_S = "slurm_tiresias.controller.reconcile.ANSWER_IN_TIME_S"

EVENTS = (3, 14)
"""The least and most events in a round."""

QUIET_S = 12 * START_BOUND_S
"""A job that did not start is nominated again within eight times the start bound."""

LATEST_S = 5.0
"""Tolerance for preemptions, which are recorded when seen: the preemptor may have started then."""

SETTLES_WITHIN_S = 6000.0
STARTS_IN_S = 2.0
"""How long slurmctld takes to start: no job is submitted within a second of an earlier one with its
id."""


LONGEST_NOMINATION_S = MAX_GRACE_S + IN_USE_BOUNDS * START_BOUND_S + LATEST_S
BAD_CONSTRAINTS = "BadConstraints"
HELD_UNSEEN = 1
"""How often a job may be held for a node list if Slurm does not show that its request is opaque:
Slurm may reject the first list; the next cycle removes it, and no other is written."""


@dataclass
class InMemoryRound(Round):
    """A round on the in-memory Slurm, with what only the memory of Slurm and controller shows."""

    sim: InMemorySlurm = field(kw_only=True)
    cycles: Cycles = field(kw_only=True)
    ledger: Ledger = field(kw_only=True)
    gpu_uses: GpuUses = field(kw_only=True)
    times_held: Counter[str] = field(default_factory=Counter)
    first_preemption: int = 0
    """The first row of the ledger's preemptions since times and ids were last broken off."""
    noted_requeues: int = 0

    quiet_s = QUIET_S
    settles_within_s = SETTLES_WITHIN_S
    early_s, late_s = LATEST_S, 0.0

    @property
    def now_s(self) -> float:
        return self.sim.clock.now_s

    def alive(self, *states: JobState) -> list[JobStatus]:
        jobs = self.sim.observe().jobs
        return [j for j in jobs if j.state is not None and (not states or j.state in states)]

    def queue(self) -> dict[str, Shown]:
        return {
            job.key: Shown(
                *(job.slurm_state, job.reason, job.priority, job.spec.required_node_list)
            )
            for job in self.alive()
        }

    def pause(self) -> None:
        self.cycle(10.0)

    def send(self, wanted: Ask) -> str:
        key = self.sim.submit(wanted.submission)
        for one in [one for one in self.times_held if one.partition("_")[0] == key]:
            del self.times_held[one]
        return key

    def set_node(self, name: str, state: str) -> None:
        act = {DRAIN: self.sim.drain, RESUME: self.sim.resume_node, FAIL: self.sim.fail_node}
        act[state](name)

    def set_epilogs(self, name: str, hang: bool) -> None:
        self.sim.let_epilogs_hang(name, hang=hang)

    def change_job(self, what: str, key: str) -> None:
        getattr(self.sim, what)(key)

    def kill_slurmctld(self, lose_state: bool) -> None:
        self.break_off()
        if lose_state:
            self.sim.lose_state()
        else:
            self.sim.restart()
            for job in self.alive(JobState.PENDING):
                if job.spec.required_node_list and self.times_held[job.key]:
                    # The list for which it was held has come back, and so does the hold.
                    self.times_held[job.key] -= 1
        self.sim.advance(STARTS_IN_S)

    def stop_controller(self) -> None:
        self.cycles.take_lists_back()

    def leave_alone(self) -> None:
        self.cycles.hand_back()
        for _ in range(20):
            self.sim.advance(10.0)

    def preemptions(self) -> Iterable[tuple[str, str, float]]:
        query = (
            "SELECT key, for_job, at_s FROM preemptions WHERE for_job != '' AND rowid >= ? "
            "ORDER BY rowid"
        )
        return self.ledger._database.execute(query, (self.first_preemption,)).fetchall()

    def starts_s(self, key: str) -> Iterable[float]:
        return [run.start_s for run in self.sim.runs([key], 0.0) if run.start_s is not None]

    # Events

    def cycle(self, seconds: float) -> None:
        """Let time pass; cycles follow quickly while starts or preemptions are under way."""
        until_s, unsettled = self.now_s + seconds, True
        while self.now_s < until_s:
            self.sim.advance(min(1.0 if unsettled else 5.0, until_s - self.now_s))
            self.counts["cycles"] += 1
            self.look_for_holds()
            if self.site.idle:
                self.gpu_uses.tell({job.key: job for job in self.sim.observe().jobs})
            left = self.left_by_themselves()
            unsettled = self.cycles.run(ENFORCE).outcome.unsettled
            self.look_at_lifecycles(left)

    def submit_idle_ones(self) -> None:
        """Submit two jobs with the same request, which use none of their GPUs."""
        wanted = ask(self.site, self.random)
        for _ in range(2):
            self.gpu_uses.idle.update(self._keys_of(self.submit_one(wanted)))

    def step_clock(self) -> None:
        seconds = self.random.choice((-3600.0, -20.0, 20.0, 3600.0))
        self.note(f"clock {seconds:+g} s")
        self.changed_s.append(self.now_s)
        self.break_off()
        self.sim.step_clock(seconds)
        self.changed_s.append(self.now_s)

    def break_off(self) -> None:
        """Check the preemptions until now, because later times and ids cannot be compared."""
        self.look_at_preemptions()
        self.look_at_starts()
        query = "SELECT IFNULL(MAX(rowid), 0) + 1 FROM preemptions"
        (self.first_preemption,) = self.ledger._database.execute(query).fetchone()

    # What must hold

    def left_by_themselves(self) -> Iterable[tuple[str, float]]:
        """Return the signalled runs that have requeued themselves since the last cycle, and not
        because of their nodes."""
        runs = self.sim.requeued_themselves[self.noted_requeues :]
        self.noted_requeues += len(runs)
        down = any("DOWN" in node.state for node in self.sim.observe().nodes)
        return [] if down else [run for run in runs if memory.has_signal(self.cycles, run[0])]

    def look_at_lifecycles(self, left: Iterable[tuple[str, float]]) -> None:
        """Report victims that left by themselves and do not count, and nominations that last."""
        for run in left:
            self.counts["requeues by themselves"] += 1
            if run not in dict(memory.preempted_runs(self.cycles)):
                self.find(f"{run} requeued itself on its signal, which does not count")
        for overdue in memory.overdue_nominations(self.cycles, self.now_s, LONGEST_NOMINATION_S):
            self.find(overdue)

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

    def _keys_of(self, key: str) -> Iterable[str]:
        tasks = self.asks[key].submission.array
        return [f"{key}_{task}" for task in tasks] or [key]

    def look_at_idle_pairs(self) -> None:
        """Report jobs that were preempted for one which had been requeued while it used no GPU, and
        uses none."""
        if not self.site.idle:
            return
        for key, preemptor, at_s in self.preemptions():
            runs = [run for run in self.sim.runs([preemptor], 0.0) if run.start_s is not None]
            ran_s = [run.elapsed_s for run in runs if (run.end_s or at_s) < at_s - LATEST_S]
            if preemptor in self.gpu_uses.idle and max(ran_s, default=0.0) > 2 * IDLE_AFTER_S:
                self.find(f"job {key} was requeued for {preemptor}, which used no GPU before")

    def look_at_starts(self) -> None:
        """Count preemptions whose preemptor has a request that is not opaque, and did not start
        soon although nothing changed.

        Some are legitimate: Slurm may start a third job while an epilog runs, and that job may
        share a limit with the preemptor.
        """
        for _, preemptor, at_s in self.preemptions():
            asked = self.asks[preemptor.partition("_")[0]].submission
            until_s = at_s + 3 * START_BOUND_S
            changed = any(at_s - LATEST_S < c < until_s for c in self.changed_s)
            if changed or asked.extras is not NONE:
                continue
            runs = self.sim.runs([preemptor], 0.0)
            starts_s = (run.start_s for run in runs)
            began = any(s is not None and at_s - LATEST_S <= s <= until_s for s in starts_s)
            if not began and all(run.start_s is not None for run in runs):
                self.counts["in vain"] += 1

    def look_at_ids(self) -> None:
        """Report jobs that the ledger takes for earlier ones with the same id."""
        for job in self.sim.observe().jobs:
            record = self.cycles.job_store.accounts.of(job.key)
            submitted_s = math.floor(self.submitted_s[job.key.partition("_")[0]])
            if record is not None and record.submitted_s != submitted_s:
                self.find(
                    f"job {job.key} was submitted at {submitted_s:.0f}, and is known as one "
                    f"submitted at {record.submitted_s:.0f}"
                )


HAPPENINGS = (
    *("submit",) * 20,
    *("submit_several",) * 4,
    *("drain", "resume", "resume", "fail", "hold", "cancel") * 2,
    *("forget", "forget", "lose_state", "step_clock"),
    *("submit_idle_ones", "hang") * 2,
    *("suspend", "suspend", "resume-job") * 2,
)


@cache
def _profiles() -> ProfileStore:
    # Has only the built-in profiles and learns nothing here, so it can be shared.
    return ProfileStore(None)


def play(seed: int) -> InMemoryRound:
    """Play one round on the site of a seed."""
    random = Random(f"round {seed}")
    drawn = replace(site(seed), blocks=random.choice(((), (), (2,), (2, 4))))
    folder = Path(tempfile.mkdtemp(prefix="sites-", dir=IN_MEMORY))
    sim = InMemorySlurm(
        drawn.shown_nodes,
        drawn.partitions,
        drawn.settings,
        drives={one.name: one.drives for one in drawn.nodes},
    )
    config = drawn.config
    try:
        with (
            mock.patch(ANSWER_IN_TIME_S, 60.0),
            replaced(CONSTANTS),
            closing(Ledger(folder / "ledger")) as ledger,
        ):
            profiler = Profiler(_profiles(), config)
            gpu_uses = GpuUses(folder / "collect", sim.clock)
            cycles = Cycles(
                *(sim, sim.cluster(), ledger, config, profiler), gpu_use=gpu_uses.folder()
            )
            one = InMemoryRound(
                drawn, random, sim=sim, cycles=cycles, ledger=ledger, gpu_uses=gpu_uses
            )
            for _ in range(random.randint(*EVENTS)):
                one.happen(random.choice(HAPPENINGS))
                one.cycle(random.choice((0.5, 1.0, 3.0, 10.0)))
            one.let_all_run()
            one.settle()
            one.look_at_ids()
            one.look_at_the_end()
            one.look_at_preemptions()
            one.look_at_idle_pairs()
            one.look_at_starts()
            keys = [key for asked in one.asks for key in one._keys_of(asked)]
            one.counts["starts"] += len(sim.runs(keys, 0.0))
            return one
    finally:
        shutil.rmtree(folder)
