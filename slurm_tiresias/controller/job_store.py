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
from typing import Final

from slurm_tiresias.controller import bands
from slurm_tiresias.controller.accounts import Accounts
from slurm_tiresias.controller.ends import Completion, Ends
from slurm_tiresias.controller.event_log import EventLog
from slurm_tiresias.controller.gpu_weights import gpu_weights
from slurm_tiresias.controller.in_hand import InHand
from slurm_tiresias.controller.lifecycles import OWN_BOOKS, Lifecycles
from slurm_tiresias.controller.manage import why_unmanaged
from slurm_tiresias.controller.node_records import NodeRecords
from slurm_tiresias.controller.runs import Runs
from slurm_tiresias.core.features.failed_runs import EARLY_S
from slurm_tiresias.core.features.news import Happened, Remember
from slurm_tiresias.core.lifecycle.nomination import Started
from slurm_tiresias.core.lifecycle.preemption import Cause, Ended, NotRunning, Requeued, Running
from slurm_tiresias.model import JobAccount, JobState, JobStatus, Plan
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Observation
from slurm_tiresias.store.changes import Changes
from slurm_tiresias.store.ledger import Ledger, changed
from slurm_tiresias.store.records import PreemptionCost

log = logging.getLogger("tiresias-slurm")

CLOCK_WANDERS_S = 5.0
"""The most that clocks drift apart between two observations; a larger step means a set clock."""

GIVEN_BACK: Final = "an administrator has handed it back to Slurm (tiresias-slurm hand-back)"


@dataclass(slots=True)
class CycleStats:
    """What has happened since the last successful cycle. ``events`` counts by kind."""

    events: Counter[str] = field(default_factory=Counter)
    ended: list[Completion] = field(default_factory=list)
    accounting_failures: int = 0
    costs: list[PreemptionCost] = field(default_factory=list)
    """Preemptions whose cost has become known, or is known to be unavailable."""


@dataclass(slots=True, eq=False)
class _LastSeen:
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
        self._config = config
        self.in_hand = InHand()
        self.changes = changes = Changes(ledger)
        self.runs = Runs(changes, config.controller.interval_s, accounting)
        self.accounts = Accounts(changes, config, self.runs, self.in_hand)
        self.events = EventLog(changes, self.accounts, self._shown)
        self.lifecycles = Lifecycles(
            changes, config, self.accounts, self.runs, self.events, self._shown
        )
        self.nodes = NodeRecords(changes)
        self.ends = Ends(self.accounts, self.runs, self.in_hand)
        self._as_before: dict[str, _LastSeen] = {}
        """The jobs of the last observation, by key."""
        self._planned: Container[str] = frozenset(self.accounts.all)
        """The jobs that had a tier before: those of the last plan, or at first of the ledger."""
        self.reused: set[str] = set()
        """Known jobs whose ids were found to belong to other jobs, until the caller clears it."""
        self.users_over_budget: frozenset[str] = frozenset()
        """The users that may not preempt, as of the last plan."""
        self.accounting_failures = 0
        """How many queries to accounting have failed since ``take_stats``."""
        self._looked: tuple[float, float] | None = None
        """The time of the last observation, by Slurm's clock and by a monotonic one."""
        self._first_look_s = math.inf
        self._node_failures: set[tuple[str, int]] = set()
        """Runs known to have ended with their nodes, by job and number of restarts."""

    def _shown(self, key: str) -> JobStatus | None:
        """Return a job as it was last observed; None if it was not."""
        before = self._as_before.get(key)
        return before.job if before else None

    def why_unmanaged(self, key: str) -> str:
        """Return why a job of the last observation is not managed; "" for a managed job."""
        return self._as_before[key].unmanaged

    def commit(self) -> None:
        """Write all changes in one transaction."""
        if self._looked:
            self.events.fold(self._looked[0])
        self.lifecycles.save()
        self.changes.commit()

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
        self.lifecycles.shift(set_by_s)
        self.runs.clock_was_set(set_by_s)
        self.accounts.clock_was_set(set_by_s)
        self._first_look_s += set_by_s
        return set_by_s

    def observe(self, seen: Observation) -> None:
        """Take in what Slurm shows: new jobs, running time, ends, requeues."""
        if self._first_look_s == math.inf:
            self.changes.ledger.note_first_look(seen.at_s)
        self._first_look_s = min(self._first_look_s, seen.at_s)
        self.runs.gpu_weights = gpu_weights(seen.partitions, self._config, self.runs.gpu_weights)
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
            under_way = self.lifecycles.preemptions.get(job.key)
            self.runs.measure(job, under_way.requeue_sent_s if under_way else None, seen.at_s)
            record = self.accounts.all[job.key]
            self.accounts.put(self._follow_state(job, record, seen.at_s, down))
        for job in managed:
            # Not earlier: if the ledger fails, the job must be processed again in the next cycle.
            shown[job.key].account = self.accounts.all[job.key]
            shown[job.key].learned = self.runs.learned(job.key)
        self._observe_absences(shown, seen.at_s)
        self._as_before = shown

    def _compared(
        self, jobs: Iterable[JobStatus]
    ) -> tuple[dict[str, _LastSeen], Sequence[JobStatus]]:
        """Compare jobs with the last observation; return all of them by key, and the changed ones.

        Few of thousands of waiting jobs change: for the others the driver returns the same object
        as before, and their account and runs have not been written since.
        """
        shown: dict[str, _LastSeen] = {}
        new: list[JobStatus] = []
        for job in self.in_hand.each(jobs):
            key = job.key
            one = self._as_before.get(key)
            record = self.accounts.of(key) if one is None or one.job is not job else None
            if record is not None and self.accounts.is_another_job(job, record):
                self._drop(key)
                self.reused.add(key)
                one = None
            if (
                one is None
                or one.job is not job
                or one.started_managed
                or one.account is not self.accounts.of(key)
                or one.learned != self.runs.learned(key)
            ):
                one = self._newly_shown(job, one)
                new.append(job)
            shown[key] = one
        return shown, new

    def _newly_shown(self, job: JobStatus, before: _LastSeen | None) -> _LastSeen:
        manage = self._config.manage
        account = self.accounts.of(job.key)
        if account is not None and account.handed_back:
            return _LastSeen(job, GIVEN_BACK)
        why = why_unmanaged(job, manage)
        if not why or not self._started_managed(job, before):
            return _LastSeen(job, why)
        why = why_unmanaged(job, manage, started_managed=True)
        return _LastSeen(job, why, started_managed=True)

    def _started_managed(self, job: JobStatus, before: _LastSeen | None) -> bool:
        """Whether a job that would not be managed now was managed when its present run started.

        It was if its run is in the ledger, if it was managed when last seen waiting, or if it
        started with a priority that only managed jobs get.
        """
        if any(run.end_s is None for run in self.runs.of(job.key)):
            return True
        if job.state is None:
            record = self.accounts.of(job.key)
            return record is not None and record.ended_s is None
        if job.state is not JobState.RUNNING:
            return False
        waited_managed = before is not None and not before.unmanaged
        return waited_managed or bands.starts_managed(job.priority, self._config.priority.write)

    def _recognise(self, job: JobStatus) -> None:
        """Find the job's account, or open one."""
        account = self.accounts.known(job.key)
        if account is not None and not self.accounts.is_another_job(job, account):
            self.accounts.follow(account, job.spec)
            return
        if account is not None:
            self._drop(job.key)
        self.accounts.open(job)
        if job.state is None and (job.end_s or 0.0) < self._first_look_s:
            self.ends.ended_before(job.key)
            self.accounts.put(replace(self.accounts.all[job.key], failed_run=job.restarts))

    def _drop(self, key: str) -> None:
        """Forget a job whose id was given to another job."""
        self._as_before.pop(key, None)
        self.accounts.drop(key)
        self.ends.forget(key)
        self.lifecycles.forget(key)
        self.runs.let_go(key)

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
            record = replace(record, failed_run=None, is_restarted=False)
        if job.restarts > record.restarts:
            record = self._follow_requeue(job, record, now_s, down)
        elif job.state is not JobState.RUNNING:
            self.lifecycles.preemption_event(job.key, NotRunning())
        if job.state is JobState.RUNNING:
            record = self._follow_start(job, record)
        if job.state is not None:
            return changed(record, ended_s=None)
        if record.ended_s is None:
            self.ends.has_ended(job.key)
        self.lifecycles.nomination_event(job.key, Started())
        self.lifecycles.preemption_event(job.key, Ended())
        return changed(record, ended_s=record.ended_s or job.end_s or now_s)

    def _follow_requeue(
        self, job: JobStatus, record: JobAccount, now_s: float, down: Mapping[str, str]
    ) -> JobAccount:
        """Record a requeue; it was a preemption if the job had been signalled and its nodes are up.

        Programs may requeue themselves when they get the signal.
        """
        before = self._shown(job.key)
        held_before = before.allocation.keys() if before else frozenset[str]()
        failed = min(held_before & down.keys(), default="")
        # Slurm shows the time of a requeue as the submission time of a pending job.
        self.lifecycles.expire_signal(job.key, job.spec.submit_s)
        under_way = self.lifecycles.preemptions.get(job.key)
        sent_s = under_way.requeue_sent_s if under_way else None
        left_before = job.state is JobState.PENDING and job.spec.submit_s < (sent_s or 0.0) - 1.0
        by_others = bool(failed) and (sent_s is None or left_before)
        restart = f"restart {job.restarts}"
        if under_way is not None and under_way.signalled_s is not None and not by_others:
            for_job = under_way.cause is Cause.FOR_JOB
            kind = "preempted" if for_job else OWN_BOOKS[under_way.cause].requeued
            run, limit_s = self.runs.last_ended(job.key), job.spec.time_limit_s
            text = restart
            if under_way.cause is Cause.HUNG and run is not None and limit_s is not None:
                left_h = run.gpus * max(0.0, limit_s - run.elapsed_s) / 3600.0
                text = f"{left_h:.1f} GPU-h before its time limit, {restart}"
            self.events.note(now_s, kind, job.key, text, under_way.charged)
        elif failed:
            self._node_failures.add((job.key, job.restarts))
            self.events.note(
                now_s, "node-failed", job.key, f"{failed} is {down[failed]}, {restart}"
            )
        elif not (record.is_restarted and record.failed_run == record.restarts):
            self.events.note(now_s, "requeued", job.key, restart)
        record = self._with_failure(job, record, failed)
        self.accounts.put(
            replace(record, restarts=job.restarts, queued_s=self.runs.left_s(job, now_s))
        )
        self.lifecycles.preemption_event(job.key, Requeued(now_s, by_others))
        return self.accounts.all[job.key]

    def _with_failure(self, job: JobStatus, record: JobAccount, failed: str) -> JobAccount:
        """Return the account of a requeued job with its failures in a row; ``failed`` is a node of
        its that has failed, "" if none has."""
        last, under_way = self.runs.last_ended(job.key), self.lifecycles.preemptions.get(job.key)
        if failed and last is not None:
            self.runs.keep(replace(last, outcome="NODE_FAIL"))
            # Slurm restarts it, and would delay that by two minutes.
            return replace(
                record, failed_run=record.restarts, is_restarted=True, avoided_nodes=failed
            )
        early = last is not None and last.elapsed_s < EARLY_S
        if under_way is not None and under_way.signalled_s is not None:
            # A short run that was preempted shows nothing: the job may fail again.
            return record if early else replace(record, failures_in_a_row=0)
        if record.failed_run == record.restarts or job.held:
            return record
        if early:
            # Its script, its user or an administrator requeued it.
            return replace(record, failures_in_a_row=record.failures_in_a_row + 1)
        return record

    def node_failed(self, record: JobAccount, now_s: float) -> None:
        """Note that, by accounting, the run before a job's last requeue ended with its node."""
        if (record.key, record.restarts) not in self._node_failures:
            self._node_failures.add((record.key, record.restarts))
            text = f"by Slurm's accounting, restart {record.restarts}"
            self.events.note(now_s, "node-failed", record.key, text)

    def _follow_start(self, job: JobStatus, record: JobAccount) -> JobAccount:
        if record.first_started_s is None:
            first_s = min((i.start_s for i in self.runs.of(job.key)), default=job.start_s)
            record = replace(
                record, first_started_s=first_s, start_number=self.changes.ledger.next_number()
            )
        self.lifecycles.nomination_event(job.key, Started())
        self.lifecycles.preemption_event(job.key, Running())
        return record

    def record(self, news: Iterable[Happened | Remember], now_s: float) -> None:
        """Record what the core says is to be; committed with the other changes."""
        for one in news:
            account = self.accounts.of(one.job_id)
            match one:
                case Happened(job_id, kind, text, once):
                    note = self.events.note_once if once else self.events.note
                    note(now_s, kind, job_id, text)
                case Remember(_, fields, None):
                    if account is not None:
                        self.accounts.put(replace(account, **fields))
                case Remember(job_id, fields, float(start_s)):
                    if run := self.runs.run(job_id, start_s):
                        self.runs.keep(replace(run, **fields))

    def follow(self, plan: Plan, now_s: float, *, promotes: bool = True) -> None:
        """Record the decided tiers. A job to be promoted enters the top tier when it is."""
        for key, decision in self.in_hand.each(plan.decisions.items()):
            record, tier = self.accounts.of(key), decision.tier
            if record is None or tier in (None, record.tier):
                continue
            if decision.promoted and not promotes:
                continue
            # The first tier of a job is not a demotion.
            known = key in self._planned and record.is_preemptible
            if tier > record.tier and known:
                self.events.note(now_s, "demoted", key, f"from tier {record.tier} to tier {tier}")
            number = self.changes.ledger.next_number()
            self.accounts.put(replace(record, tier=tier, tier_entered_s=now_s, entry_number=number))
        self._planned = plan.decisions

    def _observe_absences(self, present: Collection[str], now_s: float) -> None:
        """Record the end of jobs that Slurm no longer shows."""
        # These have changes that the ledger lacks, perhaps because the last commit failed.
        ledger = self.changes.ledger
        uncommitted = {one.key for one in self.changes.put_off(ledger.jobs)}
        uncommitted |= {run.key for run in self.runs.changed}
        for key, record in self.in_hand.each(list(self.accounts.all.items())):
            if key in present:
                continue
            if record.ended_s is not None:
                if key not in uncommitted and not self.accounts.awaits_accounting(key):
                    # It has ended and its figures are final: keep it in the ledger only.
                    self.ends.report(key)
                    self.accounts.let_go(key)
                    self.runs.let_go(key)
                continue
            self.runs.close_as_last_seen(key)
            # Accounting knows what happened since it was last seen.
            unknown = min(record.accounted_restarts, record.restarts - 1)
            self.lifecycles.nomination_event(key, Started())
            self.lifecycles.preemption_event(key, Ended())
            self.accounts.put(
                replace(
                    record,
                    ended_s=now_s,
                    accounted_restarts=unknown if self.runs.has_accounting else record.restarts,
                )
            )
            self.ends.has_ended(key)
        self.ends.keep(present)

    def take_stats(self) -> CycleStats:
        """Return what has happened since the last call."""
        failures, self.accounting_failures = self.accounting_failures, 0
        return CycleStats(
            self.events.take_counts(),
            self.ends.take(),
            failures,
            self.lifecycles.costs.take_known(),
        )
