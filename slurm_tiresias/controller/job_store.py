"""Accounting: combine what Slurm shows now with what the ledger remembers.

Attained service is GPUs times running seconds, over all runs. A run under way is measured by
Slurm's own clock at each observation. The figures of an ended run come from Slurm while it still
shows it, and otherwise from accounting (``sacct -D``): the job may have been requeued, or have run
and ended, between two observations or while no controller ran.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_tiresias.config import Config
from slurm_tiresias.controller import bands
from slurm_tiresias.controller.in_hand import InHand
from slurm_tiresias.controller.manage import why_cannot_be_requeued, why_unmanaged
from slurm_tiresias.controller.runs import Runs
from slurm_tiresias.core.features.losses import LEAVES_WITHIN_S, RecentLosses, late_s, losses_of
from slurm_tiresias.core.lifecycle.nomination import (
    Nomination,
    NominationEvent,
    NoteExpired,
    Started,
    VictimLeft,
)
from slurm_tiresias.core.lifecycle.preemption import (
    BackOff,
    Cause,
    CountIdleRequeue,
    CountPreemption,
    Ended,
    MarkSignalled,
    NoteSignalRefused,
    NoteSpared,
    NotRunning,
    Preemption,
    PreemptionEvent,
    Requeued,
    Running,
    SendRequeue,
    SendSignal,
    SetStartTime,
    SignalExpired,
)
from slurm_tiresias.core.lifecycle.tracker import LifecycleTracker, shifted
from slurm_tiresias.model import JobAccount, JobState, JobStatus, Lane, Plan
from slurm_tiresias.progress.saving import asked
from slurm_tiresias.slurm.protocol import Observation
from slurm_tiresias.store.event_folding import EventFolder
from slurm_tiresias.store.ledger import Ledger, changed
from slurm_tiresias.store.records import (
    CostSource,
    EventRecord,
    PreemptionCost,
    PreemptionRecord,
    RunProgressRecord,
    RunRecord,
    Sample,
)

log = logging.getLogger("tiresias-slurm")

IDLE_SIGNALLED, IDLE_REQUEUED, IDLE_SPARED = "idle-signalled", "idle-requeued", "idle-spared"
"""The events of a job that is signalled for its idle GPUs, is requeued for them, or is spared."""

STATE_SAVED_WITHIN_S = 60.0
"""slurmctld saves its state every few seconds. If it is killed, it comes back without what happened
and without the writes since its last save, and with node lists that had been removed."""

CLOCK_WANDERS_S = 5.0
"""The most that clocks drift apart between two observations; a larger step means a set clock."""

EffectToCarryOut = SendSignal | SendRequeue | SetStartTime | BackOff
"""The effects of a preemption that are left to the caller once the job store has noted the rest."""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that has run and ended.

    ``tier`` is the last that was decided for it, ``jct_s`` the time from its submission to its end
    (JCT), and ``queued_s`` the part of that in which it did not run.
    """

    tier: int
    jct_s: float
    queued_s: float


@dataclass(slots=True)
class CycleStats:
    """What has happened since the last successful cycle. ``events`` counts by kind."""

    events: Counter[str] = field(default_factory=Counter)
    ended: list[EndedJob] = field(default_factory=list)
    accounting_failures: int = 0
    costs: list[PreemptionCost] = field(default_factory=list)
    """Preemptions whose cost has become known, or is known to be unavailable."""


@dataclass(slots=True, eq=False)
class _Followed:
    """A job of the last observation, and what was known of it when it was processed."""

    job: JobStatus
    unmanaged: str
    """Why the job is not managed; "" for a managed job."""
    account: JobAccount | None = None
    learned: int = 0
    """The version of its runs at that time (``Runs.learned``)."""
    started_managed: bool = False
    """Whether it runs or completes and was managed when it started; it then stays managed."""


class JobStore:
    """The ledger in memory: what is known of each managed job, and what has changed."""

    def __init__(self, ledger: Ledger, config: Config, accounting: bool) -> None:
        self._ledger = ledger
        self._config = config
        self.has_accounting = accounting
        self.in_hand = InHand()
        self._records = ledger.jobs.live()
        self._runs = Runs(ledger, config.controller.interval_s, accounting)
        self._lifecycles = LifecycleTracker(
            ledger.nominations.all(), ledger.preemptions_under_way.all()
        )
        self._as_before: dict[str, _Followed] = {}
        """The jobs of the last observation, by key."""
        self._planned: Container[str] = frozenset(self._records)
        """The jobs that had a tier before: those of the last plan, or at first of the ledger."""
        self._forgotten: set[str] = set()
        """Jobs whose rows the ledger still has, though their ids belong to other jobs now."""
        self.reused: set[str] = set()
        """Known jobs whose ids were found to belong to other jobs, until the caller clears it."""
        self._changed_jobs: set[str] = set()
        self._events: list[EventRecord] = []
        self._folder = EventFolder()
        self._preemptions: list[PreemptionRecord] = []
        self._progress: list[RunProgressRecord] = []
        self._awaited_costs = {(one.key, one.run_start_s): one for one in ledger.costs.awaited()}
        self._changed_costs: dict[tuple[str, float], PreemptionCost] = {}
        self._losses: RecentLosses | None = None
        self.users_over_budget: frozenset[str] = frozenset()
        """The users that may not preempt, as of the last plan."""
        self._looked: tuple[float, float] | None = None
        """The time of the last observation, by Slurm's clock and by a monotonic one."""
        self._stats = CycleStats()
        self._first_look_s = math.inf
        self._ending: set[str] = set()
        """Ended jobs whose end is not reported yet: their service may be an estimate."""
        self._node_failures: set[tuple[str, int]] = set()
        """Runs known to have ended with their nodes, by job and number of restarts."""
        self._told_ended: set[str] = set()
        """Jobs whose end was reported, or came before the first observation, while Slurm shows
        them."""

    def record(self, key: str) -> JobAccount | None:
        return self._records.get(key)

    def records(self) -> Mapping[str, JobAccount]:
        return self._records

    def ended(self) -> Sequence[str]:
        """Return the keys of the jobs that have ended and are still in memory."""
        return [key for key, record in self._records.items() if record.ended_s is not None]

    @property
    def nominations(self) -> Mapping[str, Nomination]:
        """All nominations by job, including those that back off."""
        return self._lifecycles.nominations

    @property
    def preemptions(self) -> Mapping[str, Preemption]:
        """The preemptions under way or called off, by victim."""
        return self._lifecycles.preemptions

    @property
    def is_settled(self) -> bool:
        """Whether no start and no preemption is under way."""
        return self._lifecycles.is_settled

    def nomination_event(self, key: str, event: NominationEvent) -> None:
        """Apply an event to a nomination; it is committed with the other changes."""
        for effect in self._lifecycles.apply_to_nomination(key, event):
            match effect:
                case NoteExpired(at_s, why):
                    self.note(at_s, "backed-off", key, why)

    def preemption_event(self, key: str, event: PreemptionEvent) -> Sequence[EffectToCarryOut]:
        """Apply an event to a preemption; it is committed with the other changes.

        Effects on the job store are carried out here; the others are returned.
        """
        others: list[EffectToCarryOut] = []
        for effect in self._lifecycles.apply_to_preemption(key, event):
            match effect:
                case NoteSignalRefused(at_s, text, preemptor):
                    self.note(at_s, "signal-refused", key, text, preemptor)
                case CountPreemption(at_s, of):
                    self._count_preemption(of, at_s)
                    self.nomination_event(of.preemptor, VictimLeft())
                case CountIdleRequeue(at_s, of):
                    self._count_idle_requeue(of, at_s)
                case MarkSignalled(at_s, heard):
                    self._mark_signalled(key, at_s, heard=heard)
                case NoteSpared(at_s, why):
                    self.note(at_s, IDLE_SPARED, key, why)
                case _:
                    others.append(effect)
        return others

    def expire_signal(self, key: str, at_s: float) -> None:
        """Forget the signal of a victim that is not leaving, if its own grace ended long before."""
        one = self.preemptions.get(key)
        if one is not None and (one.grace_until_s or 0.0) + LEAVES_WITHIN_S < at_s:
            self.preemption_event(key, SignalExpired())

    def why_unmanaged(self, key: str) -> str:
        """Return why a job of the last observation is not managed; "" for a managed job."""
        return self._as_before[key].unmanaged

    def next_number(self) -> int:
        """Return the next number in the sequence that keeps starts and tier entries in order."""
        return self._ledger.next_number()

    def put(self, record: JobAccount) -> None:
        """Replace a job's account; it is committed with the other changes."""
        if self._records.get(record.key) != record:
            self._records[record.key] = record
            self._changed_jobs.add(record.key)

    def progress_of_live_jobs(self) -> Sequence[RunProgressRecord]:
        """Return the last reports of the runs of all jobs that have not ended, earliest runs
        first."""
        return self._ledger.progress.of_live_jobs()

    def progress_of(self, key: str) -> Mapping[int, RunProgressRecord]:
        """Return the last reports of the ended runs of a job, by number of restarts."""
        uncommitted = (row for row in self._progress if row.key == key)
        return {row.restarts: row for row in (*self._ledger.progress.of(key), *uncommitted)}

    def runs_of(self, key: str) -> Sequence[RunRecord]:
        """Return the runs of a job, in memory or not, the first one first."""
        return sorted(self._runs.of(key) or self._ledger.runs.of(key), key=lambda run: run.began_s)

    def runs_in_lane(self, lane: Lane, since_s: float) -> Sequence[tuple[str, RunRecord]]:
        """Return the lane's runs that according to the ledger ended after ``since_s``, with their
        users."""
        return self._ledger.runs.in_lane(lane, since_s)

    @property
    def awaited_costs(self) -> Collection[PreemptionCost]:
        """The preemptions whose cost is not known yet."""
        return self._awaited_costs.values()

    def last_costs(self, most: int) -> Sequence[tuple[str, str, PreemptionCost]]:
        """Return the latest known costs of preemptions, with users and names, oldest first."""
        return self._ledger.costs.last(most)

    def owner_of(self, key: str) -> tuple[str, str] | None:
        """Return the user and the name of a job; None if it is unknown."""
        record = self._records.get(key) or self._ledger.jobs.one(key)
        return (record.user, record.name) if record else None

    def put_cost(self, cost: PreemptionCost) -> None:
        """Replace what is known of the cost of a preemption; committed with the other changes."""
        of = cost.key, cost.run_start_s
        self._changed_costs[of] = cost
        if cost.source == CostSource.AWAITED:
            self._awaited_costs[of] = cost
        elif self._awaited_costs.pop(of, None):
            self._stats.costs.append(cost)

    def keep_progress(self, rows: Iterable[RunProgressRecord]) -> None:
        """Record the last reports of runs that have ended; committed with the other changes."""
        self._progress.extend(rows)

    def was_noted(self, kind: str, key: str, text: str) -> bool:
        """Whether the ledger has this event of a job, as after a restart of the controller."""
        events = self._ledger.events.of_job(key, self._records[key].born_after_s)
        return any((one.kind, one.job_id, one.text) == (kind, key, text) for one in events)

    def note(self, at_s: float, kind: str, job_id: str, text: str, other: str = "") -> None:
        """Record an event; it is committed with the other changes."""
        self._stats.events[kind] += 1
        user = ""
        if record := self._records.get(job_id):
            user = record.user
        elif before := self._as_before.get(job_id):
            user = before.job.spec.user
        if not self._folder.takes(at_s, kind, user, job_id):
            self._remember(EventRecord(at_s, kind, job_id, other, text))

    def _remember(self, event: EventRecord) -> None:
        self._events.append(event)
        kind, job_id, other, text = event.kind, event.job_id, event.other, event.text
        whom = f" for job {other}" if other else ""
        log.info("%s%s%s: %s", f"job {job_id} " if job_id else "", kind, whom, text)

    def commit(self) -> None:
        """Write all changes in one transaction."""
        if self._looked:
            for event in self._folder.folded(self._looked[0]):
                self._remember(event)
        lifecycles = self._lifecycles
        nominations, under_way = lifecycles.changed_nominations, lifecycles.changed_preemptions
        runs = self._runs.changed
        changes = (self._changed_jobs, runs, nominations, under_way, self._forgotten)
        if not (any(changes) or self._events or self._progress or self._changed_costs):
            return
        with self._ledger.transaction():
            self._ledger.forget(self._forgotten)
            self._ledger.jobs.put(self._records[key] for key in self._changed_jobs)
            self._ledger.runs.put(runs)
            self._ledger.nominations.save(nominations)
            self._ledger.preemptions_under_way.save(under_way)
            self._ledger.preemptions.put(self._preemptions)
            self._ledger.costs.put(self._changed_costs.values())
            self._ledger.progress.put(self._progress)
            self._ledger.events.put(self._events)
        self._forgotten.clear()
        self._changed_jobs.clear()
        self._runs.saved()
        lifecycles.saved()
        self._preemptions.clear()
        self._changed_costs.clear()
        self._progress.clear()
        self._events.clear()

    # Taking in an observation

    def follow_clock(self, at_s: float, steady_s: float) -> float:
        """Return by how much Slurm's clock was set since the last observation.

        ``steady_s`` is from a clock that cannot be set. The step is excluded from run, wait and
        back-off times.
        """
        looked, self._looked = self._looked, (at_s, steady_s)
        if looked is None:
            return 0.0
        set_by_s = (at_s - looked[0]) - (steady_s - looked[1])
        if abs(set_by_s) <= CLOCK_WANDERS_S:
            return 0.0
        log.warning(
            "Slurm's clock was set by %+.0f s; the step is excluded from run, wait and back-off "
            "times",
            set_by_s,
        )
        self._lifecycles.shift(set_by_s)
        self._runs.clock_was_set(set_by_s)
        for record in self.in_hand.each(list(self._records.values())):
            # Rows from after a step back have earlier times.
            born_s = max(0.0, record.born_after_s + min(0.0, set_by_s))
            self.put(replace(shifted(record, set_by_s), born_after_s=born_s))
        self._first_look_s += set_by_s
        return set_by_s

    def observe(self, seen: Observation) -> None:
        """Take in what Slurm shows: new jobs, running time, ends, requeues."""
        if self._first_look_s == math.inf:
            self._ledger.note_first_look(seen.at_s)
        self._first_look_s = min(self._first_look_s, seen.at_s)
        shown, new = self._compared(seen.jobs)
        managed = [job for job in new if not shown[job.key].unmanaged]
        # Numbers are assigned along the way: entry numbers in order of submission, start numbers in
        # order of start.
        managed.sort(key=lambda job: (job.spec.submit_s, job.raw_id))
        for job in self.in_hand.each(managed):
            self._recognise(job)
        managed.sort(key=lambda job: (job.start_s or seen.at_s, job.raw_id))
        down = {node.name: node.state for node in seen.nodes if "DOWN" in node.state}
        for job in self.in_hand.each(managed):
            under_way = self.preemptions.get(job.key)
            self._runs.measure(job, under_way.requeue_sent_s if under_way else None, seen.at_s)
            record = self._records[job.key]
            record = changed(record, lane=self._lane_of(job, record.lane))
            self.put(self._follow_state(job, record, seen.at_s, down))
        for job in managed:
            # Not earlier: if the ledger fails, the job must be processed again in the next cycle.
            shown[job.key].account = self._records[job.key]
            shown[job.key].learned = self._runs.learned(job.key)
        self._observe_absences(shown, seen.at_s)
        self._as_before = shown

    def _compared(
        self, jobs: Iterable[JobStatus]
    ) -> tuple[dict[str, _Followed], Sequence[JobStatus]]:
        """Compare jobs with the last observation; return all of them by key, and the changed ones.

        Few of thousands of waiting jobs change: for the others the driver returns the same object
        as before, and their account and runs have not been written since.
        """
        shown: dict[str, _Followed] = {}
        new: list[JobStatus] = []
        for job in self.in_hand.each(jobs):
            key = job.key
            one = self._as_before.get(key)
            record = self._records.get(key) if one is None or one.job is not job else None
            if record is not None and self._is_another_job(job, record):
                self._drop(key)
                self.reused.add(key)
                one = None
            if one is None or one.job is not job or one.started_managed:
                one = self._newly_shown(job, one)
                new.append(job)
            elif one.account is not self._records.get(key) or (
                one.learned != self._runs.learned(key)
            ):
                new.append(job)
            shown[key] = one
        return shown, new

    def _newly_shown(self, job: JobStatus, before: _Followed | None) -> _Followed:
        manage = self._config.manage
        why = why_unmanaged(job, manage)
        if not why or not self._started_managed(job, before):
            return _Followed(job, why)
        why = why_unmanaged(job, manage, started_managed=True)
        return _Followed(job, why, started_managed=True)

    def _started_managed(self, job: JobStatus, before: _Followed | None) -> bool:
        """Whether a job that would not be managed now was managed when its present run started.

        It was if its run is in the ledger, if it was managed when last seen waiting, or if it
        started with a priority that only managed jobs get.
        """
        if any(run.end_s is None for run in self._runs.of(job.key)):
            return True
        if job.state is None:
            record = self._records.get(job.key)
            return record is not None and record.ended_s is None
        if job.state is not JobState.RUNNING:
            return False
        waited_managed = before is not None and not before.unmanaged
        return waited_managed or bands.starts_managed(job.priority, self._config.priority.write)

    def _lane_of(self, job: JobStatus, before: Lane) -> Lane:
        """Return the lane of a job, unless it waits at a prompt and is admitted (``lane.py``).

        A run stays in the lane in which it started, even if its owner forbids its requeue later.
        (Slurm itself does that to a waiting job that it ends because its node is gone.)
        """
        if not why_cannot_be_requeued(job.spec):
            return Lane.PREEMPTIBLE
        waits = job.state is JobState.PENDING
        if before is Lane.PREEMPTIBLE:
            return Lane.IDLE_ONLY if waits or not job.spec.batch else before
        return Lane.IDLE_ONLY if waits and job.spec.batch else before

    def put_in_lane(self, key: str, lane: Lane, now_s: float) -> None:
        """Change the lane of a job at a prompt that waits; committed with the other changes."""
        record = self._records[key]
        acts = self._config.controller.mode != "shadow"
        if acts and lane is Lane.INTERACTIVE and record.lane is not lane:
            self.note(now_s, "admitted", key, "goes first, as a job at a prompt")
        self.put(changed(record, lane=lane))

    def _recognise(self, job: JobStatus) -> None:
        """Find the job's account, or open one."""
        record, spec = self._known(job.key), job.spec
        if record is not None and not self._is_another_job(job, record):
            # The account, the partition and the time limit may be changed. A submission time before
            # the first one shows that the clock was set back.
            self.put(
                changed(
                    record,
                    account=spec.account,
                    partition=",".join(spec.partitions),
                    time_limit_s=spec.time_limit_s,
                    born_after_s=min(record.born_after_s, max(0.0, spec.submit_s)),
                )
            )
            return
        if record is not None:
            self._drop(job.key)
        self.put(self._opened(job))
        if job.state is None and (job.end_s or 0.0) < self._first_look_s:
            self._told_ended.add(job.key)

    def _known(self, key: str) -> JobAccount | None:
        """Return a job's account; that of a job which ended long ago is read from the ledger."""
        known = key in self._records or key in self._forgotten
        if not known and (record := self._ledger.jobs.one(key)):
            self._records[key] = record
            self._runs.fetch(key)
        return self._records.get(key)

    def _opened(self, job: JobStatus) -> JobAccount:
        # Slurm resets the submission at a requeue: accounting knows the original one.
        record = JobAccount.opened(job, self._ledger.next_number())
        if not why_cannot_be_requeued(job.spec):
            return record
        # If nothing is known of a run, the priority with which it started may show whether it was
        # managed.
        written_as = self._config.priority.write
        preemptible = written_as == "pinned" and bands.starts_managed(job.priority, written_as)
        return record if preemptible else replace(record, lane=Lane.IDLE_ONLY)

    def _is_another_job(self, job: JobStatus, record: JobAccount) -> bool:
        """Whether Slurm has given the id of a job to a new one.

        Until its first requeue a job's submission time never changes. A job that ended and was
        requeued by hand is still the same: it has one restart more. A job with fewer restarts than
        before is the same if it was submitted before what was last seen of it: a slurmctld that was
        killed has forgotten a requeue. If a job ended before it was submitted, Slurm's clock was
        set back, so its times cannot be compared.
        """
        submit_s = job.spec.submit_s
        if not job.restarts:
            exact = record.born_after_s > 0.0
            return submit_s != record.submitted_s if exact else submit_s > record.submitted_s
        if job.state is None and job.end_s is not None and job.end_s < submit_s:
            return False
        if job.restarts < record.restarts:
            # Start times, unlike ``queued_s``, are not shifted when the clock is set.
            starts_s = (run.start_s for run in self._runs.of(job.key))
            return submit_s > max(record.queued_s, *starts_s, record.submitted_s)
        if job.restarts > record.restarts or record.ended_s is None:
            return False
        # A slurmctld that was killed comes back with a job that has ended since its last save, and
        # requeues it if its node has failed.
        its_owner = (job.spec.user, job.spec.name) == (record.user, record.name)
        return submit_s > record.ended_s + (STATE_SAVED_WITHIN_S if its_owner else 0.0)

    def _drop(self, key: str) -> None:
        self._forgotten.add(key)
        self._as_before.pop(key, None)
        self._ending.discard(key)
        self._told_ended.discard(key)
        self._records.pop(key, None)
        self._lifecycles.forget(key)
        self._runs.forget(key)
        self._changed_jobs.discard(key)
        self._preemptions = [one for one in self._preemptions if one.key != key]
        for costs in (self._awaited_costs, self._changed_costs):
            for of in [of for of in costs if of[0] == key]:
                del costs[of]

    def _follow_state(
        self, job: JobStatus, record: JobAccount, now_s: float, down: Mapping[str, str]
    ) -> JobAccount:
        """Update a job's account with its starts, requeues and end.

        ``down`` maps failed nodes to their states.
        """
        if job.restarts < record.restarts:
            # slurmctld was killed and restarted from its last saved state.
            accounted = min(record.accounted_restarts, job.restarts)
            record = replace(record, restarts=job.restarts, accounted_restarts=accounted)
        if job.restarts > record.restarts:
            record = self._follow_requeue(job, record, now_s, down)
        elif job.state is not JobState.RUNNING:
            self.preemption_event(job.key, NotRunning())
        if job.state is JobState.RUNNING:
            record = self._follow_start(job, record)
        if job.state is not None:
            return changed(record, ended_s=None)
        if record.ended_s is None:
            self._ending.add(job.key)
        self.nomination_event(job.key, Started())
        self.preemption_event(job.key, Ended())
        return changed(record, ended_s=record.ended_s or job.end_s or now_s)

    def _follow_requeue(
        self, job: JobStatus, record: JobAccount, now_s: float, down: Mapping[str, str]
    ) -> JobAccount:
        """Record a requeue; it was a preemption if the job had been signalled and its nodes are up.

        Programs may requeue themselves when they get the signal.
        """
        before = self._as_before.get(job.key)
        held_before = before.job.allocation.keys() if before else frozenset[str]()
        failed = min(held_before & down.keys(), default="")
        # Slurm shows the time of a requeue as the submission time of a pending job.
        self.expire_signal(job.key, job.spec.submit_s)
        under_way = self.preemptions.get(job.key)
        sent_s = under_way.requeue_sent_s if under_way else None
        left_before = job.state is JobState.PENDING and job.spec.submit_s < (sent_s or 0.0) - 1.0
        by_others = bool(failed) and (sent_s is None or left_before)
        restart = f"restart {job.restarts}"
        if under_way is not None and under_way.signalled_s is not None and not by_others:
            kind = "preempted" if under_way.cause is Cause.FOR_JOB else IDLE_REQUEUED
            self.note(now_s, kind, job.key, restart, under_way.charged)
        elif failed:
            self._node_failures.add((job.key, job.restarts))
            self.note(now_s, "node-failed", job.key, f"{failed} is {down[failed]}, {restart}")
        else:
            self.note(now_s, "requeued", job.key, restart)
        self.put(replace(record, restarts=job.restarts, queued_s=self._left_s(job, now_s)))
        self.preemption_event(job.key, Requeued(now_s, by_others))
        return self._records[job.key]

    def _count_preemption(self, of: Preemption, now_s: float) -> None:
        record = self._records[of.key]
        self._record_preemption(record, of, now_s)
        self._await_cost(record, of, now_s)
        self._note_loss(record, of, now_s)
        self.put(
            replace(
                record,
                preemptions=record.preemptions + 1,
                preempted_by=of.preemptor,
                preempted_at_s=record.queued_s,
            )
        )

    def _count_idle_requeue(self, of: Preemption, now_s: float) -> None:
        """Record a requeue for idle GPUs. It is charged to no preemptor and does not protect the
        job from preemption."""
        record = self._records[of.key]
        self._record_preemption(record, of, now_s)
        self.put(replace(record, idle_requeues=record.idle_requeues + 1))
        if run := self._runs.last_ended(of.key):
            self._runs.keep(replace(run, idle_s=0.0))

    def _record_preemption(self, record: JobAccount, of: Preemption, now_s: float) -> None:
        run = self._runs.last_ended(of.key)
        preemptor = self._records.get(of.preemptor)
        self._preemptions.append(
            PreemptionRecord(
                key=of.key,
                for_job=of.preemptor,
                at_s=now_s,
                run_start_s=run.start_s if run else None,
                signalled_s=of.signalled_s,
                tier=record.tier,
                for_tier=preemptor.tier if preemptor else None,
                cause=of.cause,
                late_s=self._late_s(of, (run and run.end_s) or now_s),
            )
        )

    def _mark_signalled(self, key: str, now_s: float, *, heard: bool) -> None:
        """Record that a job's present run was signalled for its idle GPUs."""
        record = self._records.get(key)
        if record is None or record.idle_signalled_run == record.restarts:
            return
        self.put(replace(record, idle_signalled_run=record.restarts))
        if heard:
            gpus_s = f"{self._config.idle_gpus.leave_after_s:g} s"
            text = f"no GPU used for {gpus_s}, restart {record.restarts}"
            self.note(now_s, IDLE_SIGNALLED, key, text)

    def _await_cost(self, record: JobAccount, of: Preemption, now_s: float) -> None:
        runs = [run for run in self.runs_of(of.key) if run.end_s is not None]
        asked_s = of.signalled_s or of.requeue_sent_s
        if not runs or asked_s is None:
            return
        before = self._as_before.get(of.key)
        # It may have been requeued twice since it was last observed.
        restarts = before.job.restarts if before else record.restarts - 1
        last = runs[-1]
        cost = PreemptionCost(of.key, last.start_s, restarts, now_s, asked_s, last.gpus)
        self.put_cost(cost)

    def _left_s(self, job: JobStatus, now_s: float) -> float:
        """Return when a requeued job left its nodes; it may run again by now, or have ended."""
        runs = (run for run in self._runs.of(job.key) if run.start_s != job.start_s)
        ended = (run for run in runs if run.end_s is not None)
        last = max(ended, key=lambda run: run.began_s, default=None)
        left_s = last.end_s if last else None
        if left_s is None:
            left_s = now_s if job.start_s is None else job.spec.submit_s
        return left_s if job.start_s is None else min(left_s, job.start_s)

    def node_failed(self, record: JobAccount, now_s: float) -> None:
        """Note that, by accounting, the run before a job's last requeue ended with its node."""
        if (record.key, record.restarts) not in self._node_failures:
            self._node_failures.add((record.key, record.restarts))
            text = f"by Slurm's accounting, restart {record.restarts}"
            self.note(now_s, "node-failed", record.key, text)

    def _note_loss(self, record: JobAccount, of: Preemption, now_s: float) -> None:
        """Charge the cost of a preemption to the users whose jobs caused it."""
        owner = self.owner_of(of.preemptor)
        last = self._runs.last_ended(record.key)
        if owner is None or last is None:
            return
        for loss in losses_of(
            now_s,
            owner[0],
            record.user,
            last.gpus,
            last.elapsed_s,
            self._late_s(of, last.end_s or now_s),
        ):
            self.recent_losses(now_s).add(loss)

    def _late_s(self, of: Preemption, end_s: float) -> float:
        """Return by how much longer than the site gives a victim has kept its GPUs."""
        if of.signalled_s is None or of.grace_until_s is None:
            return 0.0
        config = self._config.preemption
        grace_s = asked(config).grace_s if of.asked else config.grace_s
        return late_s(of.signalled_s, of.grace_until_s, end_s, grace_s)

    def recent_losses(self, now_s: float) -> RecentLosses:
        """Return what each user's jobs have cost others in the window that ends now."""
        if self._losses is None:
            config = self._config.preemption
            since_s = now_s - config.budget_window_s
            losses = self._ledger.preemptions.losses_since(since_s)
            self._losses = RecentLosses(config, losses)
        return self._losses

    def _follow_start(self, job: JobStatus, record: JobAccount) -> JobAccount:
        if record.first_started_s is None:
            first_s = min((i.start_s for i in self._runs.of(job.key)), default=job.start_s)
            record = replace(
                record, first_started_s=first_s, start_number=self._ledger.next_number()
            )
        self.nomination_event(job.key, Started())
        self.preemption_event(job.key, Running())
        return record

    def follow(self, plan: Plan, now_s: float) -> None:
        """Record the decided tiers. A job to be promoted enters the top tier when it is."""
        for key, decision in self.in_hand.each(plan.decisions.items()):
            record, tier = self._records.get(key), decision.tier
            if record is None or tier in (None, record.tier) or decision.promoted:
                continue
            # The first tier of a job is not a demotion.
            known = key in self._planned and record.lane is Lane.PREEMPTIBLE
            if tier > record.tier and known:
                self.note(now_s, "demoted", key, f"from tier {record.tier} to tier {tier}")
            number = self._ledger.next_number()
            self.put(replace(record, tier=tier, tier_entered_s=now_s, entry_number=number))
        self._planned = plan.decisions

    def _observe_absences(self, present: Collection[str], now_s: float) -> None:
        """Record the end of jobs that Slurm no longer shows."""
        # These have changes that the ledger lacks, perhaps because the last commit failed.
        uncommitted = self._changed_jobs | self._runs.changed_keys
        for key, record in self.in_hand.each(list(self._records.items())):
            if key in present:
                continue
            if record.ended_s is not None:
                if key not in uncommitted and not self._awaits_accounting(key):
                    # It has ended and its figures are final: keep it in the ledger only.
                    self._tell_end_of(key)
                    self._records.pop(key)
                    self._runs.let_go(key)
                continue
            self._runs.close_as_last_seen(key)
            # Accounting knows what happened since it was last seen.
            unknown = min(record.accounted_restarts, record.restarts - 1)
            self.nomination_event(key, Started())
            self.preemption_event(key, Ended())
            self.put(
                replace(
                    record,
                    ended_s=now_s,
                    accounted_restarts=unknown if self.has_accounting else record.restarts,
                )
            )
            self._ending.add(key)
        self._told_ended = {key for key in self._told_ended if key in present}

    # What is reported

    def accounting_failed(self) -> None:
        """Count a failed query to accounting."""
        self._stats.accounting_failures += 1

    def take_stats(self) -> CycleStats:
        """Return what has happened since the last call.

        The end of a job is reported once, when accounting has confirmed its service; an end before
        the first observation is not reported.
        """
        for key in self.in_hand.each(list(self._ending)):
            if not self._awaits_accounting(key):
                self._tell_end_of(key)
        stats, self._stats = self._stats, CycleStats()
        return stats

    def _tell_end_of(self, key: str) -> None:
        record = self._records[key]
        if key not in self._ending or record.ended_s is None:
            return
        self._ending.remove(key)
        if key in self._told_ended:
            return
        self._told_ended.add(key)
        runs = self._runs.of(key)
        if not runs:
            return
        # If there are fewer runs, the job was requeued and ended while it was pending.
        ended_by_run = len(runs) > record.restarts
        end_s = max(run.end_s or 0.0 for run in runs) if ended_by_run else record.ended_s
        jct_s = max(0.0, end_s - record.submitted_s)
        queued_s = max(0.0, jct_s - self._runs.executed_s(key))
        self._stats.ended.append(EndedJob(record.tier, jct_s, queued_s))

    # What is known of a job

    @property
    def runs(self) -> Runs:
        """The runs of all jobs in the job store."""
        return self._runs

    def ran_s(self, key: str, restarts: int) -> float:
        """Return how long the run after this many restarts lasted; 0.0 if runs are missing."""
        record = self._records.get(key)
        mine = sorted(self._runs.of(key), key=lambda run: run.began_s)
        if record is None or len(mine) != record.restarts + 1 or restarts >= len(mine):
            return 0.0
        return mine[restarts].elapsed_s

    def sample_of(self, key: str) -> Sample | None:
        """Return what there is to learn from a job; None unless it has run and ended."""
        record = self._records.get(key)
        if record is None or record.ended_s is None or not self._runs.of(key):
            return None
        ran_s, service_gpu_s = self._runs.executed_s(key), self._runs.attained_gpu_s(key)
        who = (record.user, record.name)
        return Sample(record.ended_s, *who, ran_s, service_gpu_s, record.time_limit_s)

    def is_doubtful(self, key: str) -> bool:
        """Whether a run of the job is missing, or an ended run is only estimated."""
        record = self._records[key]
        missing = record.accounted_restarts < record.restarts
        return missing or any(
            not run.confirmed and run.end_s is not None for run in self._runs.of(key)
        )

    def _awaits_accounting(self, key: str) -> bool:
        return self.has_accounting and self.is_doubtful(key)
