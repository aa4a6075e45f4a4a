"""Carry out a plan: what is written to Slurm, in which order, and how the answers are handled.

Every intent is in the ledger before it is sent to Slurm. First the preemptor gets its priority and
its nodes; then its victims get their checkpoint signals and their graces; then they are requeued,
together, as soon as each has saved or its grace is over; and once they are pending again, their
start times are set, since Slurm would otherwise delay them by two minutes. A job that is preempted
for its idle GPUs has no preemptor, and is requeued alone. ``lifecycle`` has the states of each
start and each preemption. The effects of their transitions are carried out here, and each answer of
Slurm is the next event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from slurm_tiresias.controller.feed import Backoffs
from slurm_tiresias.controller.job_store import STATE_SAVED_WITHIN_S, JobStore
from slurm_tiresias.controller.manage import (
    is_past_deadline,
    is_protected,
    lacks_only_resources,
    partitions_that_take,
    partitions_tried_later,
)
from slurm_tiresias.controller.situation import Situations
from slurm_tiresias.controller.turns import Awaited, Turns, turns
from slurm_tiresias.core.lifecycle.nomination import (
    Blocker,
    Expired,
    Nominated,
    NominationState,
    Started,
    StillWaiting,
    Withdrawn,
    allocation_text,
)
from slurm_tiresias.core.lifecycle.preemption import (
    BackOff,
    Cause,
    GpusIdle,
    GraceOver,
    Planned,
    Preemption,
    PreemptionEvent,
    PreemptionState,
    PreemptorGone,
    PreemptorTried,
    RequeueRefused,
    Resumed,
    Saved,
    SendRequeue,
    SendSignal,
    SetStartTime,
    SignalHeard,
    SignalRefused,
    SignalUnanswered,
    Spared,
    StartDelayed,
    StillIdle,
    StoodDown,
)
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.job_hints import Checkpoint, checkpoint_of
from slurm_tiresias.model import (
    Action,
    Allocation,
    Decision,
    JobProgress,
    JobState,
    JobStatus,
    Plan,
    Reason,
)
from slurm_tiresias.progress.saving import asked, has_saved_since, is_asked
from slurm_tiresias.slurm.hostlist import array_tasks
from slurm_tiresias.slurm.protocol import (
    Observation,
    Requeue,
    Slurm,
    UnfinishedWriteError,
    Unpin,
    Update,
    Write,
    WriteFailure,
)

RESTART_IN_S = 2
"""StartTime=now races with the revocation of the old credential and can kill the job; two seconds
later is safe (30 requeues on each of Slurm 22.05 and 24.11)."""

LOST_WITHIN_S = 10.0
"""The least time between a requeue that is sent now and the job's next start."""

MOST_WRITES_AT_ONCE = 500
"""About half a second of writes. Each part has its own time limit, and must end with the lease."""

MOST_FAILURES_NOTED = 10
"""How many failures are recorded per write: an array of thousands of tasks may be refused."""


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """The outcome of acting in one cycle."""

    writes: int
    failures: tuple[WriteFailure, ...]
    unsettled: bool
    """Whether a start or preemption is under way, so that the next cycle should come soon."""

    def raise_for_failures(self) -> None:
        """Raise ``TiresiasError`` if Slurm refused a write to a job that has not ended."""
        refused = [failure for failure in self.failures if not failure.has_ended]
        if refused:
            first = refused[0]
            raise TiresiasError(
                f"Slurm refused {len(refused)} of {self.writes} changes, the first for job "
                f"{first.write.key}: {first.message}",
                "Try again; what was refused stands as it was",
            )


class Actor:
    """Turns plans into writes. The only part of the controller that changes anything in Slurm."""

    def __init__(
        self,
        slurm: Slurm,
        job_store: JobStore,
        config: Config,
        requeue_delay_s: float,
        progress_of: Callable[[str], JobProgress | None] = lambda _key: None,
        why_spared: Callable[[str], str] = lambda _key: "",
        ranks_last: Callable[[str], bool] = lambda _key: False,
    ) -> None:
        """``progress_of`` returns a job's progress, ``why_spared`` why it is not preempted for its
        idle GPUs any more, ``ranks_last`` whether it has ranked last since its last requeue."""
        self._slurm = slurm
        self._progress_of = progress_of
        self._why_spared = why_spared
        self._ranks_last = ranks_last
        self._requeue_delay_s = requeue_delay_s
        self._job_store = job_store
        self._config = config
        self._tasks_of: dict[str, list[str]] = {}
        """The tasks behind each key that stands for the pending part of an array."""
        self._unpinned: frozenset[str] = frozenset()
        """Jobs whose priority was reset but is still in a band: it is Slurm's own."""
        self._situations = Situations()
        """The situations of the last review."""
        self._tried_in: dict[str, str] = {}
        """By nominated job, the last situation before any victim had left for it."""
        self._shown_factors = ShownFactors()
        self._awaited: dict[str, Awaited] = {}
        """Jobs that may preempt only after others that share a limit with them have started."""
        self._own_list_since_s: dict[str, float] = {}
        """By job, the steady-clock time since when Slurm has shown the user's own node list."""

    @property
    def awaits_saves(self) -> bool:
        """Whether a victim that reports has been signalled and has not been requeued yet."""
        signalled = self._in_state(PreemptionState.SIGNALLED)
        return any(self._progress_of(one.key) for one in signalled)

    # Before the decision

    def review(self, seen: Observation) -> Backoffs:
        """Review the starts and preemptions under way; return which jobs back off."""
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
        for key in list(self._job_store.preemptions):
            self._job_store.expire_signal(key, seen.at_s)
        for victim in self._under_way(Cause.FOR_JOB):
            # A job that no longer waits on its nomination no longer needs its victims.
            if not self._is_awaited(victim.preemptor, jobs):
                self._tell_victim(victim.key, PreemptorGone(_runs(jobs.get(victim.key))))
        self._awaited = {
            key: awaited
            for key, awaited in self._awaited.items()
            if any(self._is_about_to_start(other, jobs) for other in awaited.others)
        }
        nominations = self._job_store.nominations.values()
        # Jobs were preempted for these in their present situation, but they did not start.
        in_vain = frozenset(
            one.key
            for one in nominations
            if one.in_vain and one.in_vain == self._situations.of(one.key)
        )
        retry_s = self._config.preemption.retry_after_s
        # If victims have left, the job starts on its nomination or not at all: no further victims
        # are preempted for it elsewhere.
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
        """Return the situation to blame if the job's start fails now.

        It is the one before any victim left: a node drained after that says nothing about the other
        nodes, so the job must not back off from those.
        """
        return self._tried_in.get(key) or self._situations.of(key)

    def _expire_where_victims_stay(self, jobs: Mapping[str, JobStatus], seen: Observation) -> None:
        """Expire nominations if one of their victims must not be preempted any more.

        A victim must stay if it was suspended, held by an administrator, can no longer be read, or
        would not be started again by Slurm. Its preemptor cannot start there, whatever the other
        victims do.
        """
        staying: dict[str, str] = {}
        partitions = {one.name: one for one in seen.partitions}
        for one in self._under_way(Cause.FOR_JOB):
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
        """Withdraw or expire nominations if Slurm has started other jobs on their GPUs.

        A job is placed anew as long as no victim has been requeued for it. Once one has, the job
        keeps its nomination until that expires; if it would need further victims, the nomination
        expires now. Otherwise each new place would cost more victims.
        """
        running = {job.key: job.allocation for job in seen.jobs if job.state is JobState.RUNNING}
        free = {node.name: node.total.gpu_count for node in seen.nodes}
        for held in running.values():
            for node, amount in held.items():
                free[node] = free.get(node, 0) - amount.gpu_count
        victims: dict[str, list[str]] = {}
        for preemption in self._under_way(Cause.FOR_JOB):
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
        """Whether a job is pending and nominated on named nodes."""
        nomination = self._job_store.nominations.get(preemptor)
        on_nodes = nomination is not None and bool(nomination.allocation)
        return on_nodes and is_pending(jobs.get(preemptor))

    def _is_about_to_start(self, key: str, jobs: Mapping[str, JobStatus]) -> bool:
        """Whether a job waits only for victims that are leaving, or for nothing at all."""
        nomination = self._job_store.nominations.get(key)
        if nomination is None or not is_pending(jobs.get(key)):
            return False
        return nomination.state in (NominationState.ASKED, NominationState.FREE)

    def _look_at_nominations(self, jobs: Mapping[str, JobStatus], seen: Observation) -> None:
        """Update each nomination with what still blocks its start; some expire."""
        config = self._config.preemption
        under_way = [one for one in self._under_way(Cause.FOR_JOB) if one.makes_room]
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
            if _runs(job):
                # It has started in a partition that is not managed.
                self._job_store.nomination_event(one.key, Started())
            if job is None or not one.is_active or not is_pending(job):
                continue
            blocker, why = Blocker.NOTHING, _did_not_start(job)
            if one.key in leaving or not cleaning_up.isdisjoint(one.allocated() or {}):
                blocker, why = Blocker.NODES_IN_USE, "its nodes have not been vacated in time"
            elif one.key in has_victims:
                blocker = Blocker.NOT_TRIED
            waits = StillWaiting(
                seen.at_s,
                blocker,
                config.start_bound_s,
                situation=self._situation_tried(one.key),
                why=why,
                longest_grace_s=max(config.grace_s, config.max_grace_s),
            )
            self._job_store.nomination_event(one.key, waits)

    # After the decision

    def carry_out(self, plan: Plan, seen: Observation) -> WriteSummary:
        """Write everything in which Slurm differs from the plan."""
        jobs = {job.key: job for job in seen.jobs if job.state is not None}
        self._promote(plan, seen.at_s)
        self._nominate(plan, jobs, seen)
        for decision in plan.preemptions:
            if self._job_store.record(decision.job_id) is not None:
                idle = decision.reason is Reason.IDLE_GPUS
                event = GpusIdle() if idle else Planned(decision.preempted_for)
                self._tell_victim(decision.job_id, event)
        self._spare_victims_elsewhere(jobs)
        self._spare_busy_jobs(plan, jobs, seen.at_s)
        updates = [*self._updates(plan, jobs, seen), *self._restarts(jobs, seen.at_s)]
        self._job_store.commit()
        failures = self._send(updates, seen.at_s)
        # A job whose priority was refused (it was just held, say) gets no GPUs set aside.
        refused = {key for failure in failures for key in self._keys_of(failure.write)}
        for one in self._under_way(Cause.FOR_JOB):
            if one.preemptor in refused:
                self._tell_victim(one.key, PreemptorGone(victim_runs=True))
        for key in refused & self._job_store.nominations.keys():
            self._job_store.nomination_event(key, Withdrawn())
        # Preempt only now, and only for jobs whose priority Slurm has accepted, and which it has
        # since tried to start and found to lack only resources.
        told = {key for update in updates for key in self._keys_of(update)}
        # Signal before the commit: a second signal costs the victim nothing, but a victim that the
        # ledger wrongly records as signalled would be requeued without having saved its state.
        self._signal(self._signalled(plan, jobs, told, seen), jobs, seen.at_s)
        due = self._due_requeues(plan, jobs, seen.at_s)
        self._job_store.commit()
        failures += self._send(due, seen.at_s)
        self._job_store.commit()
        return WriteSummary(len(updates) + len(due), failures, not self._job_store.is_settled)

    def stand_down(self, seen: Observation) -> WriteSummary:
        """Stop acting: restore node lists, drop intents, and let requeued jobs start again."""
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
        """Restore users' node lists before the controller stops.

        Starts and preemptions under way stay in the ledger for the next controller.
        """
        writes = self._own_lists({job.key: job for job in seen.jobs}, seen)
        self._job_store.commit()
        failures = self._send(writes, seen.at_s)
        self._job_store.commit()
        return WriteSummary(len(writes), failures, unsettled=False)

    def _own_lists(self, jobs: Mapping[str, JobStatus], seen: Observation) -> list[Write]:
        """Return the writes that restore the users' own node lists of waiting jobs."""
        known = ((job, self._job_store.record(key)) for key, job in jobs.items())
        differences = [node_list(job, record, None) for job, record in known if record is not None]
        restored = [write for one in differences for write in self._remembered(one, seen)]
        self._own_list_since_s = {k: s for k, s in self._own_list_since_s.items() if k in jobs}
        return restored

    def release(self, seen: Observation) -> WriteSummary:
        """Give every job back to Slurm, without anything that was written to it."""
        stood_down = self.stand_down(seen)
        given: list[tuple[JobStatus, Write]] = []
        for job in seen.jobs:
            record = self._job_store.record(job.key)
            if job.state is None or job.priority == 0:
                continue  # held or suspended: unpinning would release it
            # The ledger of a killed controller may lack a write.
            ours = is_pending(job) or record is not None
            if ours and has_unwritten_band(job, record, seen.partitions, self._config):
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
        for key in self._job_store.in_hand.each(plan.promotions):
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
        """Nominate the jobs that the plan starts, and withdraw nominations it no longer has."""
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
        """Whether a start on idle GPUs names its nodes.

        A job of one chunk does not need them: Slurm places it on the node with the tightest fit, as
        we would. A job of several chunks does, since Slurm assigns nodes in order of their names. A
        job that did not start on the nodes named for it is left to Slurm from then on.
        """
        nomination = self._job_store.nominations.get(job.key)
        record = self._job_store.record(job.key)
        left_to_slurm = record is None or why_left_to_slurm(job, record)
        if left_to_slurm or job.spec.request.chunks == 1:
            return False
        return nomination is None or not nomination.expirations

    def _nodes_being_vacated(self, plan: Plan, jobs: Mapping[str, JobStatus]) -> set[str]:
        """Return the nodes that victims vacate, until the preemptor has started there.

        Jobs placed on the leftover GPUs of these nodes get no node list: Slurm might try such a job
        before the preemptor, find the node in use, and withhold it from all later jobs.
        """
        leaving = {decision.job_id for decision in plan.preemptions if decision.preempted_for}
        leaving |= {
            one.key
            for one in self._under_way(Cause.FOR_JOB)
            if one.makes_room or self._is_awaited(one.preemptor, jobs)
        }
        return {node for key in leaving if key in jobs for node in jobs[key].allocation}

    def _withdraw(self, key: str, decision: Decision, job: JobStatus, now_s: float) -> None:
        """Withdraw a nomination that the plan dropped, or expire it if a victim has left or Slurm
        has its own reason to let the job wait."""
        slurm_waits = decision.reason is Reason.SLURM_WAITS
        if slurm_waits or self._job_store.nominations[key].victims_left:
            of_nodes = job.reason.strip("()").startswith("ReqNodeNotAvail")
            may_pass = slurm_waits and not of_nodes
            why, situation = _did_not_start(job), self._situation_tried(key)
            self._job_store.nomination_event(key, Expired(now_s, situation, why, may_pass))
        else:
            self._job_store.nomination_event(key, Withdrawn())

    def _tell_victim(self, key: str, event: PreemptionEvent) -> Sequence[object]:
        """Apply an event to a preemption, carry out its back-off, and return all its effects."""
        effects = self._job_store.preemption_event(key, event)
        for effect in effects:
            if isinstance(effect, BackOff):
                situation = self._situation_tried(effect.preemptor)
                expired = Expired(effect.at_s, situation, effect.why)
                self._job_store.nomination_event(effect.preemptor, expired)
        return effects

    # Writes

    def _spare_victims_elsewhere(self, jobs: Mapping[str, JobStatus]) -> None:
        """Drop victims on nodes where their preemptor is no longer placed (one was drained)."""
        for one in self._under_way(Cause.FOR_JOB):
            nomination, job = self._job_store.nominations.get(one.preemptor), jobs.get(one.key)
            allocation = nomination.allocated() if nomination and one.makes_room else None
            if allocation is None or job is None or not _runs(job):
                continue
            if allocation.keys().isdisjoint(job.allocation):
                self._tell_victim(one.key, PreemptorGone(victim_runs=True))

    def _spare_busy_jobs(self, plan: Plan, jobs: Mapping[str, JobStatus], now_s: float) -> None:
        """Drop preemptions for idle GPUs that the plan does not have any more."""
        for one in self._under_way(Cause.IDLE_GPUS):
            decision = plan.decisions.get(one.key)
            goes = decision is not None and decision.action is Action.PREEMPT
            if one.makes_room and _runs(jobs.get(one.key)) and not goes:
                self._tell_victim(one.key, Spared(now_s, self._why_spared(one.key)))

    def _updates(self, plan: Plan, jobs: Mapping[str, JobStatus], seen: Observation) -> list[Write]:
        """Return the writes that bring priorities and node lists in line with the plan."""
        now_s = seen.at_s
        updates = self._taken_back(plan, jobs, seen)
        for key, decision in self._job_store.in_hand.each(plan.decisions.items()):
            job, record = jobs.get(key), self._job_store.record(key)
            if job is None or record is None:
                continue
            nomination = self._job_store.nominations.get(key)
            if job.priority == 0:
                # Held or suspended: we must not release it, but its user's own node list is
                # restored.
                difference = let_go(job, record)
            elif decision.action is Action.LEAVE:
                if is_pending(job):
                    self._job_store.nomination_event(key, Withdrawn())
                difference = given_back(job, record)
            else:
                written = record.written_site_factor
                shows = self._shown_factors.shows(key, job.priority, written)
                difference = from_decision(
                    *(job, record, nomination, decision, now_s, self._config),
                    factor_shows=shows,
                    ranks_last=self._ranks_last(key),
                )
            updates += [(job, write) for write in self._remembered(difference, seen)]
        self._own_list_since_s = {k: s for k, s in self._own_list_since_s.items() if k in jobs}
        self._shown_factors.keep(jobs)
        # Nominations on named nodes first: until they stand, Slurm might give those nodes away.
        updates.sort(key=lambda pair: not (isinstance(pair[1], Update) and pair[1].node_list))
        return self._with_arrays_whole(updates)

    def _remembered(self, difference: Difference, seen: Observation) -> Sequence[Write]:
        """Record what a difference says to remember, and return its writes."""
        key, record = difference.job.key, difference.record
        if not difference.own_list_shown:
            self._own_list_since_s.pop(key, None)
        else:
            since_s = self._own_list_since_s.setdefault(key, seen.steady_s)
            if seen.steady_s - since_s > STATE_SAVED_WITHIN_S:
                # Even a restarted slurmctld now knows the user's own list.
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
        """Combine identical writes to pending tasks of an array into one write.

        A write to a single task splits it off the array's record: 5,000 tasks would become 5,000
        records in slurmctld.
        """
        together: dict[Write, list[str]] = {}
        for job, write in writes:
            alike = replace(write, key=str(job.spec.array_id)) if job.unsplit_array else write
            together.setdefault(alike, []).append(write.key)
        self._tasks_of = {array_tasks(keys): keys for keys in together.values() if len(keys) > 1}
        # Array writes come last, after the tasks to start have been split off: only a write that
        # names all remaining tasks leaves them in one record.
        return [
            replace(write, key=array_tasks(keys) if len(keys) > 1 else keys[0])
            for write, keys in sorted(together.items(), key=lambda pair: len(pair[1]) > 1)
        ]

    def _taken_back(
        self, plan: Plan, jobs: Mapping[str, JobStatus], seen: Observation
    ) -> list[tuple[JobStatus, Write]]:
        """Return writes that reset the priorities of unmanaged waiting jobs that are in a band.

        etc/job_submit.lua may have taken such a job for a managed one, or its owner has changed it
        since; the ledger may have no record of either. Each job is written to once, since a site's
        own priorities may reach into the bands.
        """
        in_a_band = [
            job
            for job in jobs.values()
            if is_pending(job)
            and plan.decisions[job.key].action is Action.LEAVE
            and has_unwritten_band(
                job, self._job_store.record(job.key), seen.partitions, self._config
            )
        ]
        found = [job for job in in_a_band if job.key not in self._unpinned]
        self._unpinned = frozenset(job.key for job in in_a_band)
        for job in found:
            text = f"priority {job.priority} is not its own"
            self._job_store.note(seen.at_s, "unpinned", job.key, text)
        return [(job, without_band(job, self._config)) for job in found]

    def _restarts(self, jobs: Mapping[str, JobStatus], now_s: float) -> list[Write]:
        """Return writes that let requeued jobs start at once if only Slurm's delay is left.

        A victim that has requeued itself before the others have left keeps its delay until then:
        Slurm might start it on the GPUs that its preemptor awaits.
        """
        writes: list[Write] = []
        awaiting = {one.preemptor for one in self._under_way(Cause.FOR_JOB) if one.makes_room}
        for one in self._in_state(PreemptionState.REQUEUED):
            job = jobs.get(one.key)
            if job is None or not is_pending(job) or one.preemptor in awaiting:
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
        """Return the victims to signal: Slurm has found their preemptors to lack only resources, or
        they are preempted for idle GPUs.

        A preemptor in ``told`` was written to in this cycle, so its observed reason is older than
        its nomination: a licence that was free then may have been taken since. The update makes
        Slurm forget the reason and try the job again at once.
        """
        victims: dict[str, list[str]] = {}
        tried_later = partitions_tried_later(seen)
        for one in self._under_way(Cause.FOR_JOB, PreemptionState.PLANNED):
            if not self._has_to_leave(one, plan, jobs):
                continue
            preemptor = jobs[one.preemptor]
            later = not tried_later.isdisjoint(preemptor.spec.partitions)
            if one.preemptor not in told and lacks_only_resources(preemptor, tried_later=later):
                victims.setdefault(one.preemptor, []).append(one.key)
        found = self._turns(victims.keys(), jobs)
        for key, awaited in found.later.items():
            self._awaited[key] = awaited
            # Its node list would keep the jobs that it waits for off these nodes.
            self._job_store.nomination_event(key, Withdrawn())
            for victim in victims[key]:
                self._tell_victim(victim, PreemptorGone(victim_runs=True))
        due: list[tuple[str, type[PreemptorTried] | type[StillIdle]]]
        due = [(key, PreemptorTried) for preemptor in found.now for key in victims[preemptor]]
        due += [
            (one.key, StillIdle)
            for one in self._under_way(Cause.IDLE_GPUS, PreemptionState.PLANNED)
            if self._has_to_leave(one, plan, jobs)
        ]
        signalled: list[str] = []
        for key, event in due:
            asks = self._is_asked(jobs[key], seen.at_s)
            grace_s = self._checkpoint(jobs[key], asks=asks).grace_s
            effects = self._tell_victim(key, event(seen.at_s, grace_s, asks))
            signalled += [key for effect in effects if isinstance(effect, SendSignal)]
        return signalled

    def _turns(self, ready: Collection[str], jobs: Mapping[str, JobStatus]) -> Turns:
        """Decide which of the ``ready`` preemptors may preempt now."""
        if not ready:
            return Turns()
        starting = {
            key for key in self._job_store.nominations if self._is_about_to_start(key, jobs)
        }
        leaving = {one.preemptor for one in self._under_way(Cause.FOR_JOB) if one.is_leaving}

        def place(job: JobStatus) -> tuple[bool, int, int]:
            """Sort by Slurm's order, but jobs whose victims are already leaving come first."""
            return job.key not in leaving, -job.priority, job.raw_id

        in_order = sorted((jobs[key] for key in starting.union(ready)), key=place)
        specs = [job.spec for job in in_order]
        return turns(specs, ready, self._slurm.limits(specs))

    def _in_state(self, *states: PreemptionState) -> list[Preemption]:
        return [one for one in self._job_store.preemptions.values() if one.state in states]

    def _under_way(self, cause: Cause, *states: PreemptionState) -> list[Preemption]:
        """Return the preemptions of a cause, in these states or in any."""
        under_way = self._in_state(*(states or PreemptionState))
        return [one for one in under_way if one.cause is cause]

    def _has_to_leave(self, one: Preemption, plan: Plan, jobs: Mapping[str, JobStatus]) -> bool:
        """Whether a victim still runs and is managed, and its preemptor still awaits its GPUs or
        the plan still preempts it for idle GPUs."""
        job, decision = jobs.get(one.key), plan.decisions.get(one.key)
        if job is None or decision is None or not _runs(job) or is_protected(job):
            return False
        match one.cause:
            case Cause.FOR_JOB:
                managed = decision.action is not Action.LEAVE
                return managed and self._is_awaited(one.preemptor, jobs)
            case Cause.IDLE_GPUS:
                return decision.action is Action.PREEMPT

    def _due_requeues(self, plan: Plan, jobs: Mapping[str, JobStatus], now_s: float) -> list[Write]:
        """Return requeues of victims that still run, and have saved or whose grace is over.

        The victims of one preemptor are requeued together: while it still lacks GPUs, Slurm
        backfills other jobs, or the victim itself, onto those that have been vacated. Then the
        preemption is in vain, which costs more than what a victim does between its save and the end
        of the others' graces. The longest grace bounds this wait.

        The preemptor's limits are checked again: other jobs may have reached them during the grace.
        """
        ready: list[Preemption] = []
        # Requeued for idle GPUs: these need not wait for other victims.
        alone: list[Preemption] = []
        incomplete: set[str] = set()
        for one in self._in_state(PreemptionState.SIGNALLED, PreemptionState.REQUEUE_SENT):
            if not self._has_to_leave(one, plan, jobs):
                continue
            if not self._may_leave(one, jobs[one.key], now_s):
                incomplete.add(one.preemptor)
            elif one.cause is Cause.IDLE_GPUS:
                alone.append(one)
            else:
                ready.append(one)
        # A controller that was killed may have recorded a requeue, and not sent it.
        ready = [
            one
            for one in ready
            if one.state is PreemptionState.REQUEUE_SENT or one.preemptor not in incomplete
        ]
        preemptors = {one.preemptor for one in ready}
        limits = self._slurm.limits([jobs[key].spec for key in preemptors]) if ready else {}
        ready = [
            one
            for one in ready
            if not any(limit.is_reached for limit in limits.get(one.preemptor, ()))
        ]
        due: list[Write] = []
        for one in (*ready, *alone):
            event = GraceOver(now_s, allow_requeue=not jobs[one.key].spec.requeue)
            for effect in self._tell_victim(one.key, event):
                if isinstance(effect, SendRequeue):
                    due.append(Requeue(one.key, allow=effect.allow))
        return due

    def _may_leave(self, one: Preemption, job: JobStatus, now_s: float) -> bool:
        """Whether the own grace of a signalled victim is over, or ends now since it has saved."""
        if one.state is PreemptionState.REQUEUE_SENT or now_s >= (one.grace_until_s or 0.0):
            return True
        signalled_s = one.signalled_s or 0.0
        saved = has_saved_since(self._progress_of(one.key), job.restarts, signalled_s)
        if saved:
            self._tell_victim(one.key, Saved(now_s))
        return saved

    def _signal(
        self, victims: Collection[str], jobs: Mapping[str, JobStatus], now_s: float
    ) -> None:
        """Send victims their checkpoint signals, and apply the answers."""
        by_signal: dict[str, list[str]] = {}
        for key in victims:
            asks = self._job_store.preemptions[key].asked
            signal = self._checkpoint(jobs[key], asks=asks).signal
            by_signal.setdefault(signal, []).append(key)
        unsent = list(victims)
        for signal, keys in by_signal.items():
            unsent = [key for key in unsent if key not in keys]
            try:
                refused = self._slurm.signal(keys, signal) if signal else {}
            except TiresiasError:
                for key in keys:
                    self._tell_victim(key, SignalUnanswered())
                for key in unsent:
                    self._tell_victim(key, SignalUnanswered(sent=False))
                raise
            for key in keys:
                words = refused.get(key)
                refusal = None if words is None else SignalRefused(now_s, signal, words)
                self._tell_victim(key, refusal or SignalHeard())

    def _is_asked(self, job: JobStatus, now_s: float) -> bool:
        spec, config = job.spec, self._config.preemption
        over_budget = spec.user in self._job_store.users_over_budget
        own = checkpoint_of(spec.admin_comment, spec.comment, config, over_budget)
        progress = self._progress_of(job.key)
        return is_asked(own, job.restarts, progress, config, now_s, over_budget=over_budget)

    def _checkpoint(self, job: JobStatus, *, asks: bool) -> Checkpoint:
        """Return a victim's signal and grace; ``asks``: it is asked to save instead."""
        if asks:
            return asked(self._config.preemption)
        spec = job.spec
        over_budget = spec.user in self._job_store.users_over_budget
        return checkpoint_of(spec.admin_comment, spec.comment, self._config.preemption, over_budget)

    def _keys_of(self, write: Write) -> Sequence[str]:
        """Return the job that a write is for, or its tasks if it is for part of an array."""
        return self._tasks_of.get(write.key, [write.key])

    def _send(self, writes: Sequence[Write], now_s: float) -> tuple[WriteFailure, ...]:
        """Send writes in parts, and record each part once Slurm has answered it.

        After an error the next attempt goes on where this one stopped, however slow slurmctld is.
        """
        failures: list[WriteFailure] = []
        for at in range(0, len(writes), MOST_WRITES_AT_ONCE):
            part = writes[at : at + MOST_WRITES_AT_ONCE]
            try:
                refused = self._slurm.write(part)
            except UnfinishedWriteError as error:
                self._answered(part[: error.answered], error.refused, now_s)
                raise
            self._answered(part, refused, now_s)
            failures += refused
        return tuple(failures)

    def _answered(
        self, writes: Sequence[Write], failures: Sequence[WriteFailure], now_s: float
    ) -> None:
        refused = {id(failure.write) for failure in failures}
        for write in writes:
            if id(write) not in refused:
                self._written(write)
        for failure in failures:
            self._refused(failure, now_s)
        self._job_store.commit()

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
    """Whether each node has enough GPUs once the leaving jobs are gone."""
    room = Counter(free)
    for allocation in leaving:
        room.update({node: amount.gpu_count for node, amount in allocation.items()})
    return all(room[node] >= amount.gpu_count for node, amount in wanted.items())


def _runs(job: JobStatus | None) -> bool:
    return job is not None and job.state is JobState.RUNNING


def _did_not_start(job: JobStatus) -> str:
    return f"did not start on its nomination (Slurm's reason: {job.reason or 'none'})"
