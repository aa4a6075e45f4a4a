"""Accounting: from what Slurm shows now and what the ledger remembers to what a decision needs.

Attained service is GPUs x running seconds over all incarnations. A running incarnation is
measured by Slurm's own clock at each observation. One that has ended is taken from Slurm where it
still shows it, and from accounting (``sacct -D``) where it does not: it may have been requeued, or
have come and gone, between two observations or while no controller ran.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_tiresias.config import Config
from slurm_tiresias.controller.ledger import (
    EventRecord,
    IncarnationRecord,
    JobRecord,
    Ledger,
    PreemptionRecord,
    changed,
    without_claim,
    without_intent,
)
from slurm_tiresias.controller.manage import why_unmanaged
from slurm_tiresias.model import JobState, Plan
from slurm_tiresias.policy.charge import BY_JOB, EndedRun, RecentService, payer_of
from slurm_tiresias.policy.tiers import tier_of
from slurm_tiresias.slurm.protocol import Observation, ObservedJob

log = logging.getLogger("tiresias-slurm")

BY_HISTORY = "2d-history"

CLOCK_WANDERS_S = 5.0
"""Between two looks; what is more has been set."""

OF_OUR_OWN = (
    "queued_s",
    "claimed_s",
    "claim_free_s",
    "vacating_since_s",
    "requeue_sent_s",
    "gave_up_s",
)
"""The times of a record from which on something is waited for."""

HAVE_RUN = ("COMPLETED", "FAILED")
"""How Slurm calls jobs that have ended and cannot but have run, be it for less than a second."""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that has run and is over: the tier it was in at the end, the time from its submission
    to its end (JCT), and how much of that it did not run."""

    tier: int
    jct_s: float
    queued_s: float


@dataclass(slots=True)
class News:
    """What has happened since the last good cycle. ``events`` counts by kind."""

    events: Counter[str] = field(default_factory=Counter)
    ended: list[EndedJob] = field(default_factory=list)
    accounting_failures: int = 0


@dataclass(slots=True, eq=False)
class Shown:
    """A job as Slurm showed it last."""

    job: ObservedJob
    unmanaged: str
    """Why it is left alone; empty for a managed job."""
    record: JobRecord | None = None
    settled: bool = True
    """False once something of its incarnations has been learned since."""
    learned: int = 0
    """How often that has happened so far."""


class Book:
    """The ledger in memory: what is known of each managed job, and what changed since."""

    def __init__(self, ledger: Ledger, config: Config, accounting: bool) -> None:
        self._ledger = ledger
        self._config = config
        self.has_accounting = accounting
        self._records = ledger.jobs()
        self._incarnations = ledger.incarnations()
        self._as_before: dict[str, Shown] = {}
        """The jobs of the last observation, by key."""
        self._followed: frozenset[str] = frozenset()
        """The jobs of the last plan that was followed."""
        self._forgotten: set[str] = set()
        self._changed_jobs: set[str] = set()
        self._changed_incarnations: set[tuple[str, float]] = set()
        self._events: list[EventRecord] = []
        self._preemptions: list[PreemptionRecord] = []
        self._recent: RecentService | None = None
        self._inherited_gpu_s: dict[str, float] = {}
        """What jobs began with that have started: settled once and for all."""
        self._looked: tuple[float, float] | None = None
        """When Slurm was last looked at, by its own clock and by one that nobody sets."""
        self._set_by_s: dict[tuple[str, float], float] = {}
        """By how much Slurm's clock has been set while an incarnation ran."""
        self._news = News()
        self._first_look_s = math.inf
        self._ending: dict[str, float | None] = {}
        """Jobs that are over, and whose service may still be an estimate. The end of those that
        Slurm says have run, however short a time."""
        self._told_ended: set[str] = set()
        """Jobs whose end is news no more, while Slurm still shows them."""

    def record(self, key: str) -> JobRecord | None:
        return self._records.get(key)

    def records(self) -> Mapping[str, JobRecord]:
        return self._records

    def shown(self, key: str) -> Shown:
        """A job of the last observation."""
        return self._as_before[key]

    def next_number(self) -> int:
        """For whatever is kept in the order in which it happened."""
        return self._ledger.next_number()

    def put(self, record: JobRecord) -> None:
        """Replace what is known of a job; committed with the rest."""
        if self._records.get(record.key) != record:
            self._records[record.key] = record
            self._changed_jobs.add(record.key)

    def note(self, at_s: float, kind: str, job_id: str, text: str, other: str = "") -> None:
        """Remember an event; committed with the rest."""
        self._events.append(EventRecord(at_s, kind, job_id, other, text))
        self._news.events[kind] += 1
        whom = f" for job {other}" if other else ""
        log.info("%s%s%s: %s", f"job {job_id} " if job_id else "", kind, whom, text)

    def commit(self) -> None:
        """Write all changes in one transaction."""
        if not (self._changed_jobs or self._changed_incarnations or self._events):
            return
        with self._ledger.transaction():
            self._ledger.forget(self._forgotten)
            self._ledger.save_jobs(self._records[key] for key in self._changed_jobs)
            self._ledger.save_incarnations(
                self._incarnations[key][start] for key, start in self._changed_incarnations
            )
            self._ledger.add_preemptions(self._preemptions)
            self._ledger.add_events(self._events)
        self._forgotten.clear()
        self._changed_jobs.clear()
        self._changed_incarnations.clear()
        self._preemptions.clear()
        self._events.clear()

    # Taking in an observation

    def follow_clock(self, at_s: float, steady_s: float) -> bool:
        """See whether Slurm's clock was set since the last look; ``steady_s`` is of a clock that
        cannot be. Nobody is to have run, waited or rested for that time."""
        looked, self._looked = self._looked, (at_s, steady_s)
        if looked is None:
            return False
        set_by_s = (at_s - looked[0]) - (steady_s - looked[1])
        if abs(set_by_s) <= CLOCK_WANDERS_S:
            return False
        log.warning("Slurm's clock has been set by %+.0f s; nobody ran or waited so", set_by_s)
        self._set_clock_by(set_by_s)
        return True

    def _set_clock_by(self, seconds: float) -> None:
        for record in list(self._records.values()):
            times = {name: getattr(record, name) for name in OF_OUR_OWN}
            moved = {name: at_s + seconds for name, at_s in times.items() if at_s is not None}
            self.put(changed(record, **moved))
            for incarnation in self.incarnations_of(record.key):
                if incarnation.end_s is None:
                    ran = (record.key, incarnation.start_s)
                    self._set_by_s[ran] = self._set_by_s.get(ran, 0.0) + seconds
        self._first_look_s += seconds

    def observe(self, seen: Observation) -> None:
        """Take in what Slurm shows: new jobs, running time, ends, requeues."""
        self._first_look_s = min(self._first_look_s, seen.at_s)
        shown, new = self._compared(seen.jobs)
        self._know_recent_service(seen.at_s)
        managed = [job for job in new if not shown[job.key].unmanaged]
        # Numbers are given out on the way: for entries as submitted, for first starts as started.
        managed.sort(key=lambda job: (job.submit_s, job.raw_id))
        for job in managed:
            self._recognise(job, seen.at_s)
        managed.sort(key=lambda job: (job.start_s or seen.at_s, job.raw_id))
        for job in managed:
            self._measure(job, self._records[job.key], seen.at_s)
            self.put(self._follow_state(job, self._records[job.key], seen.at_s))
        self._note_recent_service()
        for job in managed if self._recent is None else seen.jobs:
            if not shown[job.key].unmanaged:
                self.put(self._follow_tier(self._records[job.key], seen.at_s))
                # Not before: the ledger may fail, and the job would be passed over the next time.
                shown[job.key].record = self._records[job.key]
                shown[job.key].settled = True
        if self._recent is not None:
            self._recent.forget_before(seen.at_s)
        self._observe_absences(shown, seen.at_s)
        self._as_before = shown

    def _compared(
        self, jobs: Iterable[ObservedJob]
    ) -> tuple[dict[str, Shown], Sequence[ObservedJob]]:
        """What is to be known of each job now, and those of which something has changed.

        Of thousands that wait few have: the driver shows the same object as before, and nothing
        here has been written since.
        """
        shown: dict[str, Shown] = {}
        new: list[ObservedJob] = []
        for job in jobs:
            one = self._as_before.get(job.key)
            if one is None or one.job is not job:
                one = Shown(job, why_unmanaged(job, self._config.manage))
                new.append(job)
            elif not (one.settled and one.record is self._records.get(job.key)):
                new.append(job)
            shown[job.key] = one
        return shown, new

    def _recognise(self, job: ObservedJob, now_s: float) -> None:
        """Find the job's record, or open one."""
        record = self._known(job.key)
        if record is None:
            self.put(self._new_record(job))
        elif _is_another_job(job, record):
            self._drop(job.key)
            self.put(replace(self._new_record(job), born_after_s=record.ended_s or now_s))
        else:
            # Those of a waiting job may be changed.
            self.put(changed(record, account=job.account, partition=",".join(job.partitions)))
            return
        if job.state is None and (job.end_s or 0.0) < self._first_look_s:
            self._told_ended.add(job.key)

    def _known(self, key: str) -> JobRecord | None:
        """What is known of a job, from the ledger itself for one that ended long ago."""
        if key not in self._records and (record := self._ledger.job(key)):
            self._records[key] = record
            self._incarnations[key] = {i.start_s: i for i in self._ledger.incarnations_of(key)}
        return self._records.get(key)

    def _new_record(self, job: ObservedJob) -> JobRecord:
        # Slurm resets the submission at a requeue: that of a job requeued earlier is lost.
        return JobRecord(
            key=job.key,
            restarts=job.restarts,
            submitted_s=job.submit_s,
            tier_entered_s=job.submit_s,
            queued_s=job.submit_s,
            entry_number=self._ledger.next_number(),
            user=job.user,
            name=job.name,
            account=job.account,
            partition=",".join(job.partitions),
        )

    def _drop(self, key: str) -> None:
        self._forgotten.add(key)
        self._ending.pop(key, None)
        self._told_ended.discard(key)
        self._records.pop(key, None)
        self._incarnations.pop(key, None)
        self._inherited_gpu_s.pop(key, None)
        self._changed_jobs.discard(key)
        self._changed_incarnations = {c for c in self._changed_incarnations if c[0] != key}
        self._preemptions = [one for one in self._preemptions if one.key != key]

    def _measure(self, job: ObservedJob, record: JobRecord, now_s: float) -> None:
        """Bring the job's incarnations up to date; close the ones that are over."""
        mine = self._incarnations.setdefault(job.key, {})
        shown = job.start_s if _has_started(job, mine) else None
        for start_s, incarnation in list(mine.items()):
            if incarnation.end_s is None and start_s != shown:
                self._close_unseen(incarnation, record, now_s)
        if shown is not None:
            ended = job.state is not JobState.RUNNING
            known = mine.get(shown)
            gpus = sum(amount.gpu_count for amount in job.allocation.values())
            self.keep(
                IncarnationRecord(
                    key=job.key,
                    start_s=shown,
                    end_s=(job.end_s or now_s) if ended else None,
                    elapsed_s=job.elapsed_s if ended else self._ran_s(job, known, now_s),
                    gpus=gpus or (known.gpus if known else job.request.gpu_count),
                    confirmed=ended and (known is not None or not self.has_accounting),
                )
            )

    def _ran_s(self, job: ObservedJob, known: IncarnationRecord | None, now_s: float) -> float:
        """How long a running job has run, whatever its clock was set by meanwhile.

        Never less than at the last look: Slurm tells whole seconds, and by clocks that may differ.
        """
        least_s = known.elapsed_s if known else 0.0
        since_s = self.running_since_s(job)
        if job.start_s is None or since_s is None or since_s == job.start_s:
            return max(least_s, job.elapsed_s)
        # Slurm shows nothing for one that seems to start in the future.
        shown_s = min(job.elapsed_s, now_s - job.start_s)
        return max(least_s, shown_s - (since_s - job.start_s))

    def running_since_s(self, job: ObservedJob) -> float | None:
        """When a running job has started, by the clock as it is set now; None for others."""
        if job.state is not JobState.RUNNING or job.start_s is None:
            return None
        return job.start_s + self._set_by_s.get((job.key, job.start_s), 0.0)

    def _close_unseen(
        self, incarnation: IncarnationRecord, record: JobRecord, now_s: float
    ) -> None:
        """An incarnation ended while nobody looked: estimate its end until accounting tells.

        It lasted at least as long as it was seen to; at most one interval more, had anybody
        looked since.
        """
        latest_s = now_s if record.requeue_sent_s is None else record.requeue_sent_s
        most_s = incarnation.elapsed_s + self._config.controller.interval_s
        elapsed_s = max(incarnation.elapsed_s, min(latest_s - incarnation.start_s, most_s))
        end_s = incarnation.start_s + elapsed_s
        self.keep(replace(incarnation, end_s=end_s, elapsed_s=elapsed_s, confirmed=self._final()))

    def _final(self) -> bool:
        """An estimate is final where no accounting can better it."""
        return not self.has_accounting

    def keep(self, incarnation: IncarnationRecord) -> None:
        """Replace what is known of a stretch of running; committed with the rest."""
        mine = self._incarnations.setdefault(incarnation.key, {})
        if mine.get(incarnation.start_s) != incarnation:
            mine[incarnation.start_s] = incarnation
            self._changed_incarnations.add((incarnation.key, incarnation.start_s))
            if shown := self._as_before.get(incarnation.key):
                shown.settled = False
                shown.learned += 1

    def _follow_state(self, job: ObservedJob, record: JobRecord, now_s: float) -> JobRecord:
        """Starts, requeues and ends, as the record keeps them."""
        if job.restarts < record.restarts:
            # slurmctld was killed and came back with what it had last saved.
            accounted = min(record.accounted_restarts, job.restarts)
            record = replace(record, restarts=job.restarts, accounted_restarts=accounted)
        if job.restarts > record.restarts:
            record = self._follow_requeue(job, record, now_s)
        elif job.state is not JobState.RUNNING:
            record = without_intent(record)
        if job.state is JobState.RUNNING:
            record = self._follow_start(job, record)
        if job.state is not None:
            return changed(record, ended_s=None)
        if record.ended_s is None:
            self._ending[job.key] = job.end_s if job.slurm_state in HAVE_RUN else None
        return changed(without_claim(record), ended_s=record.ended_s or job.end_s or now_s)

    def _follow_requeue(self, job: ObservedJob, record: JobRecord, now_s: float) -> JobRecord:
        """A requeue is believed when it is seen; if it was intended here, it was a preemption."""
        queued_s = max((i.end_s or now_s for i in self.incarnations_of(job.key)), default=now_s)
        by = record.vacating_for
        self.note(now_s, "preempted" if by else "requeued", job.key, f"restart {job.restarts}", by)
        if by:
            self._preemptions.append(self._preemption(record, now_s))
            record = replace(
                record,
                preemptions=record.preemptions + 1,
                preempted_by=by,
                preempted_at_s=queued_s,
                settling=True,
            )
        return replace(without_intent(record), restarts=job.restarts, queued_s=queued_s)

    def _preemption(self, record: JobRecord, now_s: float) -> PreemptionRecord:
        over = (i.start_s for i in self.incarnations_of(record.key) if i.end_s is not None)
        winner = self._records.get(record.vacating_for)
        return PreemptionRecord(
            key=record.key,
            for_job=record.vacating_for,
            at_s=now_s,
            run_start_s=max(over, default=None),
            asked_s=record.vacating_since_s,
            tier=record.tier,
            for_tier=winner.tier if winner else None,
        )

    def _follow_start(self, job: ObservedJob, record: JobRecord) -> JobRecord:
        if record.first_started_s is None:
            first_s = min((i.start_s for i in self.incarnations_of(job.key)), default=job.start_s)
            record = replace(
                record, first_started_s=first_s, start_number=self._ledger.next_number()
            )
        return changed(without_claim(record), settling=False, times_given_up=0, gave_up_s=None)

    def _follow_tier(self, record: JobRecord, now_s: float) -> JobRecord:
        policy = self._config.policy
        own_gpu_s = self.attained_gpu_s(record.key) - record.promoted_at_gpu_s
        charged_gpu_s = own_gpu_s + self.inherited_gpu_s(record, now_s)
        if policy.name == BY_HISTORY:
            return record  # its tier is known only once it is decided: ``follow``
        return self._in_tier(record, tier_of(charged_gpu_s, policy.thresholds_gpu_s), now_s)

    def follow(self, plan: Plan, now_s: float) -> None:
        """Take in the tiers that were decided, where they do not follow from service alone."""
        if self._config.policy.name != BY_HISTORY:
            return
        for key, decision in plan.decisions.items():
            record = self._records.get(key)
            if record is not None and decision.tier is not None:
                # The first tier of a job is none that it has come down to.
                known = key in self._followed
                self.put(self._in_tier(record, decision.tier, now_s, told=known))
        self._followed = frozenset(plan.decisions)

    def _in_tier(self, record: JobRecord, tier: int, now_s: float, told: bool = True) -> JobRecord:
        if tier == record.tier or record.ended_s is not None:
            return record
        if tier > record.tier and told:
            self.note(now_s, "demoted", record.key, f"from tier {record.tier} to tier {tier}")
        return replace(
            record, tier=tier, tier_entered_s=now_s, entry_number=self._ledger.next_number()
        )

    def _observe_absences(self, present: Collection[str], now_s: float) -> None:
        """Jobs that Slurm no longer remembers have ended."""
        uncommitted = self._uncommitted()
        for key, record in list(self._records.items()):
            if key in present:
                continue
            if record.ended_s is not None:
                if key not in uncommitted:
                    self._let_go(key)
                continue
            for incarnation in self.incarnations_of(key):
                if incarnation.end_s is None:
                    # Its end is unknown, and not now: count what was seen until accounting tells.
                    seen_s = incarnation.start_s + incarnation.elapsed_s
                    self.keep(replace(incarnation, end_s=seen_s, confirmed=self._final()))
            self.put(replace(without_intent(without_claim(record)), ended_s=now_s))
            self._ending[key] = None
        self._told_ended = {key for key in self._told_ended if key in present}

    def _let_go(self, key: str) -> None:
        """Keep a job that is over and settled in the ledger only."""
        if self._awaits_accounting(key):
            return
        self._tell_end_of(key)
        self._records.pop(key)
        self._incarnations.pop(key, None)
        self._inherited_gpu_s.pop(key, None)

    def _uncommitted(self) -> set[str]:
        """The jobs of which the ledger lacks something yet; it may have failed the last time."""
        return self._changed_jobs | {key for key, _ in self._changed_incarnations}

    # What is told

    def accounting_failed(self) -> None:
        """Count a question to accounting that got no answer."""
        self._news.accounting_failures += 1

    def take_news(self) -> News:
        """What has happened since this was last called. The end of a job is told once, when
        accounting has confirmed what it used; not of one that had ended before the first look."""
        for key in list(self._ending):
            if not self._awaits_accounting(key):
                self._tell_end_of(key)
        news, self._news = self._news, News()
        return news

    def _tell_end_of(self, key: str) -> None:
        record = self._records[key]
        if key not in self._ending or record.ended_s is None:
            return
        shown_s = self._ending.pop(key)
        if key in self._told_ended:
            return
        self._told_ended.add(key)
        end_s = max((i.end_s or 0.0 for i in self.incarnations_of(key)), default=shown_s)
        if end_s is None:
            return  # it never ran
        jct_s = max(0.0, end_s - record.submitted_s)
        queued_s = max(0.0, jct_s - self.executed_s(key))
        own_gpu_s = self.attained_gpu_s(key) - record.promoted_at_gpu_s
        by_service = tier_of(own_gpu_s, self._config.policy.thresholds_gpu_s)
        tier = record.tier if self._config.policy.name == BY_HISTORY else by_service
        self._news.ended.append(EndedJob(max(record.tier, tier), jct_s, queued_s))

    # What jobs inherit from earlier ones of their user or account

    def _know_recent_service(self, now_s: float) -> None:
        """At first, fetch from the ledger what the jobs that are there may have begun with."""
        policy = self._config.policy
        if policy.charge != BY_JOB and self._recent is None:
            starts_s = (r.first_started_s for r in self._records.values() if r.ended_s is None)
            first_s = min((at_s for at_s in starts_s if at_s is not None), default=now_s)
            since_s = min(first_s, now_s) - policy.charge_window_s
            runs = self._ledger.ended_runs(since_s, policy.charge)
            self._recent = RecentService(policy.charge_window_s, runs)

    def _note_recent_service(self) -> None:
        """Take in which runs are over. Accounting may still correct what they used."""
        if self._recent is None:
            return
        for key, record in self._records.items():
            payer = self._payer_of(record)
            for run in self.incarnations_of(key):
                if run.end_s is not None:
                    service_gpu_s = run.attained_gpu_s
                    self._recent.put(EndedRun(key, run.start_s, payer, run.end_s, service_gpu_s))

    def _payer_of(self, record: JobRecord) -> str:
        return payer_of(self._config.policy.charge, record.user, record.account)

    def inherited_gpu_s(self, record: JobRecord, now_s: float) -> float:
        """What counts for a job beyond its own service; a promotion forgives that too."""
        if self._recent is None or record.promotions:
            return 0.0
        if record.first_started_s is None:
            return self._recent.gpu_s(self._payer_of(record), now_s)
        if record.key not in self._inherited_gpu_s:
            inherited_gpu_s = self._recent.gpu_s(self._payer_of(record), record.first_started_s)
            self._inherited_gpu_s[record.key] = inherited_gpu_s
        return self._inherited_gpu_s[record.key]

    # What is known of a job

    def attained_gpu_s(self, key: str) -> float:
        """GPU-seconds over all incarnations."""
        return sum(incarnation.attained_gpu_s for incarnation in self.incarnations_of(key))

    def executed_s(self, key: str) -> float:
        """Running seconds over all incarnations."""
        return sum(incarnation.elapsed_s for incarnation in self.incarnations_of(key))

    def ran_s(self, key: str, restarts: int) -> float:
        """How long the incarnation after so many restarts ran; 0.0 where it is not known whole."""
        record = self._records.get(key)
        mine = sorted(self.incarnations_of(key), key=lambda incarnation: incarnation.start_s)
        if record is None or len(mine) != record.restarts + 1 or restarts >= len(mine):
            return 0.0
        return mine[restarts].elapsed_s

    def incarnations_of(self, key: str) -> Collection[IncarnationRecord]:
        """What is known of each stretch of running, in no order."""
        return self._incarnations.get(key, {}).values()

    def is_doubtful(self, key: str) -> bool:
        """Whether an incarnation is missing, or one has ended by an estimate only."""
        record = self._records[key]
        missing = record.accounted_restarts < record.restarts
        return missing or any(
            not i.confirmed and i.end_s is not None for i in self.incarnations_of(key)
        )

    def _awaits_accounting(self, key: str) -> bool:
        return self.has_accounting and self.is_doubtful(key)


def _has_started(job: ObservedJob, known: Collection[float]) -> bool:
    """Whether Slurm shows a real start, and how long the job has run since.

    While a job is completing after a requeue, Slurm shows its start but not how long it ran; for
    one that was cancelled before it ever ran it shows the cancellation as its start.
    """
    if job.start_s is None or job.state not in (JobState.RUNNING, None):
        return False
    return job.state is JobState.RUNNING or job.elapsed_s > 0 or job.start_s in known


def _is_another_job(job: ObservedJob, record: JobRecord) -> bool:
    """Whether Slurm has given the id of a job that ended to a new one.

    A job that ended and is requeued by hand is still the same job: it counts one restart more. One
    that counts fewer than before is the same if it was submitted before the last requeue seen: a
    slurmctld that was killed does not remember that requeue.
    """
    if job.restarts < record.restarts:
        return job.submit_s > record.queued_s
    if job.restarts > record.restarts:
        return False
    return record.ended_s is not None and job.submit_s > record.ended_s
