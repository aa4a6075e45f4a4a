"""One test round on the in-memory Slurm: jobs arrive, the site changes, all jobs must finish."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from unittest import mock

from scripts.testbed.in_memory import InMemorySlurm
from scripts.testbed.in_memory.extras import NONE
from scripts.testbed.lifecycle import memory
from scripts.testbed.lifecycle.gpu_use import GpuUses
from scripts.testbed.sites.drawn import (
    IDLE_AFTER_S,
    MAX_GRACE_S,
    START_BOUND_S,
    Ask,
    Site,
    ask,
    site,
    told,
)
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

MOST_CYCLES = 600
STARTS_IN_S = 2.0
"""How long slurmctld takes to start: no job is submitted within a second of an earlier one with its
id."""


LONGEST_NOMINATION_S = MAX_GRACE_S + IN_USE_BOUNDS * START_BOUND_S + LATEST_S
BAD_CONSTRAINTS = "BadConstraints"
HELD_UNSEEN = 1
"""How often a job may be held for a node list if Slurm does not show that its request is opaque:
Slurm may reject the first list; the next cycle removes it, and no other is written."""


@dataclass(slots=True)
class Round:
    """A running site, with its log and the errors found."""

    site: Site
    random: Random
    sim: InMemorySlurm
    cycles: Cycles
    ledger: Ledger
    gpu_uses: GpuUses
    course: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    asks: dict[str, Ask] = field(default_factory=dict)
    """By job or array id."""
    changed_s: list[float] = field(default_factory=list)
    """Times at which the site or a job's request was changed."""
    times_held: Counter[str] = field(default_factory=Counter)
    user_holds: set[str] = field(default_factory=set)
    submitted_s: dict[str, float] = field(default_factory=dict)
    """By job or array id, by Slurm's clock."""
    first_preemption: int = 0
    """The first row of the ledger's preemptions since times and ids were last broken off."""
    noted_requeues: int = 0

    @property
    def now_s(self) -> float:
        return self.sim.clock.now_s

    def note(self, what: str) -> None:
        self.course.append(f"{self.now_s:.0f}: {what}")
        self.counts[what.split()[0]] += 1

    def find(self, what: str) -> None:
        self.found.append(f"{self.now_s:.0f}: {what}")

    def alive(self, *states: JobState) -> list[JobStatus]:
        jobs = self.sim.observe().jobs
        return [j for j in jobs if j.state is not None and (not states or j.state in states)]

    def ask_of(self, job: JobStatus) -> Ask:
        return self.asks[job.key.partition("_")[0]]

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
        for key, one in self.cycles.job_store.lifecycles.nominations.items():
            since_s = one.nominated_s if one.free_s is None else one.free_s
            if since_s is not None and self.now_s - since_s > LONGEST_NOMINATION_S:
                self.find(f"job {key} has been nominated since {since_s:.0f}")

    def look_for_holds(self) -> None:
        """Report jobs that Slurm holds because of a node list of the controller."""
        for job in self._held_for_nodes():
            self.times_held[job.key] += 1
            asked = self.ask_of(job).submission
            unseen = asked.extras is not NONE and not asked.request.opaque
            if self.times_held[job.key] == (HELD_UNSEEN if unseen else 0) + 1:
                self.find(f"job {job.key} is held for {job.spec.required_node_list}")

    def _held_for_nodes(self) -> list[JobStatus]:
        return [
            job
            for job in self.alive(JobState.PENDING)
            if job.held
            and job.reason.strip("()") == BAD_CONSTRAINTS
            and job.spec.required_node_list
        ]

    def submit(self) -> None:
        self._submit(ask(self.site, self.random))

    def submit_several(self) -> None:
        """Submit several jobs with the same request."""
        wanted = ask(self.site, self.random)
        for _ in range(self.random.randint(2, 5)):
            self._submit(wanted)

    def submit_idle_ones(self) -> None:
        """Submit two jobs with the same request, which use none of their GPUs."""
        wanted = ask(self.site, self.random)
        for _ in range(2):
            self.gpu_uses.idle.update(self._keys_of(self._submit(wanted)))

    def hang(self) -> None:
        """Let no epilog on a node end."""
        name = self.random.choice(self.site.nodes).name
        self.note(f"hang {name}")
        self.sim.let_epilogs_hang(name, hang=True)
        self.changed_s.append(self.now_s)

    def _submit(self, wanted: Ask) -> str:
        key = self.sim.submit(wanted.submission)
        self.asks[key] = wanted
        self.counts["reused ids"] += key in self.submitted_s
        self.submitted_s[key] = float(math.floor(self.now_s))
        for one in [one for one in self.times_held if one.partition("_")[0] == key]:
            del self.times_held[one]
        self.note(f"submit {key} {wanted}")
        return key

    def drain(self) -> None:
        name = self.random.choice(self.site.nodes).name
        self.note(f"drain {name}")
        self.sim.drain(name)
        self.changed_s.append(self.now_s)

    def resume(self) -> None:
        name = self.random.choice(self.site.nodes).name
        self.note(f"resume {name}")
        self.sim.resume_node(name)
        self.changed_s.append(self.now_s)

    def fail(self) -> None:
        name = self.random.choice(self.site.nodes).name
        self.note(f"fail {name}")
        self.sim.fail_node(name)
        self.changed_s.append(self.now_s)

    def hold(self) -> None:
        waiting = self.alive(JobState.PENDING)
        if waiting:
            key = self.random.choice(waiting).key
            self.note(f"hold {key}")
            self.sim.hold(key)
            self.user_holds.add(key)
            self.changed_s.append(self.now_s)

    def cancel(self) -> None:
        jobs = self.alive()
        if jobs:
            key = self.random.choice(jobs).key
            self.note(f"cancel {key}")
            self.sim.cancel(key)

    def forget(self) -> None:
        """Kill slurmctld, which forgets what it has not saved and gives those ids out again."""
        self._break_off("forget")
        self.sim.restart()
        for job in self.alive(JobState.PENDING):
            if job.spec.required_node_list and self.times_held[job.key]:
                # The list for which it was held has come back, and so does the hold.
                self.times_held[job.key] -= 1
        self._start_slurmctld()

    def lose_state(self) -> None:
        """Kill slurmctld and lose its state: ids begin again, and slurmdbd keeps its rows."""
        self._break_off("lose-state")
        self.sim.lose_state()
        self._start_slurmctld()

    def step_clock(self) -> None:
        seconds = self.random.choice((-3600.0, -20.0, 20.0, 3600.0))
        self._break_off(f"clock {seconds:+g} s")
        self.sim.step_clock(seconds)
        self.changed_s.append(self.now_s)

    def _start_slurmctld(self) -> None:
        self.sim.advance(STARTS_IN_S)
        self.user_holds &= {job.key for job in self.alive()}
        self.changed_s.append(self.now_s)

    def _break_off(self, what: str) -> None:
        """Check the preemptions until now, because later times and ids cannot be compared."""
        self.note(what)
        self.changed_s.append(self.now_s)
        self.look_at_preemptions()
        self.look_at_starts()
        query = "SELECT IFNULL(MAX(rowid), 0) + 1 FROM preemptions"
        (self.first_preemption,) = self.ledger._database.execute(query).fetchone()

    def let_all_run(self) -> None:
        """Resume all nodes and release the jobs that users hold."""
        for node in self.site.nodes:
            self.sim.resume_node(node.name)
            self.sim.let_epilogs_hang(node.name, hang=False)
        for key in self.user_holds & {job.key for job in self.alive()}:
            self.sim.release(key)
        self.changed_s.append(self.now_s)

    # Invariants

    def settle(self) -> None:
        """Run cycles until no job has started or ended for a while."""
        quiet_since_s, before = self.now_s, self._progress()
        for _ in range(MOST_CYCLES):
            if not self.alive() or self.now_s - quiet_since_s > QUIET_S:
                return
            self.cycle(10.0)
            progress = self._progress()
            if progress != before or self.alive(JobState.RUNNING):
                quiet_since_s, before = self.now_s, progress
        self.find("the cluster does not come to rest")

    def _progress(self) -> tuple[int, int]:
        rows = self.sim.runs(list(self._keys()), 0.0)
        return len(rows), len(self.alive())

    def _keys(self) -> Iterator[str]:
        for key in self.asks:
            yield from self._keys_of(key)

    def _keys_of(self, key: str) -> Iterable[str]:
        tasks = self.asks[key].submission.array
        return [f"{key}_{task}" for task in tasks] or [key]

    def look_at_the_end(self) -> None:
        """Stop the controller; report node lists that it left, and jobs that start only now."""
        self.cycles.take_lists_back()
        for job in self.alive(JobState.PENDING):
            if job.spec.required_node_list:
                self.find(f"job {job.key} is left with {job.spec.required_node_list}")
        waited = {job.key: job for job in self.alive(JobState.PENDING)}
        self.cycles.release()
        for _ in range(20):
            self.sim.advance(10.0)
        for key, job in waited.items():
            now = next((j for j in self.sim.observe().jobs if j.key == key), None)
            if now is None or now.state is not JobState.PENDING:
                why = f"{job.reason}, {job.priority}"
                self.find(f"job {key} ({self.ask_of(job)}) waited ({why}) for no controller to run")

    def look_at_preemptions(self) -> None:
        """Report victims preempted repeatedly for a preemptor that had not started, although
        neither the site nor a request had changed."""
        last: dict[tuple[str, str], float] = {}
        for key, preemptor, at_s in self._preemptions():
            self.counts["preemptions"] += 1
            before_s = last.get((key, preemptor))
            last[key, preemptor] = at_s
            if before_s is None or any(before_s - LATEST_S < c <= at_s for c in self.changed_s):
                continue
            starts_s = (run.start_s for run in self.sim.runs([preemptor], 0.0))
            if not any(s is not None and before_s - LATEST_S <= s <= at_s for s in starts_s):
                self.find(
                    f"job {key} was requeued at {before_s:.0f} and {at_s:.0f} for {preemptor}, "
                    "which had not started"
                )

    def look_at_idle_pairs(self) -> None:
        """Report jobs that were preempted for one which had been requeued while it used no GPU, and
        uses none."""
        if not self.site.idle:
            return
        for key, preemptor, at_s in self._preemptions():
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
        for _, preemptor, at_s in self._preemptions():
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
            submitted_s = self.submitted_s[job.key.partition("_")[0]]
            if record is not None and record.submitted_s != submitted_s:
                self.find(
                    f"job {job.key} was submitted at {submitted_s:.0f}, and is known as one "
                    f"submitted at {record.submitted_s:.0f}"
                )

    def _preemptions(self) -> Iterable[tuple[str, str, float]]:
        query = (
            "SELECT key, for_job, at_s FROM preemptions WHERE for_job != '' AND rowid >= ? "
            "ORDER BY rowid"
        )
        return self.ledger._database.execute(query, (self.first_preemption,)).fetchall()

    def told(self) -> str:
        """Return the errors found, with the site and the log of events."""
        return "\n".join([*self.found, f"site {self.site.seed}", told(self.site), *self.course])


HAPPENINGS = (
    *(Round.submit,) * 20,
    *(Round.submit_several,) * 4,
    *(Round.drain, Round.resume, Round.resume, Round.fail, Round.hold, Round.cancel) * 2,
    *(Round.forget, Round.forget, Round.lose_state, Round.step_clock),
    *(Round.submit_idle_ones, Round.hang) * 2,
)


@cache
def _profiles() -> ProfileStore:
    # Has only the built-in profiles and learns nothing here, so it can be shared.
    return ProfileStore(None)


def play(seed: int) -> Round:
    """Play one round on the site of a seed."""
    drawn = site(seed)
    random = Random(f"round {seed}")
    folder = Path(tempfile.mkdtemp(prefix="sites-", dir=IN_MEMORY))
    sim = InMemorySlurm(
        drawn.shown_nodes,
        drawn.partitions,
        drawn.settings,
        drives={one.name: one.drives for one in drawn.nodes},
    )
    config = drawn.config
    if drawn.idle:
        (folder / "collect").mkdir()
        config = replace(
            config, profiler=replace(config.profiler, collect_dir=str(folder / "collect"))
        )
    try:
        with mock.patch(ANSWER_IN_TIME_S, 60.0), closing(Ledger(folder / "ledger")) as ledger:
            profiler = Profiler(_profiles(), config)
            gpu_uses = GpuUses(folder / "collect", sim.clock)
            cycles = Cycles(
                *(sim, sim.cluster(), ledger, config, profiler), gpu_use=gpu_uses.folder()
            )
            one = Round(drawn, random, sim, cycles, ledger, gpu_uses)
            for _ in range(random.randint(*EVENTS)):
                random.choice(HAPPENINGS)(one)
                one.cycle(random.choice((0.5, 1.0, 3.0, 10.0)))
            one.let_all_run()
            one.settle()
            one.look_at_ids()
            one.look_at_the_end()
            one.look_at_preemptions()
            one.look_at_idle_pairs()
            one.look_at_starts()
            one.counts["starts"] += len(sim.runs(list(one._keys()), 0.0))
            return one
    finally:
        shutil.rmtree(folder)
