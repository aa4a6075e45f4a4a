"""Acting on a plan: what is written to Slurm, in which order, and what is made of the answer.

Every intent is in the ledger before Slurm hears of it. The preemptor gets its priority and its
nodes first; the victim its checkpoint signal and its grace; then it is requeued; and when it waits
again Slurm is told that it may start at once, for it would let it wait two minutes. ``lifecycle``
has the states of each start and of each preemption; the effects of their transitions are carried
out here, and what Slurm answers is the next event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_tiresias.config import Config
from slurm_tiresias.controller.bands import ShownFactors
from slurm_tiresias.controller.difference import (
    Difference,
    from_decision,
    given_back,
    has_unwritten_band,
    is_pending,
    let_go,
    node_list,
    unpinned,
    why_left_to_slurm,
    without_band,
    without_lists,
)
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.manage import (
    is_past_deadline,
    is_protected,
    lacks_only_resources,
    partitions_that_take,
    partitions_tried_later,
)
from slurm_tiresias.controller.situation import Situations
from slurm_tiresias.controller.turns import Awaited, Turns, turns
from slurm_tiresias.controller.view import Backoffs
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.job_hints import Checkpoint, checkpoint_of
from slurm_tiresias.lifecycle.nomination import (
    Blocker,
    Expired,
    Nominated,
    NominationState,
    StillWaiting,
    Withdrawn,
    allocation_text,
)
from slurm_tiresias.lifecycle.preemption import (
    BackOff,
    GraceOver,
    Planned,
    Preemption,
    PreemptionEvent,
    PreemptionState,
    PreemptorGone,
    PreemptorTried,
    RequeueRefused,
    Resumed,
    SendRequeue,
    SendSignal,
    SetStartTime,
    SignalHeard,
    SignalRefused,
    SignalUnanswered,
    StartDelayed,
    StoodDown,
)
from slurm_tiresias.model import Action, Allocation, Decision, JobState, JobStatus, Plan, Reason
from slurm_tiresias.slurm.hostlist import array_tasks
from slurm_tiresias.slurm.protocol import (
    Observation,
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

LOST_WITHIN_S = 10.0
"""A job that is requeued now waits so long at least before it can start."""

STATE_SAVED_WITHIN_S = 60.0
"""slurmctld saves its state every few seconds. One that is killed comes back without what was
written since, and with node lists that had been taken back."""

MOST_FAILURES_NOTED = 10
"""An array of thousands of tasks that is refused at once is noted for its first ones."""


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """What came of acting in one cycle."""

    writes: int
    failures: tuple[WriteFailure, ...]
    unsettled: bool
    """Something is under way that the next cycle should not be long in coming for."""

    def raise_for_failures(self) -> None:
        """Raises ``TiresiasError`` where Slurm refused a write."""
        if self.failures:
            first = self.failures[0]
            raise TiresiasError(
                f"Slurm refused {len(self.failures)} of {self.writes} changes, the first for job "
                f"{first.write.key}: {first.message}",
                "Try again; what was refused stands as it was",
            )


class Actor:
    """Turns plans into writes. The only part of the controller that changes anything in Slurm."""

    def __init__(
        self, slurm: Slurm, job_store: JobStore, config: Config, requeue_delay_s: float
    ) -> None:
        self._slurm = slurm
        self._requeue_delay_s = requeue_delay_s
        self._job_store = job_store
        self._config = config
        self._tasks_of: dict[str, list[str]] = {}
        """The tasks behind each key that stands for the pending part of an array."""
        self._unpinned: frozenset[str] = frozenset()
        """Jobs whose priority was taken back and is in a band all the same: Slurm's own."""
        self._situations = Situations()
        """Those of the last review."""
        self._tried_in: dict[str, str] = {}
        """By nominated job, the last situation in which no victim had left for it yet."""
        self._shown_factors = ShownFactors()
        self._awaited: dict[str, Awaited] = {}
        """Jobs whose turn comes when others have started, which share a limit with them."""
        self._own_list_since_s: dict[str, float] = {}
        """Since when Slurm shows a user's own node list again, by job and the steady clock."""

    # Before the decision

    def review(self, seen: Observation) -> Backoffs:
        """Check what earlier cycles set going; returns which jobs back off."""
        jobs = {job.key: job for job in seen.jobs}
        self._situations = Situations(seen.nodes, jobs, self._job_store.records())
        self._tried_in = {
            one.key: (one.victims_left and self._tried_in.get(one.key))
            or self._situations.of(one.key)
            for one in self._job_store.nominations.values()
            if one.is_active
        }
        self._withdraw_where_others_run(seen)
        self._expire_where_victims_stay(jobs, seen)
        self._look_at_nominations(jobs, seen)
        for victim in list(self._job_store.preemptions.values()):
            # A job that no longer waits on its nomination no longer needs its victims.
            if not self._is_awaited(victim.preemptor, jobs):
                self._tell_victim(victim.key, PreemptorGone(_runs(jobs.get(victim.key))))
        self._awaited = {
            key: awaited
            for key, awaited in self._awaited.items()
            if any(self._is_about_to_start(other, jobs) for other in awaited.others)
        }
        nominations = self._job_store.nominations.values()
        # Jobs were preempted for these, as things stand, and they did not start.
        in_vain = frozenset(
            one.key
            for one in nominations
            if one.in_vain and one.in_vain == self._situations.of(one.key)
        )
        retry_s = self._config.preemption.retry_after_s
        # Whose victims have left starts there or not at all: no others leave for it elsewhere.
        half_done = (one.key for one in nominations if one.is_active and one.victims_left)
        waiting = (one for one in nominations if one.backs_off(seen.at_s, retry_s))
        bound_s = self._config.preemption.start_bound_s
        return Backoffs(
            backing_off=in_vain.union(
                half_done,
                (one.key for one in waiting if one.situation == self._situations.of(one.key)),
            ),
            in_vain=in_vain,
            awaited_limits={key: awaited.limit for key, awaited in self._awaited.items()},
            cooling_down=frozenset(
                one.key for one in nominations if one.backs_off(seen.at_s, bound_s)
            ),
        )

    def _situation_tried(self, key: str) -> str:
        """The situation in which a start fails that fails now.

        A node that was drained after the victims had left says nothing about the other nodes, so
        the job does not back off from those.
        """
        return self._tried_in.get(key) or self._situations.of(key)

    def _expire_where_victims_stay(self, jobs: Mapping[str, JobStatus], seen: Observation) -> None:
        """A victim that was suspended, or held by an administrator, or cannot be read any more, or
        that Slurm would not start again, stays where it is: its preemptor cannot start there,
        whatever the other victims do."""
        staying: dict[str, str] = {}
        partitions = {one.name: one for one in seen.partitions}
        for one in self._job_store.preemptions.values():
            job = jobs.get(one.key)
            awaited = one.makes_room and self._is_awaited(one.preemptor, jobs)
            if job is None or not _runs(job) or not awaited:
                continue
            could_come_back = not partitions or partitions_that_take(job.spec, partitions)
            lost = not could_come_back or is_past_deadline(job.spec, seen.at_s + LOST_WITHIN_S)
            if is_protected(job) or self._job_store.why_unmanaged(one.key) or lost:
                staying[one.preemptor] = one.key
        for preemptor, key in staying.items():
            self._tell_victim(key, PreemptorGone(victim_runs=True))
            why = f"job {key}, which was to make room, may not be preempted any more"
            expired = Expired(seen.at_s, self._situation_tried(preemptor), why)
            self._job_store.nomination_event(preemptor, expired)

    def _withdraw_where_others_run(self, seen: Observation) -> None:
        """Slurm may have started other jobs on GPUs of a nomination.

        Such a job is placed anew as long as that has cost no job its run. Once a victim has left it
        keeps the nomination until that expires, and where more would have to leave it expires now:
        a new place each time would cost ever more victims.
        """
        running = {job.key: job.allocation for job in seen.jobs if job.state is JobState.RUNNING}
        free = {node.name: node.total.gpu_count for node in seen.nodes}
        for held in running.values():
            for node, amount in held.items():
                free[node] = free.get(node, 0) - amount.gpu_count
        victims: dict[str, list[str]] = {}
        for preemption in self._job_store.preemptions.values():
            if preemption.makes_room and preemption.key in running:
                victims.setdefault(preemption.preemptor, []).append(preemption.key)
        for one in list(self._job_store.nominations.values()):
            leave = victims.get(one.key, [])
            allocation = one.allocated() if leave or one.needs_no_victims else None
            if allocation is None or _has_room(allocation, free, map(running.__getitem__, leave)):
                continue
            for key in leave:
                self._tell_victim(key, PreemptorGone(victim_runs=True))
            if one.victims_left:
                why = "Slurm gave GPUs that were set aside for it to other jobs"
                expired = Expired(seen.at_s, self._situation_tried(one.key), why)
                self._job_store.nomination_event(one.key, expired)
            else:
                self._job_store.nomination_event(one.key, Withdrawn())

    def _is_awaited(self, preemptor: str, jobs: Mapping[str, JobStatus]) -> bool:
        """Whether a job waits for GPUs on the nodes that it was nominated for."""
        nomination = self._job_store.nominations.get(preemptor)
        on_nodes = nomination is not None and bool(nomination.allocation)
        return on_nodes and is_pending(jobs.get(preemptor))

    def _is_about_to_start(self, key: str, jobs: Mapping[str, JobStatus]) -> bool:
        """Whether a job waits for nothing but those that are leaving, or not even for them."""
        nomination = self._job_store.nominations.get(key)
        if nomination is None or not is_pending(jobs.get(key)):
            return False
        return nomination.state in (NominationState.ASKED, NominationState.FREE)

    def _look_at_nominations(self, jobs: Mapping[str, JobStatus], seen: Observation) -> None:
        """Tell each nomination what stands between it and its start; some expire."""
        under_way = [one for one in self._job_store.preemptions.values() if one.makes_room]
        leaving = {one.preemptor for one in under_way if one.is_leaving}
        has_victims = {one.preemptor for one in under_way}
        cleaning_up = {
            node
            for job in jobs.values()
            if job.state is JobState.COMPLETING
            for node in job.allocation
        }
        for one in list(self._job_store.nominations.values()):
            job = jobs.get(one.key)
            if job is None or not one.is_active or not is_pending(job):
                continue
            blocker = Blocker.NOT_TRIED if one.key in has_victims else Blocker.NOTHING
            if one.key in leaving or not cleaning_up.isdisjoint(one.allocated() or {}):
                blocker = Blocker.NODES_IN_USE
            bound_s = self._config.preemption.start_bound_s
            situation = self._situation_tried(one.key)
            waits = StillWaiting(seen.at_s, blocker, bound_s, situation, _did_not_start(job))
            self._job_store.nomination_event(one.key, waits)

    # After the decision

    def carry_out(self, plan: Plan, seen: Observation) -> WriteSummary:
        """Write everything in which Slurm differs from the plan."""
        jobs = {job.key: job for job in seen.jobs if job.state is not None}
        self._promote(plan, seen.at_s)
        self._nominate(plan, jobs, seen)
        for decision in plan.preemptions:
            if self._job_store.record(decision.job_id) is not None:
                self._tell_victim(decision.job_id, Planned(decision.preempted_for))
        self._spare_victims_elsewhere(jobs)
        updates = [*self._updates(plan, jobs, seen), *self._restarts(jobs, seen.at_s)]
        self._job_store.commit()
        failures = self._send(updates, seen.at_s)
        # A job that could not be put in front (it was just held, say) gets no GPUs set aside.
        refused = {key for failure in failures for key in self._keys_of(failure.write)}
        for one in list(self._job_store.preemptions.values()):
            if one.preemptor in refused:
                self._tell_victim(one.key, PreemptorGone(victim_runs=True))
        for key in refused & self._job_store.nominations.keys():
            self._job_store.nomination_event(key, Withdrawn())
        # Only now: no job is preempted for one that Slurm would not let stand in front, or has not
        # tried to start since then and found to lack nothing but room.
        told = {key for update in updates for key in self._keys_of(update)}
        # Signals before the commit: a job that hears one twice has lost nothing, but one that the
        # ledger wrongly has as signalled would be requeued without having saved its state.
        self._signal(self._signalled(plan, jobs, told, seen), jobs, seen.at_s)
        due = self._due_requeues(plan, jobs, seen.at_s)
        self._job_store.commit()
        failures += self._send(due, seen.at_s)
        self._job_store.commit()
        return WriteSummary(len(updates) + len(due), failures, not self._job_store.is_settled)

    def stand_down(self, seen: Observation) -> WriteSummary:
        """Act no more: take node lists and intents back, let requeued jobs start again."""
        jobs = {job.key: job for job in seen.jobs if job.state is not None}
        for victim in list(self._job_store.preemptions):
            self._tell_victim(victim, StoodDown())
        for nominated in list(self._job_store.nominations):
            self._job_store.nomination_event(nominated, Withdrawn())
        writes = [*self._own_lists(jobs, seen), *self._restarts(jobs, seen.at_s)]
        self._job_store.commit()
        failures = self._send(writes, seen.at_s)
        self._job_store.commit()
        return WriteSummary(len(writes), failures, unsettled=False)

    def take_lists_back(self, seen: Observation) -> WriteSummary:
        """Leave no node list behind for as long as no controller runs. What is under way stays in
        the ledger, and the next controller goes on with it."""
        writes = self._own_lists({job.key: job for job in seen.jobs}, seen)
        self._job_store.commit()
        failures = self._send(writes, seen.at_s)
        self._job_store.commit()
        return WriteSummary(len(writes), failures, unsettled=False)

    def _own_lists(self, jobs: Mapping[str, JobStatus], seen: Observation) -> list[Write]:
        """What gives waiting jobs the node lists of their users back."""
        known = ((job, self._job_store.record(key)) for key, job in jobs.items())
        differences = [node_list(job, record, None) for job, record in known if record is not None]
        restored = [write for one in differences for write in self._remembered(one, seen)]
        self._own_list_since_s = {k: s for k, s in self._own_list_since_s.items() if k in jobs}
        return restored

    def release(self, seen: Observation) -> WriteSummary:
        """Give every job back to Slurm as it would have been."""
        stood_down = self.stand_down(seen)
        given: list[tuple[JobStatus, Write]] = []
        for job in seen.jobs:
            record = self._job_store.record(job.key)
            if job.state is None or job.priority == 0:
                continue  # held or suspended: to unpin it would take that off
            # A write may have been forgotten here with a controller that was killed.
            ours = is_pending(job) or record is not None
            if ours and has_unwritten_band(job, record, self._config):
                given.append((job, without_band(job, self._config)))
            if record is not None:
                given += [(job, write) for write in unpinned(job, record)]
        writes = self._with_arrays_whole(given)
        failures = self._send(writes, seen.at_s)
        refused = {key for failure in failures for key in self._keys_of(failure.write)}
        for record in list(self._job_store.records().values()):
            if record.key not in refused:
                self._job_store.put(
                    replace(record, written_priority=None, written_site_factor=None)
                )
        self._job_store.note(seen.at_s, "released", "", f"{len(writes)} jobs given back to Slurm")
        self._job_store.commit()
        return WriteSummary(
            stood_down.writes + len(writes), (*stood_down.failures, *failures), unsettled=False
        )

    # What a plan makes of the ledger

    def _promote(self, plan: Plan, now_s: float) -> None:
        for key in plan.promotions:
            record = self._job_store.record(key)
            if record is not None:
                self._job_store.put(
                    replace(
                        record,
                        promotions=record.promotions + 1,
                        promoted_at_gpu_s=self._job_store.runs.attained_gpu_s(key),
                        promoted_at_executed_s=self._job_store.runs.executed_s(key),
                        queued_s=now_s,
                    )
                )
                self._job_store.note(now_s, "promoted", key, "waited long enough to start afresh")

    def _nominate(self, plan: Plan, jobs: Mapping[str, JobStatus], seen: Observation) -> None:
        """Nominate the jobs that the plan starts, and withdraw what it starts no longer."""
        vacated = self._nodes_being_vacated(plan, jobs)
        for key, decision in plan.decisions.items():
            if decision.action is not Action.START:
                nomination = self._job_store.nominations.get(key)
                if nomination is not None and nomination.is_active and is_pending(jobs.get(key)):
                    self._withdraw(key, decision, jobs[key], seen.at_s)
            elif self._job_store.record(key) is not None:
                named = bool(decision.victims) or (
                    self._names_its_nodes(jobs[key]) and vacated.isdisjoint(decision.start_on)
                )
                if decision.victims or decision.reason is Reason.STARTS:
                    allocation = allocation_text(decision.start_on) if named else ""
                    event = Nominated(seen.at_s, allocation, bool(decision.victims))
                    self._job_store.nomination_event(key, event)

    def _names_its_nodes(self, job: JobStatus) -> bool:
        """Whether a start on idle GPUs is to name its nodes.

        A job that only fits whole on a node Slurm puts where it fits tightest, as we would; one in
        several pieces it lays over nodes in the order of their names. And one that did not start
        where it was told to is left to Slurm.
        """
        nomination = self._job_store.nominations.get(job.key)
        record = self._job_store.record(job.key)
        left_to_slurm = record is None or why_left_to_slurm(job, record)
        if left_to_slurm or job.spec.request.chunks == 1:
            return False
        return nomination is None or not nomination.expirations

    def _nodes_being_vacated(self, plan: Plan, jobs: Mapping[str, JobStatus]) -> set[str]:
        """Nodes that jobs leave for a preemptor, until it has started there.

        Jobs that only get what is left over there are not given these nodes by name: Slurm may try
        such a job before the preemptor, find the node taken, and pass it over for all that follow.
        """
        leaving = {decision.job_id for decision in plan.preemptions}
        leaving |= {
            one.key
            for one in self._job_store.preemptions.values()
            if one.makes_room or self._is_awaited(one.preemptor, jobs)
        }
        return {node for key in leaving if key in jobs for node in jobs[key].allocation}

    def _withdraw(self, key: str, decision: Decision, job: JobStatus, now_s: float) -> None:
        """The plan has changed, or Slurm has named a reason of its own to let the job wait."""
        slurm_waits = decision.reason is Reason.SLURM_WAITS
        if slurm_waits or self._job_store.nominations[key].victims_left:
            of_nodes = job.reason.strip("()").startswith("ReqNodeNotAvail")
            may_pass = slurm_waits and not of_nodes
            why, situation = _did_not_start(job), self._situation_tried(key)
            self._job_store.nomination_event(key, Expired(now_s, situation, why, may_pass))
        else:
            self._job_store.nomination_event(key, Withdrawn())

    def _tell_victim(self, key: str, event: PreemptionEvent) -> Sequence[object]:
        """Take in an event of a preemption, and carry out what does not concern Slurm."""
        effects = self._job_store.preemption_event(key, event)
        for effect in effects:
            if isinstance(effect, BackOff):
                situation = self._situation_tried(effect.preemptor)
                expired = Expired(effect.at_s, situation, effect.why)
                self._job_store.nomination_event(effect.preemptor, expired)
        return effects

    # Writes

    def _spare_victims_elsewhere(self, jobs: Mapping[str, JobStatus]) -> None:
        """A preemptor that is to start on other nodes than before (one was drained, say) needs no
        victim on those."""
        for one in list(self._job_store.preemptions.values()):
            nomination, job = self._job_store.nominations.get(one.preemptor), jobs.get(one.key)
            allocation = nomination.allocated() if nomination and one.makes_room else None
            if allocation is None or job is None or not _runs(job):
                continue
            if allocation.keys().isdisjoint(job.allocation):
                self._tell_victim(one.key, PreemptorGone(victim_runs=True))

    def _updates(self, plan: Plan, jobs: Mapping[str, JobStatus], seen: Observation) -> list[Write]:
        """What each managed job's priority and node list must become; differences only."""
        now_s = seen.at_s
        updates = self._taken_back(plan, jobs.values(), now_s)
        for key, decision in plan.decisions.items():
            job, record = jobs.get(key), self._job_store.record(key)
            if job is None or record is None:
                continue
            nomination = self._job_store.nominations.get(key)
            if job.priority == 0:
                # Held or suspended: not ours to wake, but its user's own node list goes back.
                difference = let_go(job, record)
            elif decision.action is Action.LEAVE:
                if is_pending(job):
                    self._job_store.nomination_event(key, Withdrawn())
                difference = given_back(job, record)
            else:
                written = record.written_site_factor
                shows = self._shown_factors.shows(key, job.priority, written)
                difference = from_decision(
                    *(job, record, nomination, decision, now_s, self._config), factor_shows=shows
                )
            updates += [(job, write) for write in self._remembered(difference, seen)]
        self._own_list_since_s = {k: s for k, s in self._own_list_since_s.items() if k in jobs}
        self._shown_factors.keep(jobs)
        # Nominations on named nodes first: until they stand, Slurm might give those nodes away.
        updates.sort(key=lambda pair: not (isinstance(pair[1], Update) and pair[1].node_list))
        return self._with_arrays_whole(updates)

    def _remembered(self, difference: Difference, seen: Observation) -> Sequence[Write]:
        """The writes of a difference, once what they rest on is remembered."""
        key, record = difference.job.key, difference.record
        if not difference.own_list_shown:
            self._own_list_since_s.pop(key, None)
        else:
            since_s = self._own_list_since_s.setdefault(key, seen.steady_s)
            if seen.steady_s - since_s > STATE_SAVED_WITHIN_S:
                # The user's own list stands there again for good.
                del self._own_list_since_s[key]
                record = without_lists(record)
        if record is not self._job_store.record(key):
            self._job_store.put(record)
        if difference.user_changed_nodes:
            self._job_store.nomination_event(key, Withdrawn())
        if difference.list_refused:
            text = "Slurm held it for the nodes named here; they are left to Slurm from now on"
            self._job_store.note(seen.at_s, "list-refused", key, text)
        if difference.repaired:
            self._job_store.note(seen.at_s, "repaired", key, difference.repaired)
        return difference.writes

    def _with_arrays_whole(self, writes: Iterable[tuple[JobStatus, Write]]) -> list[Write]:
        """Tasks that wait together in an array's record are written to together.

        One by one each would be split off: 5,000 tasks would become 5,000 records in slurmctld.
        """
        together: dict[Write, list[str]] = {}
        for job, write in writes:
            alike = replace(write, key=str(job.spec.array_id)) if job.unsplit_array else write
            together.setdefault(alike, []).append(write.key)
        self._tasks_of = {array_tasks(keys): keys for keys in together.values() if len(keys) > 1}
        # Last, when the tasks that are to start have been split off: only what names all the
        # tasks that are left leaves them in one record.
        return [
            replace(write, key=array_tasks(keys) if len(keys) > 1 else keys[0])
            for write, keys in sorted(together.items(), key=lambda pair: len(pair[1]) > 1)
        ]

    def _taken_back(
        self, plan: Plan, jobs: Iterable[JobStatus], now_s: float
    ) -> list[tuple[JobStatus, Write]]:
        """The priorities of waiting jobs that are not managed and stand in a band all the same.

        A job that etc/job_submit.lua took for a managed one has them, and one whose owner has
        changed it since; this program may know nothing of either. Each is written to once, for a
        site's own priorities may reach into the bands.
        """
        in_a_band = [
            job
            for job in jobs
            if is_pending(job)
            and plan.decisions[job.key].action is Action.LEAVE
            and has_unwritten_band(job, self._job_store.record(job.key), self._config)
        ]
        found = [job for job in in_a_band if job.key not in self._unpinned]
        self._unpinned = frozenset(job.key for job in in_a_band)
        for job in found:
            self._job_store.note(
                now_s, "unpinned", job.key, f"priority {job.priority} is not its own"
            )
        return [(job, without_band(job, self._config)) for job in found]

    def _restarts(self, jobs: Mapping[str, JobStatus], now_s: float) -> list[Write]:
        """Jobs that were requeued and now only wait for Slurm's own delay may start at once."""
        writes: list[Write] = []
        for one in self._in_state(PreemptionState.REQUEUED):
            job = jobs.get(one.key)
            if job is None or not is_pending(job):
                continue
            waits_s = (job.eligible_s or now_s) - now_s
            slurms_own_delay = RESTART_IN_S + 1 < waits_s <= self._requeue_delay_s + RESTART_IN_S
            delayed = slurms_own_delay and job.priority != 0
            for effect in self._tell_victim(one.key, StartDelayed() if delayed else Resumed()):
                if isinstance(effect, SetStartTime):
                    writes.append(Update(one.key, start_in_s=RESTART_IN_S))
        return writes

    def _signalled(
        self,
        plan: Plan,
        jobs: Mapping[str, JobStatus],
        told: Collection[str],
        seen: Observation,
    ) -> list[str]:
        """Victims to be signalled: Slurm has tried their preemptor, and it lacks nothing but room.

        What is seen of a preemptor that was ``told`` something just now is older than its
        nomination: a licence that was free then may have been taken since. An update makes Slurm
        forget the reason, and try the job anew at once.
        """
        victims: dict[str, list[str]] = {}
        tried_later = partitions_tried_later(seen)
        for one in self._in_state(PreemptionState.PLANNED):
            if not self._has_to_leave(one, plan, jobs):
                continue
            preemptor = jobs[one.preemptor]
            later = not tried_later.isdisjoint(preemptor.spec.partitions)
            if one.preemptor not in told and lacks_only_resources(preemptor, tried_later=later):
                victims.setdefault(one.preemptor, []).append(one.key)
        found = self._turns(victims.keys(), jobs)
        for key, awaited in found.later.items():
            self._awaited[key] = awaited
            # Its node list would keep jobs off these nodes that it waits for.
            self._job_store.nomination_event(key, Withdrawn())
            for victim in victims[key]:
                self._tell_victim(victim, PreemptorGone(victim_runs=True))
        signalled: list[str] = []
        for preemptor_key in found.now:
            for key in victims[preemptor_key]:
                effects = self._tell_victim(key, PreemptorTried(seen.at_s))
                signalled += [key for effect in effects if isinstance(effect, SendSignal)]
        return signalled

    def _turns(self, ready: Collection[str], jobs: Mapping[str, JobStatus]) -> Turns:
        """Whose turn it is of the jobs whose victims could leave now."""
        if not ready:
            return Turns()
        starting = {
            key for key in self._job_store.nominations if self._is_about_to_start(key, jobs)
        }
        leaving = {one.preemptor for one in self._job_store.preemptions.values() if one.is_leaving}

        def place(job: JobStatus) -> tuple[bool, int, int]:
            """Where Slurm tries it; those for which jobs are leaving already come first."""
            return job.key not in leaving, -job.priority, job.raw_id

        in_order = sorted((jobs[key] for key in starting.union(ready)), key=place)
        specs = [job.spec for job in in_order]
        return turns(specs, ready, self._slurm.limits(specs))

    def _in_state(self, *states: PreemptionState) -> list[Preemption]:
        return [one for one in self._job_store.preemptions.values() if one.state in states]

    def _has_to_leave(self, one: Preemption, plan: Plan, jobs: Mapping[str, JobStatus]) -> bool:
        """Whether a victim still runs and is managed, and its preemptor still awaits its GPUs."""
        job, decision = jobs.get(one.key), plan.decisions.get(one.key)
        runs = job is not None and _runs(job) and not is_protected(job)
        managed = decision is not None and decision.action is not Action.LEAVE
        return runs and managed and self._is_awaited(one.preemptor, jobs)

    def _due_requeues(self, plan: Plan, jobs: Mapping[str, JobStatus], now_s: float) -> list[Write]:
        """Victims whose grace is over. One that still runs has not been requeued yet.

        While it had its grace, what its preemptor shares with others may have been taken.
        """
        over: list[Preemption] = []
        for one in self._in_state(PreemptionState.SIGNALLED, PreemptionState.REQUEUE_SENT):
            if one.signalled_s is None or not self._has_to_leave(one, plan, jobs):
                continue
            if now_s - one.signalled_s >= self._checkpoint(jobs[one.key]).grace_s:
                over.append(one)
        preemptors = {one.preemptor for one in over}
        limits = self._slurm.limits([jobs[key].spec for key in preemptors]) if over else {}
        due: list[Write] = []
        for one in over:
            if any(limit.is_reached for limit in limits.get(one.preemptor, ())):
                continue
            forbidden = not jobs[one.key].spec.requeue
            for effect in self._tell_victim(one.key, GraceOver(now_s, forbidden)):
                if isinstance(effect, SendRequeue):
                    due.append(Requeue(one.key, allow=effect.allow))
        return due

    def _signal(
        self, victims: Collection[str], jobs: Mapping[str, JobStatus], now_s: float
    ) -> None:
        """Ask victims to save their state, each with its own signal, and take in the answers."""
        by_signal: dict[str, list[str]] = {}
        for key in victims:
            by_signal.setdefault(self._checkpoint(jobs[key]).signal, []).append(key)
        refused: dict[str, tuple[str, str]] = {}
        try:
            for signal, keys in by_signal.items():
                if signal:
                    answers = self._slurm.signal(keys, signal)
                    refused |= {key: (signal, words) for key, words in answers.items()}
        except TiresiasError:
            for key in victims:
                self._tell_victim(key, SignalUnanswered())
            raise
        for key in victims:
            heard = key not in refused
            self._tell_victim(key, SignalHeard() if heard else SignalRefused(now_s, *refused[key]))

    def _checkpoint(self, job: JobStatus) -> Checkpoint:
        spec = job.spec
        over_budget = spec.user in self._job_store.users_over_budget
        return checkpoint_of(spec.admin_comment, spec.comment, self._config.preemption, over_budget)

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
        for key in self._keys_of(write):
            record = self._job_store.record(key)
            if record is None:
                continue
            if isinstance(write, Unpin):
                self._job_store.put(replace(record, written_priority=None))
            elif isinstance(write, Update) and write.priority is not None:
                self._job_store.put(replace(record, written_priority=write.priority))
            elif isinstance(write, Update) and write.site_factor is not None:
                self._job_store.put(replace(record, written_site_factor=write.site_factor))

    def _refused(self, failure: WriteFailure, now_s: float) -> None:
        write = failure.write
        if not failure.has_ended:
            for key in self._keys_of(write)[:MOST_FAILURES_NOTED]:
                self._job_store.note(now_s, "failed", key, failure.message)
        if isinstance(write, Requeue):
            self._tell_victim(write.key, RequeueRefused())


def _has_room(wanted: Allocation, free: Mapping[str, int], leaving: Iterable[Allocation]) -> bool:
    """Whether there are enough GPUs on each node once those that are leaving have left."""
    room = Counter(free)
    for allocation in leaving:
        room.update({node: amount.gpu_count for node, amount in allocation.items()})
    return all(room[node] >= amount.gpu_count for node, amount in wanted.items())


def _runs(job: JobStatus | None) -> bool:
    return job is not None and job.state is JobState.RUNNING


def _did_not_start(job: JobStatus) -> str:
    return f"did not start on its nomination (Slurm's reason: {job.reason or 'none'})"
