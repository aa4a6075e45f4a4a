"""Acting on a plan: what is written to Slurm, in which order, and what is made of the answer.

Every intent is in the ledger before Slurm hears of it. The winner of a preemption gets its claim
priority and its nodes first; the victim its checkpoint signal and its grace; then it is requeued;
and when it waits again it is told that it may start at once, for Slurm would let it wait two
minutes. A winner that does not start gives its claim back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_tiresias.config import Config
from slurm_tiresias.controller import bands
from slurm_tiresias.controller.account import Book
from slurm_tiresias.controller.claim import claim_of, claim_text
from slurm_tiresias.controller.hints import Checkpoint, checkpoint_of
from slurm_tiresias.controller.ledger import JobRecord, without_claim, without_intent
from slurm_tiresias.controller.manage import is_put_off_for_us, lacks_only_resources
from slurm_tiresias.controller.view import Rests
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.model import Action, Decision, JobState, Node, Plan, Reason
from slurm_tiresias.slurm.hostlist import array_tasks, folded, refolded
from slurm_tiresias.slurm.protocol import (
    Observation,
    ObservedJob,
    Requeue,
    Slurm,
    Unpin,
    Update,
    Write,
    WriteFailure,
)

RESTART_IN_S = 2
"""StartTime=now races with the revocation of the old credential and can kill the job; two seconds
later does not (30 requeues on each of Slurm 22.05 and 24.11)."""


MOST_DOUBLINGS = 3
"""Of the time that a job rests after a claim that came to nothing."""

MOST_FAILURES_NOTED = 10
"""An array of thousands of tasks that is refused at once is noted for its first ones."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of acting in one cycle."""

    writes: int
    failures: tuple[WriteFailure, ...]
    unsettled: bool
    """Something is under way that the next cycle should not be long in coming for."""


class Actor:
    """Turns plans into writes. The only part of the controller that changes anything in Slurm."""

    def __init__(self, slurm: Slurm, book: Book, config: Config, requeue_delay_s: float) -> None:
        self._slurm = slurm
        self._requeue_delay_s = requeue_delay_s
        self._book = book
        self._config = config
        self._tasks_of: dict[str, list[str]] = {}
        """The tasks behind each key that stands for the pending part of an array."""

    # Before the decision

    def review(self, seen: Observation) -> Rests:
        """Check what earlier cycles set going; returns which jobs have been given up on."""
        jobs = {job.key: job for job in seen.jobs}
        self._drop_claims_on_what_others_got(seen)
        self._check_claims(jobs, seen)
        self._spare_victims_of_nobody(jobs)
        likeness = _likeness(seen.nodes)
        return Rests(
            given_up=frozenset(
                record.key
                for record in self._book.records().values()
                if record.gave_up_on == likeness
                and self._rests(record, seen.at_s, self._config.preemption.retry_after_s)
            ),
            resting=frozenset(
                record.key
                for record in self._book.records().values()
                if self._rests(record, seen.at_s, self._config.preemption.start_bound_s)
            ),
        )

    def _spare_victims_of_nobody(self, jobs: Mapping[str, ObservedJob]) -> None:
        """A winner that no longer waits on its claim no longer needs its victims."""
        for record in list(self._book.records().values()):
            if record.vacating_for and not self._still_claims(record.vacating_for, jobs):
                self._book.put(without_intent(record))

    def _drop_claims_on_what_others_got(self, seen: Observation) -> None:
        """Slurm may have started somebody else on the idle nodes that a job was to have.

        Only where nobody had to leave: such a job is placed anew. One that others left for stands
        by its claim until it gives up, or it would make more and more of them leave.
        """
        free = {node.name: node.total.gpu_count for node in seen.nodes}
        for job in seen.jobs:
            if job.state is JobState.RUNNING:
                for node, amount in job.allocation.items():
                    free[node] = free.get(node, 0) - amount.gpu_count
        for record in list(self._book.records().values()):
            claim = claim_of(record) if record.claimed_s == record.claim_free_s else None
            if any(free.get(node, 0) < amount.gpu_count for node, amount in (claim or {}).items()):
                self._book.put(without_claim(record))

    def _still_claims(self, key: str, jobs: Mapping[str, ObservedJob]) -> bool:
        record = self._book.record(key)
        return record is not None and bool(record.claim) and _is_pending(jobs.get(key))

    def _check_claims(self, jobs: Mapping[str, ObservedJob], seen: Observation) -> None:
        """Give up the claims that Slurm has not answered, or that stood free, for too long."""
        bound_s = self._config.preemption.start_bound_s
        intents = [r for r in self._book.records().values() if r.vacating_for]
        leaving = {record.vacating_for for record in intents if record.vacating_since_s is not None}
        untried = {record.vacating_for for record in intents} - leaving
        for record in list(self._book.records().values()):
            if record.claimed_s is None or not _is_pending(jobs.get(record.key)):
                continue
            if record.key in leaving or self._is_cleaning_up(record, jobs.values()):
                continue
            since_s = record.claimed_s if record.key in untried else record.claim_free_s
            if since_s is None:
                self._book.put(replace(record, claim_free_s=seen.at_s))
            elif seen.at_s - since_s > bound_s:
                self._give_up(record, jobs[record.key].reason, seen, _likeness(seen.nodes))

    def _is_cleaning_up(self, record: JobRecord, jobs: Iterable[ObservedJob]) -> bool:
        """Whether somebody's last processes still sit on the claimed nodes."""
        claim = claim_of(record)
        return claim is not None and any(
            job.state is JobState.COMPLETING and not claim.keys().isdisjoint(job.allocation)
            for job in jobs
        )

    def _give_up(
        self, record: JobRecord, slurm_reason: str, seen: Observation, gave_up_on: str
    ) -> None:
        text = f"did not start on its claim (Slurm's reason: {slurm_reason or 'none'})"
        self._book.note(seen.at_s, "gave-up", record.key, text)
        self._book.put(
            replace(
                without_claim(record),
                gave_up_s=seen.at_s,
                gave_up_on=gave_up_on,
                times_given_up=record.times_given_up + 1,
            )
        )

    def _rests(self, record: JobRecord, now_s: float, first_s: float) -> bool:
        """Whether a job that gave up rests still: ``first_s``, and twice as long each time."""
        if record.gave_up_s is None:
            return False
        doublings = min(record.times_given_up - 1, MOST_DOUBLINGS)
        return now_s - record.gave_up_s < first_s * 2.0**doublings

    # After the decision

    def carry_out(self, plan: Plan, seen: Observation) -> Outcome:
        """Write everything in which Slurm differs from the plan."""
        jobs = {job.key: job for job in seen.jobs if job.state is not None}
        self._promote(plan, seen.at_s)
        self._claim(plan, jobs, seen)
        self._intend(plan)
        updates = [*self._updates(plan, jobs, seen.at_s), *self._settling(jobs, seen.at_s)]
        self._book.commit()
        failures = self._send(updates, seen.at_s)
        self._spare_victims_of_the_refused(failures)
        # Only now: nobody leaves for a job that Slurm would not let stand in front, or has not
        # tried to start since then and found to lack nothing but room.
        told = {key for update in updates for key in self._keys_of(update)}
        asked = self._ask_to_leave(plan, jobs, told, seen.at_s)
        due = self._due_requeues(plan, jobs, seen.at_s)
        self._book.commit()
        self._signal_or_ask_again(asked, jobs)
        failures += self._send(due, seen.at_s)
        self._book.commit()
        unsettled = any(
            record.claimed_s is not None or record.vacating_for or record.settling
            for record in self._book.records().values()
        )
        return Outcome(len(updates) + len(due), failures, unsettled)

    def stand_down(self, seen: Observation) -> Outcome:
        """Act no more: take node lists and intents back, let requeued jobs start again."""
        jobs = {job.key: job for job in seen.jobs if job.state is not None}
        for record in list(self._book.records().values()):
            # A requeue that has been sent takes its course; anything less is called off.
            called_off = record if record.requeue_sent_s is not None else without_intent(record)
            self._book.put(without_claim(called_off))
        known = ((job, self._book.record(key)) for key, job in jobs.items())
        restored = [
            write
            for job, record in known
            if record is not None and (write := self._node_list(job, record))
        ]
        writes = [*restored, *self._settling(jobs, seen.at_s)]
        self._book.commit()
        failures = self._send(writes, seen.at_s)
        self._book.commit()
        return Outcome(len(writes), failures, unsettled=False)

    def release(self, seen: Observation) -> Outcome:
        """Give every job back to Slurm as it would have been."""
        stood_down = self.stand_down(seen)
        unpinned: list[tuple[ObservedJob, Write]] = []
        for job in seen.jobs:
            record = self._book.record(job.key)
            if record is None or job.state is None or job.held:
                continue
            if record.written_site_factor:
                unpinned.append((job, Update(job.key, site_factor=0)))
            if record.written_priority is not None:
                unpinned.append((job, Unpin(job.key)))
        writes = self._with_arrays_whole(unpinned)
        failures = self._send(writes, seen.at_s)
        refused = {key for failure in failures for key in self._keys_of(failure.write)}
        for record in list(self._book.records().values()):
            if record.key not in refused:
                self._book.put(replace(record, written_priority=None, written_site_factor=None))
        self._book.note(seen.at_s, "released", "", f"{len(writes)} jobs given back to Slurm")
        self._book.commit()
        return Outcome(
            stood_down.writes + len(writes), (*stood_down.failures, *failures), unsettled=False
        )

    # Changes in the ledger that a plan makes

    def _promote(self, plan: Plan, now_s: float) -> None:
        for key in plan.promotions:
            record = self._book.record(key)
            if record is not None:
                self._book.put(
                    replace(
                        record,
                        promotions=record.promotions + 1,
                        promoted_at_gpu_s=self._book.attained_gpu_s(key),
                        promoted_at_executed_s=self._book.executed_s(key),
                        queued_s=now_s,
                    )
                )
                self._book.note(now_s, "promoted", key, "waited long enough to start afresh")

    def _claim(self, plan: Plan, jobs: Mapping[str, ObservedJob], seen: Observation) -> None:
        """Remember what is asked to start, on which nodes, and since when."""
        vacated = self._nodes_being_vacated(plan, jobs)
        for key, decision in plan.decisions.items():
            record = self._book.record(key)
            if record is None:
                continue
            if decision.action is not Action.START:
                if record.claimed_s is not None and _is_pending(jobs.get(key)):
                    self._withdraw(record, decision, jobs[key], seen)
            elif decision.victims:
                claim = claim_text(decision.start_on)
                self._book.put(replace(record, claim=claim, claimed_s=seen.at_s, claim_free_s=None))
            elif decision.reason is Reason.STARTS:
                named = _is_to_be_laid(jobs[key], record) and not vacated & decision.start_on.keys()
                claim = claim_text(decision.start_on) if named else ""
                self._claim_on_idle(record, claim, seen.at_s)

    def _claim_on_idle(self, record: JobRecord, claim: str, now_s: float) -> None:
        """Note a claim that need not wait for anybody; ``claim`` is empty where Slurm is to choose
        the nodes. Naming them later gives the job no more time."""
        if record.claimed_s is None or record.claim not in ("", claim):
            record = replace(record, claimed_s=now_s, claim_free_s=now_s)
        self._book.put(replace(record, claim=claim))

    def _nodes_being_vacated(self, plan: Plan, jobs: Mapping[str, ObservedJob]) -> set[str]:
        """Nodes that somebody is about to leave for another.

        Who only gets what is left over there is not told so: Slurm may try it before the one that
        they leave for, find the node taken, and pass the node over for all that come after.
        """
        leaving = {decision.job_id for decision in plan.preemptions}
        leaving |= {record.key for record in self._book.records().values() if record.vacating_for}
        return {node for key in leaving if key in jobs for node in jobs[key].allocation}

    def _withdraw(
        self, record: JobRecord, decision: Decision, job: ObservedJob, seen: Observation
    ) -> None:
        """The plan has changed, or Slurm has named a reason of its own to let the job wait."""
        if decision.reason is Reason.SLURM_WAITS:
            of_nodes = job.reason.strip("()").startswith("ReqNodeNotAvail")
            # Any other reason may go while the nodes stay as they are.
            self._give_up(record, job.reason, seen, _likeness(seen.nodes) if of_nodes else "")
        else:
            self._book.put(without_claim(record))

    def _intend(self, plan: Plan) -> None:
        """Remember who is to leave, and for whom."""
        for decision in plan.preemptions:
            record = self._book.record(decision.job_id)
            if record is not None:
                self._book.put(replace(record, vacating_for=decision.preempted_for))

    # Writes

    def _updates(self, plan: Plan, jobs: Mapping[str, ObservedJob], now_s: float) -> list[Write]:
        """What each managed job's priority and node list must become; differences only."""
        updates: list[tuple[ObservedJob, Write]] = []
        for key, decision in plan.decisions.items():
            job, record = jobs.get(key), self._book.record(key)
            if job is None or record is None or job.priority == 0:
                continue  # not ours, or held or suspended and not ours to wake
            if decision.action is Action.LEAVE:
                updates += self._given_back(job, record)
            elif update := self._update(job, record, decision, now_s):
                updates.append((job, update))
        # Claims on named nodes first: until they stand, Slurm might give those nodes away.
        updates.sort(key=lambda pair: not (isinstance(pair[1], Update) and pair[1].node_list))
        return self._with_arrays_whole(updates)

    def _with_arrays_whole(self, writes: Iterable[tuple[ObservedJob, Write]]) -> list[Write]:
        """Tasks that wait together in an array's record are written to together.

        One by one each would be split off: 5,000 tasks would become 5,000 records in slurmctld.
        """
        together: dict[Write, list[str]] = {}
        for job, write in writes:
            alike = replace(write, key=str(job.array_id)) if job.unsplit_array else write
            together.setdefault(alike, []).append(write.key)
        self._tasks_of = {array_tasks(keys): keys for keys in together.values() if len(keys) > 1}
        # Last, when the tasks that are to start have been split off: only what names all the
        # tasks that are left leaves them in one record.
        return [
            replace(write, key=array_tasks(keys) if len(keys) > 1 else keys[0])
            for write, keys in sorted(together.items(), key=lambda pair: len(pair[1]) > 1)
        ]

    def _update(
        self, job: ObservedJob, record: JobRecord, decision: Decision, now_s: float
    ) -> Update | None:
        update = self._node_list(job, record) or Update(job.key)
        if decision.action is Action.START and _is_put_off(job, now_s):
            update = replace(update, start_in_s=0)
        if self._config.priority.write == "pinned":
            update = self._with_priority(update, job, record, decision, now_s)
        else:
            update = self._with_site_factor(update, job, record, decision)
        return None if update == Update(job.key) else update

    def _with_priority(
        self, update: Update, job: ObservedJob, record: JobRecord, decision: Decision, now_s: float
    ) -> Update:
        wanted = self._wanted_priority(record, decision)
        if job.priority == wanted:
            if record.written_priority != wanted:
                self._book.put(replace(self._latest(record), written_priority=wanted))
            return update
        if record.written_priority not in (None, job.priority, 0):
            text = f"priority was {record.written_priority}, found {job.priority}; set to {wanted}"
            self._book.note(now_s, "repaired", job.key, text)
        return replace(update, priority=wanted)

    def _wanted_priority(self, record: JobRecord, decision: Decision) -> int:
        if decision.action is Action.START:
            return bands.claim_priority(self._latest(record))
        order = self._config.policy.order
        return bands.tier_priority(record, decision.tier or 0, order)

    def _with_site_factor(
        self, update: Update, job: ObservedJob, record: JobRecord, decision: Decision
    ) -> Update:
        """Slurm does not show the site factor, and takes it for pending jobs only."""
        if job.state is not JobState.PENDING:
            return update
        wanted = bands.tier_site_factor(decision.tier or 0)
        if decision.action is Action.START:
            wanted = bands.SITE_FACTOR_CLAIM
        stands = record.written_site_factor == wanted
        if stands and bands.bears_site_factor(job.priority, wanted):
            return update
        return replace(update, site_factor=wanted)

    def _given_back(
        self, job: ObservedJob, record: JobRecord
    ) -> Iterable[tuple[ObservedJob, Write]]:
        """A waiting job that is managed no longer (its partition was changed, say) is let go."""
        if not _is_pending(job):
            return
        self._book.put(without_claim(self._latest(record)))
        if restored := self._node_list(job, record):
            yield job, restored
        if record.written_site_factor:
            yield job, Update(job.key, site_factor=0)
        if record.written_priority is not None:
            yield job, Unpin(job.key)

    def _node_list(self, job: ObservedJob, record: JobRecord) -> Update | None:
        """Put the node list of a claim in place, or the user's own back.

        What was written is remembered until Slurm is seen to have the user's own list again.
        """
        record = self._latest(record)
        if not _is_pending(job) or not (record.claim or record.written_nodes):
            return None
        shown = refolded(job.required_node_list)
        written = record.written_nodes.split()
        if written and shown not in (*written, refolded(record.own_nodes)):
            # Its user has changed the list meanwhile: that one counts.
            record = replace(without_claim(record), own_nodes="", written_nodes="")
            self._book.put(record)
            written = []
        claim = claim_of(record)
        if claim is None:
            if not record.written_nodes or shown == refolded(record.own_nodes):
                self._book.put(replace(record, own_nodes="", written_nodes=""))
                return None
            return Update(job.key, node_list=record.own_nodes)
        wanted = folded(claim)
        if written and written[-1] == wanted == shown:
            return None
        own = record.own_nodes if written else job.required_node_list
        lists = " ".join([*(name for name in written if name != wanted), wanted])
        self._book.put(replace(record, own_nodes=own, written_nodes=lists))
        return Update(job.key, node_list=wanted)

    def _settling(self, jobs: Mapping[str, ObservedJob], now_s: float) -> list[Write]:
        """Jobs that were requeued and now only wait for Slurm's own delay may start at once."""
        writes: list[Write] = []
        for record in list(self._book.records().values()):
            job = jobs.get(record.key)
            if not record.settling or job is None or job.state is not JobState.PENDING:
                continue
            waits_s = (job.eligible_s or now_s) - now_s
            slurms_own_delay = RESTART_IN_S + 1 < waits_s <= self._requeue_delay_s + RESTART_IN_S
            if slurms_own_delay and job.priority != 0:
                writes.append(Update(job.key, start_in_s=RESTART_IN_S))
            else:
                self._book.put(replace(record, settling=False))
        return writes

    def _ask_to_leave(
        self,
        plan: Plan,
        jobs: Mapping[str, ObservedJob],
        told: Collection[str],
        now_s: float,
    ) -> list[str]:
        """Victims whose winner Slurm has tried, and found to lack nothing but room.

        What is seen of a winner that was ``told`` something just now is older than its claim: a
        licence that was free then may be somebody's. An update makes Slurm forget the reason, and
        try the job anew at once.
        """
        asked: list[str] = []
        for record in list(self._book.records().values()):
            if not self._has_to_leave(record, plan, jobs) or record.vacating_since_s is not None:
                continue
            winner = jobs[record.vacating_for]
            if winner.key not in told and lacks_only_resources(winner):
                self._book.put(replace(record, vacating_since_s=now_s))
                asked.append(record.key)
        return asked

    def _has_to_leave(self, record: JobRecord, plan: Plan, jobs: Mapping[str, ObservedJob]) -> bool:
        """Whether a victim still runs and is managed, and its winner still claims its place."""
        job, decision = jobs.get(record.key), plan.decisions.get(record.key)
        runs = job is not None and job.state is JobState.RUNNING and job.priority != 0
        managed = decision is not None and decision.action is not Action.LEAVE
        return runs and managed and self._still_claims(record.vacating_for, jobs)

    def _due_requeues(
        self, plan: Plan, jobs: Mapping[str, ObservedJob], now_s: float
    ) -> list[Write]:
        """Victims whose grace is over. One that still runs has not been requeued yet."""
        due: list[Write] = []
        for record in list(self._book.records().values()):
            if record.vacating_since_s is None or not self._has_to_leave(record, plan, jobs):
                continue
            if now_s - record.vacating_since_s >= self._checkpoint(jobs[record.key]).grace_s:
                self._book.put(replace(record, requeue_sent_s=now_s))
                due.append(Requeue(record.key))
        return due

    def _spare_victims_of_the_refused(self, failures: Iterable[WriteFailure]) -> None:
        """A winner that could not be put in front (it was just held, say) claims nothing."""
        refused = {key for failure in failures for key in self._keys_of(failure.write)}
        for record in list(self._book.records().values()):
            if record.vacating_for in refused:
                self._book.put(without_intent(record))
            if record.key in refused and record.claimed_s is not None:
                self._book.put(without_claim(record))

    def _signal_or_ask_again(self, asked: Iterable[str], jobs: Mapping[str, ObservedJob]) -> None:
        """Who may not have heard the signal has not begun its grace: it may hear it twice."""
        try:
            self._signal(jobs[key] for key in asked)
        except TiresiasError:
            for key in asked:
                if record := self._book.record(key):
                    self._book.put(replace(record, vacating_since_s=None))
            self._book.commit()
            raise

    def _signal(self, victims: Iterable[ObservedJob]) -> None:
        """Ask victims to save their state, each with its own signal."""
        by_signal: dict[str, list[str]] = {}
        for job in victims:
            by_signal.setdefault(self._checkpoint(job).signal, []).append(job.key)
        for signal, keys in by_signal.items():
            if signal:
                self._slurm.signal(keys, signal)

    def _checkpoint(self, job: ObservedJob) -> Checkpoint:
        return checkpoint_of(job.admin_comment, job.comment, self._config.preemption)

    def _keys_of(self, write: Write) -> Sequence[str]:
        """The job that a write is for, or the tasks where it is for a part of an array."""
        return self._tasks_of.get(write.key, [write.key])

    def _send(self, writes: Sequence[Write], now_s: float) -> tuple[WriteFailure, ...]:
        failures = tuple(self._slurm.write(writes)) if writes else ()
        refused = {id(failure.write) for failure in failures}
        for write in writes:
            if id(write) not in refused:
                self._written(write)
        for failure in failures:
            self._refused(failure, now_s)
        return failures

    def _written(self, write: Write) -> None:
        if isinstance(write, Unpin):
            for key in self._keys_of(write):
                if record := self._book.record(key):
                    self._book.put(replace(record, written_priority=None))
        if not isinstance(write, Update):
            return
        for key in self._keys_of(write):
            record = self._book.record(key)
            if record is not None and write.priority is not None:
                self._book.put(replace(record, written_priority=write.priority))
            elif record is not None and write.site_factor is not None:
                self._book.put(replace(record, written_site_factor=write.site_factor))

    def _refused(self, failure: WriteFailure, now_s: float) -> None:
        write = failure.write
        for key in self._keys_of(write)[:MOST_FAILURES_NOTED]:
            self._book.note(now_s, "failed", key, failure.message)
        record = self._book.record(write.key)
        if isinstance(write, Requeue) and record is not None:
            self._book.put(without_intent(record))

    def _latest(self, record: JobRecord) -> JobRecord:
        return self._book.record(record.key) or record


def _is_pending(job: ObservedJob | None) -> bool:
    return job is not None and job.state is JobState.PENDING


def _is_put_off(job: ObservedJob, now_s: float) -> bool:
    return _is_pending(job) and is_put_off_for_us(job) and (job.eligible_s or 0.0) > now_s


def _is_to_be_laid(job: ObservedJob, record: JobRecord) -> bool:
    """Whether a start on idle GPUs is to name its nodes.

    A job that only fits whole on a node Slurm puts where it fits tightest, as we would; one in
    several pieces it lays over nodes in the order of their names. And one that did not start where
    it was told to is left to Slurm.
    """
    return job.request.chunks > 1 and record.gave_up_s is None


def _likeness(nodes: Iterable[Node]) -> str:
    """A short text that changes when any node comes, goes or changes what it has."""
    lines = sorted(
        f"{node.name} {node.available} {sorted(node.total.gpus.items())} "
        f"{node.total.cpus} {node.total.memory_mb}"
        for node in nodes
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
