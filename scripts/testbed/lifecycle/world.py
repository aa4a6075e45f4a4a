"""A controller on the in-memory Slurm, the events that happen to both, and the invariants.

Depends on ``Cycles``, on opening and closing a ledger, on the ``Slurm`` protocol and on the
operations of the in-memory Slurm. All access to the controller's memory is in ``memory.py``.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NoReturn, Protocol, cast
from unittest import mock

from scripts.testbed.constants import replaced
from scripts.testbed.in_memory import InMemorySlurm, Submission
from scripts.testbed.in_memory.records import BAD_CONSTRAINTS, SUSPENDED
from scripts.testbed.in_memory.slurmctld import Settings
from scripts.testbed.lifecycle import memory
from scripts.testbed.lifecycle.faulty import (
    Fault,
    FaultyLedger,
    FaultySlurm,
    Killed,
    Signalled,
    told,
)
from scripts.testbed.lifecycle.gpu_use import GpuUses
from scripts.testbed.lifecycle.reports import NODE, Reports
from scripts.testbed.user_text import IN_MEMORY
from slurm_tiresias.config import parse
from slurm_tiresias.controller import bands
from slurm_tiresias.controller.act import WriteSummary
from slurm_tiresias.controller.cycle import ENFORCE, PAUSED, Cycles
from slurm_tiresias.controller.prospects import HELD_BY_OWNER, why_not_eligible
from slurm_tiresias.core.features.failed_runs import EARLY_S
from slurm_tiresias.core.features.idle_gpus import LATE_AFTER_S, MOST_IN_A_ROW
from slurm_tiresias.core.lifecycle.nomination import IN_USE_BOUNDS
from slurm_tiresias.core.lifecycle.preemption import Cause
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.ha.lease import FileLease
from slurm_tiresias.model import ASK_SIGNAL, Amount, JobState, JobStatus, Node, Request
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.progress.reported_run import LEAST_QUIET_S
from slurm_tiresias.progress.saving import CLOCKS_DIFFER_S
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.failures import REQUEUE
from slurm_tiresias.settings.idle_gpus import LEAVE
from slurm_tiresias.slurm.hostlist import refolded
from slurm_tiresias.slurm.protocol import Partition, Requeue, Restart, Slurm, Update
from slurm_tiresias.store.terms import inherited_ledger, newest_ledger, stamps

INTERVAL_S = 10.0
START_BOUND_S = 30.0
RETRY_AFTER_S = 60.0
MIN_RUN_S = 20.0
MAX_GRACE_S = 40.0
SAVE_GRACE_S = 25.0
CONSTANTS: Mapping[str, float] = {
    "GITTINS_SAMPLES": 2,
    "LONGEST_MIN_RUN_S": 3 * MIN_RUN_S,
    "RETRY_AFTER_S": RETRY_AFTER_S,
    "SAVE_GRACE_S": SAVE_GRACE_S,
    "START_BOUND_S": START_BOUND_S,
}
IDLE_AFTER_S, LEAVE_AFTER_S = 20.0, 45.0
"""All times are short, so that everything happens within a few steps."""

ANSWER_IN_TIME_S = "slurm_tiresias.controller.reconcile.ANSWER_IN_TIME_S"
"""Patched because on a busy machine the thread that asks accounting may sometimes be late."""

HISTORY_EVERY_S = "slurm_tiresias.controller.cycle.HISTORY_EVERY_S"

MOST_CYCLES = 150
"""A cluster without events must come to rest within this many cycles."""

QUIET_CYCLES, QUIET_S = 7, 20.0
"""The cluster is at rest if no job starts or ends in this many cycles, this far apart."""

BEHIND_S = 1.0
"""Allowed difference between ledger and accounting per run, since both keep whole seconds."""

MOST_TERMS = 4
"""Bounds the number of failovers, because they are the slowest events."""

MOST_OUTAGE_S = 600.0
"""If accounting was out for longer, service is not compared: the controller stops asking about a
run after a quarter of an hour."""

NODES, GPUS = ("n1", "n2", "n3"), 4
MANAGED, SMALL, OTHER = "gpu", "small", "other"
PARTITIONS = (MANAGED, Partition(SMALL, frozenset(NODES[1:]), True), OTHER)
CLUSTER = ""
"""Stands for all jobs in place of a job's key."""

SLURM = Settings(epilog_s=1.0)
FEATURES = {"n1": frozenset({"fast"})}
LIMIT_S = 86_400.0
DIES_IN_S = 2.0

STARTS_IN_S = 2.0
"""How long slurmctld takes to start: no job is submitted within a second of an earlier one with its
id."""

SAVED_BEFORE_S = 3.0
"""slurmctld saves its state every few seconds: it forgets this much when it is killed."""

COUNTED_AS = {
    Cause.FOR_JOB: "preemptions",
    Cause.IDLE_GPUS: "requeues for idle GPUs",
    Cause.HUNG: "requeues of hung jobs",
}
OBSTACLE = "Licenses"
LATE_S = 45.0
RESERVED_S = 150.0


@dataclass(frozen=True, slots=True)
class Setup:
    """The configuration of the controller and of the cluster."""

    write: str = "pinned"
    signal: str = "USR1"
    grace_s: int = 15
    accounting: bool = True
    policy: str = "2d-las"
    estimates: tuple[str, ...] = ("reports",)
    budget_share: float = 0.0
    idle: str = ""
    """``idle_gpus.action``; "" if the GPUs are not sampled."""
    hung: str = "flag"
    managed: tuple[str, ...] = (MANAGED, SMALL)

    @property
    def config(self) -> Config:
        preemption = {
            "checkpoint": f"{self.signal}@{self.grace_s}" if self.signal else "",
            "min_run_s": MIN_RUN_S,
            "budget_share": self.budget_share,
            "max_grace_s": MAX_GRACE_S,
        }
        policy = {
            "name": self.policy,
            "estimates": list(self.estimates),
            "thresholds_gpu_s": [100, 400],
        }
        idle_gpus: dict[str, object] = {}
        if self.idle:
            idle_gpus = {"after_s": IDLE_AFTER_S, "action": self.idle}
        if self.idle == LEAVE:
            idle_gpus["leave_after_s"] = LEAVE_AFTER_S
        return parse(
            {
                "idle_gpus": idle_gpus,
                "failures": {"hung": self.hung},
                # Only tells that there is a folder: each world has its own.
                "profiler": {"collect_dir": "/nonexistent/collect"} if self.idle else {},
                "policy": policy,
                "manage": {"partitions": list(self.managed)},
                "preemption": preemption,
                "priority": {"write": self.write},
                "controller": {"interval_s": INTERVAL_S},
            }
        )


DEFAULT = Setup()


class Asked(Protocol):
    """The request of one job by its user."""

    @property
    def submission(self) -> Submission: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """The request of one job by its user."""

    gpus: int = 1
    nodes: int = 1
    user: str = "ann"
    node_list: str = ""
    features: str = ""
    requeue: bool = True
    tasks: int = 0
    array_limit: int | None = None
    after: str = ""
    """The job whose end it depends on."""
    begin_in_s: float = 0.0
    partitions: tuple[str, ...] = (MANAGED,)
    batch: bool = True
    checkpoint: str = ""
    """The checkpoint signal and grace that its user asked for: ``USR2@30``."""
    requeues_itself_in_s: float | None = None
    """How long after its checkpoint signal its script requeues it; None: it does not."""
    restarts: int = 0
    """How many restarts after failures its user asked for."""

    @property
    def submission(self) -> Submission:
        request = Request(
            Amount({"": self.gpus}, cpus=1),
            chunks=self.nodes,
            max_chunks_per_node=1,
            min_nodes=self.nodes,
            max_nodes=self.nodes,
            features=self.features,
        )
        hints = [f"checkpoint={self.checkpoint}"] if self.checkpoint else []
        hints += [f"restart={self.restarts}"] if self.restarts else []
        return Submission(
            request,
            user=self.user,
            name="train",
            partitions=self.partitions,
            comment=f"tiresias:{','.join(hints)}" if hints else "",
            dies_in_s=DIES_IN_S,
            array=tuple(range(self.tasks)),
            array_limit=self.array_limit,
            dependency=f"afterany:{self.after.partition('_')[0]}" if self.after else "",
            begin_in_s=self.begin_in_s or None,
            node_list=self.node_list,
            requeues_itself_in_s=self.requeues_itself_in_s,
            time_limit_s=LIMIT_S,
            requeue=self.requeue,
            batch=self.batch,
        )


@dataclass(frozen=True, slots=True)
class Preemption:
    """A requeue that the controller sent, and its preemptor."""

    key: str
    preemptor: str
    at_s: float
    step: int


@dataclass(slots=True)
class Own:
    """What a job's user has requested, and which outcomes the events so far allow."""

    submission: Submission
    node_list: str = ""
    may_end: set[str] = field(default_factory=set)
    ended: bool = False
    reported: bool = False
    """Whether it has reported steps, which may be progress."""
    restarted: set[int] = field(default_factory=set)
    """The failed runs, by restarts, after which the controller has restarted it."""
    pinned: bool = False
    """Whether an administrator has set its priority."""
    managed: bool = True
    """False once it may have run unmanaged, so that its service was not counted."""
    earlier_rows: frozenset[object] = frozenset()
    """Submission and start of each run that accounting has of earlier jobs with its id."""
    submitted_s: float = 0.0
    clouded: bool = False
    """Whether accounting has wrong times for a run, because Slurm's clock was set during it, or
    slurmctld forgot it."""

    def hint(self, name: str) -> str:
        """Return what its user's comment says of this; "" if nothing."""
        found = re.search(rf"\b{name}=([^,]+)", self.submission.comment)
        return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Superseded:
    """A controller that was stopped when another one took over, with its open ledger and driver."""

    cycles: Cycles
    ledger: FaultyLedger
    slurm: FaultySlurm


class World:
    """An in-memory Slurm, its controller, and a record of all events."""

    def __init__(self, setup: Setup = DEFAULT, sim: InMemorySlurm | None = None) -> None:
        self.setup = setup
        self.config = setup.config
        self.folder = Path(tempfile.mkdtemp(prefix="lifecycle-", dir=IN_MEMORY))
        self._patched = ExitStack()
        self._patched.enter_context(replaced(CONSTANTS))
        self._patched.enter_context(mock.patch(ANSWER_IN_TIME_S, 60.0))
        self._patched.enter_context(mock.patch(HISTORY_EVERY_S, 30.0))
        self.sim = sim or _three_nodes()
        self.reports = Reports(self.folder / "collect", self.sim.clock)
        self.gpu_uses = GpuUses(self.folder / "collect", self.sim.clock)
        self.own_causes: dict[tuple[str, float], Cause] = {}
        """The causes of requeues that were sent for no other job, by job and start of the run."""
        self.in_a_row: Counter[str] = Counter()
        """How often each job was requeued for idle GPUs since it last used a GPU by the samples."""
        self.course: list[str] = [f"World({setup})"]
        """The log of all events, in words."""
        self.counts: Counter[str] = Counter()
        self.own: dict[str, Own] = {}
        self.preemptions: list[Preemption] = []
        self.ended_runs: Counter[tuple[str, float]] = Counter()
        """How often the controller has requeued each run, by job and start time."""
        self.disturbed: dict[str, int] = {}
        """The step of the last event that affected a job, or ``CLUSTER``."""
        self.outage_s = 0.0
        self.stepped = False
        """Whether Slurm's clock was set, or its memory lost, so that times are not comparable."""
        self.clock_was_set = False
        self.listed: frozenset[str] = frozenset()
        """Jobs without a nomination that had a node list of the controller after the last good
        cycle."""
        self.mode = ENFORCE
        self.lease_clock_s = 0.0
        """The clock of the lease, which advances only when a controller is stopped until its lease
        ends and another one takes over."""
        self.lease = self._lease()
        self.superseded: Superseded | None = None
        self.obstructed: set[str] = set()
        self.garbled: set[str] = set()
        self.saved_lists: dict[str, str] = {}
        """Each job's node list of its user when slurmctld last saved its state."""
        self.broken = False
        """Whether an invariant was violated, so that no more checks are useful."""
        self.noted_requeues = 0
        self.unseen: list[tuple[str, float]] = []
        """The runs, by job and start time, that have requeued themselves since the last good cycle.
        """
        self.noted_unseen = 0
        self.known_idle_s: dict[tuple[str, float], float] = {}
        """By run, for how long the controller knows that its job has used no GPU."""
        self.when_it_woke: object = None
        """The state of everything a controller could change when a stopped one continued."""
        assert self.lease.take()
        self.slurm = FaultySlurm(
            self.sim.reached_by(self.lease),
            setup.accounting,
            before_requeue=self._check_requeue,
            restarted=self._check_restart,
            stopped=self._taken_over,
        )
        self.open()

    @property
    def now_s(self) -> float:
        return self.sim.clock.now_s

    @property
    def step(self) -> int:
        return len(self.course)

    @property
    def signalled(self) -> Sequence[str]:
        """The jobs that received the controller's signal, the latest last."""
        return [one.key for one in self.slurm.signalled]

    def jobs(self) -> dict[str, JobStatus]:
        """All jobs as Slurm shows them, independent of faults in the controller's view."""
        return {job.key: job for job in self.sim.observe().jobs}

    def alive(self, *states: JobState) -> list[str]:
        """The jobs that have not ended (in these states), in order of submission."""
        jobs = self.jobs().values()
        return [j.key for j in jobs if j.state is not None and (not states or j.state in states)]

    def note(self, what: str, *keys: str) -> None:
        """Log an event, and the jobs that it affects."""
        self.course.append(f"{self.now_s:.0f}: {what}")
        self.counts[what.split()[0]] += 1
        for key in keys:
            self.disturbed[key] = self.step

    # The controller

    def open(self) -> None:
        """Start a controller from the ledger."""
        self.ledger = FaultyLedger(newest_ledger(self.folder))
        self.ledger.slurm = self.slurm
        profiler = Profiler(_profiles(), self.config)
        self.cycles = Cycles(
            *(cast(Slurm, self.slurm), self.slurm.cluster(), self.ledger, self.config, profiler),
            progress=self.reports.folder(),
            gpu_use=self.gpu_uses.folder(),
        )

    def close(self) -> None:
        rows = self.sim.runs(list(self.own), 0.0)
        self.counts["starts"] += sum(row.start_s is not None for row in rows)
        self._patched.close()
        self.ledger.close()
        self._bury()
        shutil.rmtree(self.folder)

    def restart(self) -> None:
        self.note("restart of the controller")
        self.ledger.close()
        self.open()

    def _lease(self) -> FileLease:
        return FileLease(self.folder, "head", INTERVAL_S, lambda: self.lease_clock_s)

    def failover(self) -> None:
        """Let another controller take over; the previous one is only stopped."""
        self.note("failover to another controller")
        before, lease = self.slurm, self._lease()
        if lease.take():
            self.violated("a lease was taken while another controller held it")
        self.lease_clock_s += lease.lease_s
        if not lease.take():
            self.violated("the lease of a controller that was stopped was not to be had")
        self._bury()
        self.superseded = Superseded(self.cycles, self.ledger, before)
        self.lease = lease
        inherited_ledger(self.folder, lease.term)
        self.slurm = replace(
            before,
            slurm=self.sim.reached_by(lease),
            fault=None,
            hit=None,
            effects=0,
            sent=[],
            after_observation=lambda: None,
        )
        before.before_requeue = lambda _write: None
        self.open()

    def _bury(self) -> None:
        """Discard the superseded controller, which then never continues."""
        if self.superseded:
            self.superseded.ledger.close()
        self.superseded = None

    def _taken_over(self) -> None:
        """Let another controller take over and run a cycle while this one is stopped."""
        if self.lease.term < MOST_TERMS:
            self.failover()
            self.cycle()
            self.when_it_woke = self._all_there_is()

    def wake(self) -> None:
        """Let the superseded controller continue and run a cycle, which must change nothing."""
        if self.superseded is None:
            return
        self.note("superseded controller wakes")
        self.when_it_woke = self._all_there_is()
        self.superseded.slurm.begin_cycle()
        try:
            self.superseded.cycles.run(ENFORCE)
        except TiresiasError as error:
            self.course[-1] += f" (failed: {error.what})"
        self._check_nothing_changed()

    def _all_there_is(self) -> object:
        """Return everything that a superseded controller must not change."""
        return self.jobs(), len(self.sim.signals), stamps(self.ledger.path)

    def _check_nothing_changed(self) -> None:
        if self._all_there_is() != self.when_it_woke:
            self.violated("a controller has acted though another one had taken over")

    def cycle(
        self,
        fault: Fault | None = None,
        at: int = 0,
        race: Callable[[], Sequence[str]] | None = None,
    ) -> WriteSummary | None:
        """Run one cycle, with ``fault`` at effect number ``at``. ``race`` is called just after the
        controller's observation; it returns the jobs that it touched."""
        self.note(f"cycle {self.mode} {fault.value + f' at {at}' if fault else ''}".rstrip())
        return self._guarded(lambda: self.cycles.run(self.mode).outcome, fault, at, race)

    def release(self, fault: Fault | None = None, at: int = 0) -> None:
        """Hand every job back to Slurm and pause until ``mode`` is set."""
        self.note(f"release of all jobs {fault.value + f' at {at}' if fault else ''}", CLUSTER)
        self.mode = PAUSED
        outcome = self._guarded(lambda: self.cycles.hand_back(), fault, at)
        if outcome is not None and not outcome.failures and self.slurm.hit is None:
            self._check_released()

    def _guarded(
        self,
        act: Callable[[], WriteSummary],
        fault: Fault | None,
        at: int,
        race: Callable[[], Sequence[str]] | None = None,
    ) -> WriteSummary | None:
        """Let the controller act and check the result; return None if it failed or was killed.
        A killed controller is restarted."""
        before, slurm = self.jobs(), self.slurm
        self.reports.tell(before)
        if self.setup.idle:
            for key in self.gpu_uses.tell(before):
                self.in_a_row[key] = 0
        raced: list[str] = []
        left = self._left_by_themselves()
        slurm.begin_cycle(fault, at)
        if race:
            slurm.after_observation = lambda: raced.extend(race())
        outcome = None
        self.counts["cycles"] += 1
        try:
            outcome = act()
        except Killed:
            self.counts["kills"] += 1
            self.ledger.close()
            self.open()
        except TiresiasError as error:
            self.counts["failed cycles"] += 1
            self.course[-1] += f" (failed: {error.what})"
        except BaseException:
            self.broken = True
            raise
        finally:
            slurm.after_observation = lambda: None
        if slurm is not self.slurm:
            self.note("superseded controller has gone on")
            self._check_nothing_changed()
            self.slurm.passed = slurm.effects
            return None
        self._note_requeues()
        if sent := [told(write) for write in slurm.sent]:
            self.course[-1] += f": {'; '.join(sent)}"
        self._check_left_alone(before, raced)
        good = outcome is not None and slurm.hit is None
        self._check_lists(good=good and not raced)
        if good and self.mode == ENFORCE:
            self._check_nominations()
        if good:
            self._check_counted(left)
            self._note_idle(before)
        slurm.passed = slurm.effects
        slurm.begin_cycle()
        return outcome

    # Operations on jobs

    def submit(self, ask: Asked) -> list[str]:
        """Submit a job; return its key, or those of its tasks."""
        wanted = ask.submission
        number = self.sim.submit(wanted)
        keys = [f"{number}_{task}" for task in wanted.array] or [number]
        unmanaged = not (wanted.batch and wanted.requeue and self.are_managed(wanted.partitions))
        for key in keys:
            # If slurmctld has reused an id, the controller's knowledge is about the earlier job.
            managed = not (unmanaged and key in self.own)
            self.counts["reused ids"] += key in self.own
            earlier = memory.accounted(self.sim, key)
            own = Own(wanted, wanted.node_list, managed=managed, earlier_rows=earlier)
            if wanted.duration_s is not None:
                own.may_end = {"COMPLETED", "TIMEOUT"}
            self.own[key] = replace(own, submitted_s=self.jobs()[key].spec.submit_s)
            self.in_a_row[key] = 0
        self.note(f"submit {', '.join(keys)}: {ask}", *keys)
        return keys

    def are_managed(self, partitions: Iterable[str]) -> bool:
        return set(self.setup.managed).issuperset(partitions)

    def _done(self, what: str, key: str, words: str) -> None:
        self.note(f"{what} {key}{f' ({words})' if words else ''}", key)

    def finish(self, key: str) -> None:
        """Let the job's script end by itself."""
        self.own[key].may_end.add("COMPLETED")
        self._done("finish", key, self.sim.finish(key))

    def fail_run(self, key: str) -> None:
        """Let the job's script fail."""
        self.own[key].may_end.add("FAILED")
        self._done("fail", key, self.sim.finish(key, exit_code=1))

    def cancel(self, key: str) -> None:
        self.own[key].may_end.add("CANCELLED")
        self._done("cancel", key, self.sim.cancel(key))
        if key not in self.jobs():
            self.own[key].ended = True  # slurmctld forgets a task of a pending record at once

    def hold(self, key: str, *, by_admin: bool) -> None:
        self._done(f"hold by_admin={by_admin}", key, self.sim.hold(key, by_admin=by_admin))

    def let_go(self, key: str) -> None:
        """Release any hold, as an administrator."""
        self._done("let-go", key, self.sim.release(key, by_admin=True))

    def suspend(self, key: str) -> None:
        self._done("suspend", key, self.sim.suspend(key))

    def resume(self, key: str) -> None:
        self._done("resume", key, self.sim.resume(key))

    def requeue(self, key: str) -> None:
        """Requeue the job, as its owner or an administrator."""
        self._done("requeue", key, self.sim.requeue(key))

    def set_priority(self, key: str, priority: int) -> None:
        """Set the priority, as an administrator."""
        failures = self.sim.write([Update(key, priority=priority)])
        words = "; ".join(failure.message for failure in failures)
        self.own[key].pinned |= not words
        self._done(f"set-priority {priority}", key, words)

    def forbid_requeue(self, key: str) -> None:
        self.own[key].managed &= self.jobs()[key].state is not JobState.PENDING
        self._done("forbid-requeue", key, self.sim.edit(key, requeue=False))

    def name_nodes(self, key: str, node_list: str) -> None:
        """Set the node list, as the owner. Lists that the controller has written, or noted and not
        yet written, are skipped, because it could not distinguish them from its own."""
        ours = {*self.slurm.lists.get(key, ()), *memory.lists_noted(self.cycles, key)}
        if refolded(node_list) in ours:
            return
        words = self.sim.edit(key, node_list=node_list)
        if not words:
            self.own[key].node_list = node_list
        self._done(f"name-nodes '{node_list}'", key, words)

    def move(self, key: str, partitions: tuple[str, ...]) -> None:
        self.own[key].managed &= self.are_managed(partitions)
        words = self.sim.edit(key, partitions=partitions)
        self._done(f"move to {','.join(partitions)}", key, words)

    def obstruct(self, key: str, reason: str = OBSTACLE) -> None:
        """Give Slurm its own reason to keep the job waiting; "" removes it."""
        keys = self.sim.obstruct(key, reason)
        (self.obstructed.update if reason else self.obstructed.difference_update)(keys)
        self._done(f"obstruct '{reason}'", key, "")

    def garble(self, key: str, why: str = "its row cannot be read") -> None:
        """Make the job's row unreadable; ``why`` of "" makes it readable again."""
        keys = self.sim.garble(key, why)
        for one in keys:
            self.own[one].managed = False
        (self.garbled.update if why else self.garbled.difference_update)(keys)
        self._done(f"garble '{why}'", key, "")

    # Reports of jobs

    def report(self, key: str, steps: int, first_step: int) -> None:
        """Let a running job report steps; its first report of a run begins at ``first_step``."""
        self.reports.report(self.jobs()[key], steps, first_step)
        self.own[key].reported = True
        self._done(f"report {steps} steps from {first_step}", key, "")

    def save(self, key: str) -> None:
        """Let a running job save, and say which signal of this run the save answers, if any."""
        job = self.jobs()[key]
        heard = self._heard(job)
        furthest, answers_s = self.reports.furthest(job), heard.steady_s if heard else None
        self.reports.report(job, 1, furthest, answers_s)
        self._done("save", key, "" if heard else "not asked")

    def _heard(self, job: JobStatus) -> Signalled | None:
        """Return the last signal that this run has received."""
        run = job.key, job.start_s
        heard = [one for one in self.slurm.signalled if (one.key, one.run_start_s) == run]
        return heard[-1] if heard else None

    def claim_save(self, key: str, ago_s: float) -> None:
        """Let a running job say that it has answered a request by a save, whatever it does."""
        self.reports.report(self.jobs()[key], 0, 0, self.sim.clock.steady_s - ago_s)
        self._done(f"claim-save {ago_s:g} s ago", key, "")

    # GPU use of jobs

    def use_gpus(self, key: str, how: str) -> None:
        """Let a job use ``none``, ``one`` or ``all`` of its GPUs from now on."""
        for wanted, keys in (("none", self.gpu_uses.idle), ("one", self.gpu_uses.partly)):
            (keys.add if how == wanted else keys.discard)(key)
        self._done(f"use-gpus {how}", key, "")

    def silence_samplers(self, silent: bool) -> None:
        self.gpu_uses.silent = silent
        self.note(f"samplers silent={silent}")

    def restart_sampler(self, node: str) -> None:
        self.gpu_uses.begin_anew(node)
        self.note(f"sampler restarts on {node}")

    # Operations on the cluster

    def advance(self, seconds: float) -> None:
        """Let time pass; slurmctld saves its state shortly before the end of that time."""
        late_s = min(seconds, SAVED_BEFORE_S)
        self.sim.advance(seconds - late_s)
        self.sim.save_state()
        self.saved_lists = {key: own.node_list for key, own in self.own.items()}
        self.sim.advance(late_s)
        if self.slurm.accounting_fails or self.sim.accounting.delay_s:
            self.outage_s += seconds
        self.course.append(f"... {seconds:g} s")

    def come_again(self, first: Ask, second: Ask, wait_s: float) -> None:
        """Let slurmctld forget a job that it has not saved yet, and give its id to the next."""
        self.submit(first)
        self.sim.advance(wait_s)
        self.cycle()
        self.restart_slurm()
        self.submit(second)

    def drain(self, node: str) -> None:
        self.sim.drain(node)
        self.note(f"drain {node}", CLUSTER)

    def fail(self, node: str) -> None:
        for key, job in self.jobs().items():
            if node in job.allocation:
                self.own[key].may_end.add("NODE_FAIL")
        self.sim.fail_node(node)
        self.note(f"fail {node}", CLUSTER)

    def return_to_service(self, node: str) -> None:
        self.sim.resume_node(node)
        self.note(f"return {node}", CLUSTER)

    def hang(self, node: str, hang: bool) -> None:
        """Let no epilog on the node end, or let them end again."""
        self.sim.let_epilogs_hang(node, hang=hang)
        self.note(f"hang {node} {hang}", CLUSTER)

    def reserve(self, node: str, in_s: float) -> None:
        self.sim.reserve(f"r{self.step}", node, in_s, RESERVED_S)
        self.note(f"reserve {node} in {in_s:g} s", CLUSTER)

    def restart_slurm(self, *, wiped: bool = False) -> None:
        """Kill slurmctld and restart it from its saved state; later submissions and changes by
        users are lost, and with ``wiped`` all jobs, so that the ids begin again."""
        before, ends_before = self.jobs(), self._ends_by_accounting()
        (self.sim.lose_state if wiped else self.sim.restart)()
        self.sim.advance(STARTS_IN_S)
        jobs = self.jobs()
        # A run whose end was forgotten ends once more, later.
        ended_again = {key for key, *_ in ends_before - self._ends_by_accounting()}
        for key in list(self.own):
            own, job = self.own[key], jobs.get(key)
            own.clouded |= _run_of(job) != _run_of(before.get(key)) or key in ended_again
            own.ended = job is None or (own.ended and job.state is None)
            saved = self.saved_lists.get(key, own.submission.node_list)
            shown = job.spec.required_node_list if job else ""
            if own.node_list != saved and refolded(shown) not in memory.lists_noted(
                self.cycles, key
            ):
                # The controller has seen that the owner changed its list, and slurmctld brings that
                # back: for the controller it is the owner's.
                saved = shown
            own.node_list = saved
            own.may_end.add("NODE_FAIL")
        self.ended_runs.clear()
        self.unseen.clear()
        self.in_a_row.clear()
        self.listed = frozenset()
        self.stepped = True
        self.note(f"slurmctld restarts wiped={wiped}", CLUSTER)

    def _ends_by_accounting(self) -> set[tuple[str, float | None, float]]:
        """Return the runs that have ended by accounting: job, start and end."""
        rows = self.sim.runs(list(self.own), 0.0)
        return {(row.key, row.start_s, row.end_s) for row in rows if row.end_s is not None}

    def step_clock(self, seconds: float) -> None:
        for key in self.alive(JobState.RUNNING):
            self.own[key].clouded = True
        self.sim.step_clock(seconds)
        self.stepped = self.clock_was_set = True
        self.note(f"clock set by {seconds:+g} s", CLUSTER)

    def refuse_signals(self, refused: bool) -> None:
        self.slurm.signals_refused = refused
        self.note(f"signals refused={refused}", CLUSTER)

    def set_accounting(self, how: str) -> None:
        self.slurm.accounting_fails = how == "fails"
        self.sim.accounting.delay_s = LATE_S if how == "late" else 0.0
        self.note(f"accounting {how}")

    def switch(self, mode: str) -> None:
        """Set the controller's mode from its next cycle on."""
        self.mode = mode
        self.note(f"mode {mode}", CLUSTER)

    def calm(self) -> None:
        """End all faults, except that nodes stay down and jobs stay held."""
        self.refuse_signals(False)
        self.silence_samplers(False)
        self.set_accounting("well")
        for node in self.sim.observe().nodes:
            self.hang(node.name, False)
        self.switch(ENFORCE)
        for key in self.obstructed & self.jobs().keys():
            self.obstruct(key, "")
        for key in self.garbled & self.jobs().keys():
            self.garble(key, "")

    # Invariants

    def violated(self, what: str) -> NoReturn:
        self.broken = True
        raise AssertionError("\n  ".join([what, *self.course]))

    def _check_requeue(self, write: Requeue) -> None:
        """Check that a victim may be preempted, and that its preemptor can start in its place.

        This uses the controller's last observation, since it cannot know of later events.
        """
        assert self.slurm.seen is not None
        seen = {job.key: job for job in self.slurm.seen.jobs}
        victim, preemption = seen[write.key], memory.preemption_of(self.cycles, write.key)
        under_way = preemption if preemption and preemption.makes_room else None
        own_checks = {
            Cause.IDLE_GPUS: self._check_idle_requeue,
            Cause.HUNG: self._check_hung_requeue,
        }
        if under_way and under_way.cause in own_checks:
            own_checks[under_way.cause](victim)
            self._check_not_protected(victim, self.slurm.seen.at_s)
            self._check_grace(victim)
            self.own_causes[victim.key, victim.start_s or 0.0] = under_way.cause
            return
        key = under_way.preemptor if under_way else ""
        preemptor = seen.get(key)
        if preemptor is None:
            self.violated(f"{write.key} is requeued for {key or 'no job'}, which was not there")
        now_s = self.slurm.seen.at_s
        if preemptor.state is not JobState.PENDING or preemptor.held:
            self.violated(f"{write.key} is requeued for {key}, which was {_told(preemptor)}")
        if why := why_not_eligible(preemptor, now_s):
            self.violated(f"{write.key} is requeued for {key}, which cannot start: {why}")
        nodes = memory.nominations(self.cycles).get(key, ())
        if set(nodes).isdisjoint(victim.allocation):
            self.violated(f"{write.key} is requeued for {key}, which is to start on {set(nodes)}")
        others = memory.victims_of(self.cycles, key)
        if staying := [one for one in others if one in seen and seen[one].slurm_state == SUSPENDED]:
            self.violated(f"{write.key} is requeued for {key}, and {staying} stay where they are")
        down = {node.name for node in self.slurm.seen.nodes if not node.available}
        if down.intersection(nodes):
            self.violated(f"{write.key} is requeued for {key} on {down}, which start nothing")
        if not self.stepped and memory.backed_off_since(
            self.cycles, key, now_s - START_BOUND_S + 1.0
        ):
            self.violated(f"{write.key} is requeued for {key}, which backed off just now")
        runs = [run for run in self.sim.runs([key], 0.0) if run.start_s is not None]
        last_s = max((run.start_s or 0.0 for run in runs), default=0.0)
        if self.known_idle_s.get((key, last_s), 0.0) >= IDLE_AFTER_S and not self.stepped:
            self.violated(f"{write.key} is requeued for {key}, which used no GPU when it ran")
        self._check_not_protected(victim, now_s)
        self._check_grace(victim)
        self.preemptions.append(Preemption(write.key, key, self.now_s, self.step))

    def _check_restart(self, key: str, failed: JobStatus | None) -> None:
        """Check that a restarted job had failed, and how often that happens without reports."""
        if failed is None or failed.slurm_state != "FAILED":
            self.violated(f"{key} is restarted, which was {failed and _told(failed)}")
        own = self.own[key]
        own.restarted.add(failed.restarts)
        often = len(own.restarted) > int(own.hint("restart") or 0)
        # A long run that was preempted ends the row of failures.
        if often and not own.reported and memory.longest_run_s(self.sim, key) < EARLY_S:
            self.violated(f"{key} is restarted after its runs {own.restarted}")
        own.ended = False

    def _check_idle_requeue(self, victim: JobStatus) -> None:
        """Check that a job requeued for its idle GPUs had used none for ``leave_after_s``."""
        key, steady_s = victim.key, self.sim.clock.steady_s
        if self.setup.idle != LEAVE:
            self.violated(f"{key} is requeued for idle GPUs, which the site does not want")
        told = self.gpu_uses.told.get((key, victim.start_s or 0.0))
        if told is None:
            self.violated(f"{key} is requeued for idle GPUs, of which nothing was told")
        if told.busy or told.idle_since_s is None:
            self.violated(f"{key} is requeued for idle GPUs, and uses {told.busy} of them")
        if not self.stepped:
            if steady_s - told.at_s > LATE_AFTER_S + 1.0:
                self.violated(f"{key} is requeued for idle GPUs by what was told long ago")
            if self.gpu_uses.unused_s[key] + steady_s - told.at_s < LEAVE_AFTER_S - 1.0:
                self.violated(f"{key} is requeued for GPUs that were idle for a short time")
        if self.in_a_row[key] >= MOST_IN_A_ROW:
            self.violated(f"{key} is requeued for idle GPUs once more in a row")

    def _check_hung_requeue(self, victim: JobStatus) -> None:
        """Check that a job requeued because it hangs had reported no step for long."""
        said = self.reports.records.get(RunId(victim.raw_id, victim.restarts, NODE))
        if self.setup.hung != REQUEUE or said is None:
            self.violated(f"{victim.key} is requeued because it hangs, which it does not")
        if not self.stepped and self.sim.clock.now_s - said.at_s < LEAST_QUIET_S:
            self.violated(f"{victim.key} is requeued because it hangs, and made a step just now")

    def _check_not_protected(self, victim: JobStatus, now_s: float) -> None:
        own = self.own[victim.key]
        ran_s = now_s - (victim.start_s or now_s)
        why = {
            "suspended": victim.slurm_state == "SUSPENDED",
            "held by an administrator": victim.priority == 0
            and victim.reason.strip("()") != HELD_BY_OWNER,
            "in its minimum run time": not self.stepped and ran_s < MIN_RUN_S,
            "not managed": not self.are_managed(victim.spec.partitions) or not own.submission.batch,
            "unreadable": bool(victim.unreadable),
            "not to be requeued": not own.submission.requeue,
        }
        if protected := [word for word, applies in why.items() if applies]:
            self.violated(f"{victim.key} is requeued although it is {protected[0]}")

    def _check_grace(self, victim: JobStatus) -> None:
        """Check that the victim got its signal, the job's or the site's, and its grace since."""
        preemption = self.config.preemption
        wished, _, seconds = self.own[victim.key].hint("checkpoint").partition("@")
        signal, grace_s = wished or preemption.signal, preemption.grace_s
        if wished:
            most_s = preemption.grace_s if preemption.budget_share else preemption.max_grace_s
            grace_s = min(float(seconds), most_s)
        under_way = memory.preemption_of(self.cycles, victim.key)
        if under_way and under_way.asked:
            if signal:
                self.violated(f"{victim.key} is asked to save, though it gets {signal}")
            signal, grace_s = ASK_SIGNAL, SAVE_GRACE_S
        if not signal:
            return
        heard = self._heard(victim)
        if heard is None or heard.signal != signal:
            self.violated(f"{victim.key} is requeued, and has not heard {signal}")
        had_s = self.sim.clock.steady_s - heard.steady_s
        # The grace began with the observation of the cycle in which the signal was sent.
        answered = self.reports.said_since(victim, heard.steady_s - CLOCKS_DIFFER_S)
        if had_s < grace_s and not answered and not self.stepped:
            self.violated(f"{victim.key} is requeued after {had_s:g} of its {grace_s:g} s")

    def _note_idle_requeue(self, key: str) -> None:
        """The job has one requeue more in a row, and its idle time begins anew."""
        self.in_a_row[key] += 1
        self.gpu_uses.unused_s[key] = 0.0

    def _note_requeues(self) -> None:
        known, self.noted_requeues = self.noted_requeues, len(self.slurm.requeued)
        for one in self.slurm.requeued[known:]:
            run = one.key, one.run_start_s
            cause = self.own_causes.get(run, Cause.FOR_JOB)
            if cause is Cause.IDLE_GPUS:
                self._note_idle_requeue(one.key)
            self.counts[COUNTED_AS[cause]] += 1
            self.ended_runs[run] += 1
            if self.ended_runs[run] > 1:
                self.violated(f"{one.key} was requeued twice for its start at {one.run_start_s}")

    def _note_idle(self, seen: Mapping[str, JobStatus]) -> None:
        """Remember what the samples that the controller has read say of the running jobs."""
        if not self.setup.idle or self.gpu_uses.silent:
            return
        for key, job in seen.items():
            if key in self.garbled:
                continue
            if job.state is JobState.RUNNING and job.start_s is not None:
                self.known_idle_s[key, job.start_s] = self.gpu_uses.unused_s.get(key, 0.0)

    def _check_nominations(self) -> None:
        """Check that no job stays nominated although its nodes stay in use."""
        longest_s = MAX_GRACE_S + IN_USE_BOUNDS * START_BOUND_S + 1.0
        for overdue in memory.overdue_nominations(self.cycles, self.now_s, longest_s):
            self.violated(overdue)

    def _left_by_themselves(self) -> list[tuple[str, float]]:
        """Return the signalled runs that have requeued themselves since the last good cycle, and
        not because of their nodes."""
        runs = self.sim.requeued_themselves
        self.unseen += runs[self.noted_unseen :]
        self.noted_unseen = len(runs)
        if any("DOWN" in node.state for node in self.sim.observe().nodes):
            return []
        return [
            (key, start_s)
            for key, start_s in self.unseen
            if memory.has_signal(self.cycles, key) and key not in self.garbled
        ]

    def _check_counted(self, left: Iterable[tuple[str, float]]) -> None:
        """Check that each victim that requeued itself counts as preempted, and no run does twice.

        A job with reused ids or lost runs has rows that cannot be told apart.
        """
        self.unseen.clear()
        rows = memory.preempted_runs(self.cycles)
        causes = dict(rows)
        if len(causes) < len(rows) and not self.stepped:
            self.violated(f"a run counts as preempted more than once: {rows}")
        for run in left:
            self.counts["requeues by themselves"] += 1
            if run not in causes:
                self.violated(f"{run} requeued itself on its signal, which does not count")
            if causes[run] is Cause.IDLE_GPUS:
                self._note_idle_requeue(run[0])

    def _check_left_alone(self, before: Mapping[str, JobStatus], raced: Iterable[str]) -> None:
        """Check that held jobs are still held, suspended ones suspended, and ended ones ended.

        Except for jobs that Slurm itself held for unsatisfiable constraints: if the controller's
        node list caused that, removing the list releases the job.
        """
        after = self.jobs()
        for key in before.keys() - set(raced):
            was, now = before[key], after.get(key)
            if now is None:
                self.violated(f"{key} is not there any more")
            if was.priority == 0 != now.priority and was.reason != BAD_CONSTRAINTS:
                self.violated(f"{key} was held, and has priority {now.priority} now")
            if was.slurm_state == "SUSPENDED" != now.slurm_state:
                self.violated(f"{key} was suspended, and is {now.slurm_state} now")
            restarted = Restart(key) in self.slurm.sent
            if was.state is None and now.state is not None and not restarted:
                self.violated(f"{key} was over ({was.slurm_state}), and is {_told(now)} now")

    def check(self) -> None:
        """Check the invariant that every job exists, or has ended for a reason known here."""
        jobs = self.jobs()
        for key, own in self.own.items():
            job = jobs.get(key)
            if job is None or job.state is None:
                ends = own.may_end if job is None else own.may_end & {job.slurm_state}
                if not (own.ended or ends):
                    self.violated(f"{key} is lost: {job.slurm_state if job else 'gone'}")
                own.ended = True
            elif own.ended:
                self.violated(f"{key} was over, and is {_told(job)} now")

    def _check_lists(self, good: bool) -> None:
        """Check that no job without a nomination keeps the controller's node list for two good
        cycles.

        One is allowed, because a nomination can be withdrawn after the lists were written.
        """
        if not good:
            self.listed = frozenset()
            return
        nominated = memory.nominations(self.cycles)
        listed = frozenset(self._with_foreign_lists() - nominated.keys())
        if stays := sorted(listed & self.listed):
            lists = {key: self.jobs()[key].spec.required_node_list for key in stays}
            self.violated(f"node lists were left behind: {lists}")
        self.listed = listed

    def _with_foreign_lists(self) -> set[str]:
        return {
            key
            for key, job in self.jobs().items()
            if job.state is JobState.PENDING
            and refolded(job.spec.required_node_list) != refolded(self.own[key].node_list)
        }

    def _check_released(self) -> None:
        """Check that no job has a node list or a priority from the controller.

        A priority that an administrator has pinned stays, unless the controller has replaced it.
        """
        lowest = bands.LOWEST[self.setup.write]
        for key, job in self.jobs().items():
            ours = self.setup.write == "pinned" and memory.is_known(self.cycles, key)
            pinned = self.own[key].pinned and not ours
            if job.state is not None and job.priority >= lowest and not pinned:
                self.violated(f"{key} was handed back, and has priority {job.priority}")
        if lists := self._with_foreign_lists():
            self.violated(f"{sorted(lists)} were handed back, and have node lists")

    def settle(self) -> None:
        """End all faults; check what must hold then, and when the controller hands all back."""
        self.calm()
        self.come_to_rest()
        self.hand_all_back()

    def come_to_rest(self) -> None:
        """Check that without events the cluster comes to rest, that no preemption was in vain, and
        that the ledger agrees with accounting."""
        self.mode, quiet, picture = ENFORCE, 0, None
        for number in range(MOST_CYCLES):
            self.advance(INTERVAL_S if number < 10 else QUIET_S)
            requeued = len(self.slurm.requeued)
            self.cycle()
            self.check()
            now = {(key, job.state, job.start_s) for key, job in self.jobs().items()}
            still = now == picture and len(self.slurm.requeued) == requeued
            quiet, picture = quiet + 1 if still else 0, now
            waits = any(memory.awaits_accounting(self.cycles, key) for key in self.own)
            if quiet >= QUIET_CYCLES and not (waits and self.setup.accounting):
                break
        else:
            self.violated("the cluster does not come to rest")
        self._check_not_in_vain()
        self._check_service()

    def hand_all_back(self) -> None:
        """Pause the controller and let it hand every job back."""
        self.mode = PAUSED
        for _ in range(2):
            self.cycle()
        if lists := self._with_foreign_lists():
            self.violated(f"{sorted(lists)} have node lists although the controller is paused")
        self.release()

    def _check_not_in_vain(self) -> None:
        """Check that each preemptor has started since, has ended or backed off, or was affected by
        a later event."""
        jobs = self.jobs()
        for one in self.preemptions:
            preemptor = jobs.get(one.preemptor)
            since = max(self.disturbed.get(one.preemptor, 0), self.disturbed.get(CLUSTER, 0))
            started = preemptor is not None and (preemptor.start_s or 0.0) >= one.at_s - 1.0
            over = preemptor is None or preemptor.state is None
            if started or over or since > one.step:
                continue
            if self._has_run_since(one.preemptor, one.at_s):
                continue
            if not memory.backed_off_since(self.cycles, one.preemptor, one.at_s):
                self.violated(f"{one.key} was requeued for {one.preemptor} in vain")

    def _has_run_since(self, key: str, at_s: float) -> bool:
        rows = self.sim.runs([key], 0.0)
        return any(row.start_s is not None and row.start_s >= at_s - 1.0 for row in rows)

    def _check_service(self) -> None:
        """Check that ledger and accounting agree on each job's attained service.

        Skipped without accounting or after a long outage of it, and for jobs whose accounting is
        wrong.
        """
        if not self.setup.accounting or self.outage_s > MOST_OUTAGE_S:
            return
        for key, own in self.own.items():
            if own.clouded or not own.managed or not memory.is_known(self.cycles, key):
                continue
            if own.earlier_rows and self.clock_was_set:
                continue  # times do not tell which job with this id a row of accounting is of
            known_s = memory.submitted_s(self.cycles, key)
            if known_s != own.submitted_s and (known_s < own.submitted_s or own.earlier_rows):
                if key in self.jobs() and not self.clock_was_set:
                    self.violated(
                        f"{key} was submitted at {own.submitted_s:.0f}, and is known as the job "
                        f"that was submitted at {known_s:.0f}"
                    )
                continue  # it has come and gone, and the controller has not seen it
            rows = [
                row
                for row in self.sim.runs([key], 0.0)
                if row.start_s is not None and (row.submit_s, row.start_s) not in own.earlier_rows
            ]
            told_gpu_s = sum(row.elapsed_s * row.gpus for row in rows)
            known_gpu_s = memory.attained_gpu_s(self.cycles, key)
            within_gpu_s = sum(BEHIND_S * row.gpus for row in rows)
            if abs(known_gpu_s - told_gpu_s) > within_gpu_s:
                runs = [(r.start_s, r.end_s, r.elapsed_s, r.gpus) for r in rows]
                self.violated(
                    f"{key} has attained {told_gpu_s:.0f} GPU-seconds by accounting {runs}, and "
                    f"{known_gpu_s:.0f} by the ledger"
                )


@cache
def _profiles() -> ProfileStore:
    # Has only the built-in profiles and learns nothing here, so it can be shared.
    return ProfileStore(None)


def _three_nodes() -> InMemorySlurm:
    return InMemorySlurm(map(_node, NODES), PARTITIONS, SLURM)


def _node(name: str) -> Node:
    return Node(name, Amount({"": GPUS}, 16, 8000), features=FEATURES.get(name, frozenset()))


def _run_of(job: JobStatus | None) -> object:
    """Return a value that identifies the run of a job that Slurm shows."""
    return job and (job.slurm_state, job.start_s, job.restarts)


def _told(job: JobStatus) -> str:
    return f"{job.slurm_state} with priority {job.priority}"
