"""A model of slurmctld and the nodes: jobs are submitted, start, end, are requeued and forgotten.

``Slurmctld`` holds slurmctld's state; its ``runs`` are the processes that actually run on the
nodes, which survive when slurmctld is killed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from scripts.testbed.in_memory import scheduling
from scripts.testbed.in_memory.accounting import Accounting
from scripts.testbed.in_memory.clock import Clock
from scripts.testbed.in_memory.extras import NONE
from scripts.testbed.in_memory.placing import NodeRecord, fits_when_empty, place
from scripts.testbed.in_memory.records import (
    HELD_BY_ADMIN,
    HELD_BY_USER,
    HOLDS,
    NO_REASON,
    PENDING,
    RUNNING,
    SUSPENDED,
    Condition,
    JobRecord,
    Submission,
)
from slurm_tiresias.model import Allocation, JobSpec, Node, Request
from slurm_tiresias.slurm.hostlist import refolded
from slurm_tiresias.slurm.notation import node_names
from slurm_tiresias.slurm.parse_limits import licenses_of
from slurm_tiresias.slurm.protocol import Limit, Partition, Reservation

ROOT_ID = 0
"""The user id that accounting shows as the canceller of a job."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of slurm.conf.

    Parameters
    ----------
    requeue_delay_s
        How long a requeued job waits (cred_expire, or requeue_delay).
    kill_wait_s
        Time after which a job that ignores SIGTERM is killed.
    epilog_s
        How long a node is completing after a job on it has ended.
    min_job_age_s
        How long an ended job is remembered.
    schedule_delay_s
        The longest time between a change and the scheduler's next pass (batch_sched_delay).
    save_every_s
        The greatest age of the saved state when ``advance`` begins.
    backfill
        Whether jobs behind one that waits for room may start if that does not delay it.
    licenses
        The number of each licence.
    most_jobs_of_user
        How many jobs of a user may run at once in each QOS (MaxJobsPU).
    """

    requeue_delay_s: float = 120.0
    kill_wait_s: float = 5.0
    epilog_s: float = 0.3
    min_job_age_s: float = 300.0
    schedule_delay_s: float = 1.0
    save_every_s: float = 5.0
    backfill: bool = False
    licenses: Mapping[str, int] = field(default_factory=dict)
    most_jobs_of_user: int | None = None


@dataclass(slots=True)
class Run:
    """The processes of one run.

    ``ends_s`` is when they end by themselves, by the steady clock; None if the job runs until it is
    ended, or is suspended with ``left_s`` remaining. ``requeues_s`` is when its script requeues it.
    """

    start_s: float
    ends_s: float | None
    left_s: float | None = None
    requeues_s: float | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """slurmctld's last saved state. ``at_s``: when it was saved, by the steady clock."""

    at_s: float = -math.inf
    records: tuple[JobRecord, ...] = ()
    next_id: int = 1
    reservations: tuple[Reservation, ...] = ()
    nodes: tuple[Node, ...] = ()


@dataclass(slots=True)
class Slurmctld:
    """slurmctld's state, and its changes by time, users and administrators."""

    clock: Clock
    accounting: Accounting
    settings: Settings
    nodes: dict[str, NodeRecord]
    partitions: dict[str, Partition]
    reservations: dict[str, Reservation] = field(default_factory=dict)
    records: dict[int, JobRecord] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    next_id: int = 1
    schedule_due_s: float | None = None
    """When the scheduler runs next, by the steady clock; None if nothing changed since its last."""
    saved: Saved = Saved()
    hanging: set[str] = field(default_factory=set)
    """The nodes on which epilogs do not end."""
    requeued_themselves: list[tuple[str, float]] = field(default_factory=list)
    """The runs, by job and start time, whose scripts have requeued their job."""
    _requests: dict[Hashable, Request] = field(default_factory=dict, init=False)
    """By the id of the submitted request, partitions, node list and excluded nodes."""
    _alike: dict[Hashable, Request] = field(default_factory=dict, init=False)
    """By shape."""
    _fitting: dict[tuple[int, frozenset[str]], bool] = field(default_factory=dict, init=False)
    """By request and nodes."""

    # Queries

    @property
    def now_s(self) -> float:
        """slurmctld's clock, in whole seconds."""
        return self.clock.whole_s

    def pending(self) -> Iterator[JobRecord]:
        """Yield the pending records that are not completing after a requeue."""
        return (r for r in self.records.values() if r.state == PENDING and not r.completing)

    def of_array(self, array_id: int) -> list[JobRecord]:
        """Return the records of an array, the common one first."""
        return [record for record in self.records.values() if record.spec.array_id == array_id]

    def completing_nodes(self) -> set[str]:
        """Return the nodes that start no job because one on them has just ended."""
        return {
            name
            for record in self.records.values()
            if record.completing
            for name in record.allocation
        }

    def ask(self, record: JobRecord, **changes: Any) -> None:
        """Change a record's spec. Its request is updated with its partitions and node list; equal
        requests share one object."""
        spec = replace(record.spec, **changes)
        submitted = record.submission.request
        excluded = submitted.excluded_nodes if record.excluded is None else record.excluded
        asked = id(submitted), spec.partitions, spec.required_node_list, excluded
        if asked not in self._requests:
            self._requests[asked] = self._one_for_all(
                replace(
                    submitted,
                    excluded_nodes=excluded,
                    partitions=spec.partitions,
                    required_nodes=frozenset(node_names(spec.required_node_list)),
                )
            )
        spec = replace(spec, request=self._requests[asked])
        if spec != record.spec:
            record.spec = spec

    def _one_for_all(self, request: Request) -> Request:
        """Return one object for all equal requests; it is kept, so that its ``id`` stays valid."""
        return self._alike.setdefault(request.shape, request)

    def can_ever_fit(self, request: Request, names: frozenset[str]) -> bool:
        """Whether a request, as set by ``ask``, would fit on these nodes if they were empty."""
        asked = id(request), names
        if asked not in self._fitting:
            self._fitting[asked] = fits_when_empty(request, (self.nodes[name] for name in names))
        return self._fitting[asked]

    def place(self, record: JobRecord, names: frozenset[str]) -> Allocation | None:
        """Return where a job fits now on these nodes; None if nowhere."""
        extras, spec = record.submission.extras, record.spec
        on_node = self._running_with_extras()
        if extras is NONE and not on_node:
            return place(spec.request, (self.nodes[name] for name in names))
        able = frozenset(n for n in names if self._serves_now(record, n, on_node.get(n, ())))
        for nodes in extras.among(able):
            found = place(spec.request, (self.nodes[name] for name in nodes))
            if found is not None:
                return found
        return None

    def _running_with_extras(self) -> Mapping[str, Sequence[JobRecord]]:
        """Return the running jobs by node, if any job uses ``Extras``; else empty."""
        if not any(r.submission.extras is not NONE for r in self.records.values()):
            return {}
        found: dict[str, list[JobRecord]] = {}
        for record in self.records.values():
            if record.runs:
                for name in record.allocation:
                    found.setdefault(name, []).append(record)
        return found

    def _serves_now(self, record: JobRecord, name: str, running: Sequence[JobRecord]) -> bool:
        extras = record.submission.extras
        taken = sum(one.submission.extras.drives for one in running)
        if extras.drives > self.nodes[name].drives - taken:
            return False
        return all(
            one.spec.user == record.spec.user
            for one in running
            if extras.user_alone or one.submission.extras.user_alone
        )

    def could_ever_serve(self, record: JobRecord, names: frozenset[str]) -> bool:
        """Whether a job, with its extras, would fit on these nodes if they were empty."""
        extras, request = record.submission.extras, record.spec.request
        able = frozenset(n for n in names if self.nodes[n].drives >= extras.drives)
        return any(self.can_ever_fit(request, nodes) for nodes in extras.among(able))

    def limits_of(self, spec: JobSpec) -> Iterator[Limit]:
        """Yield the limits that a job shares with others, less what running jobs use."""
        running = [one.spec for one in self.records.values() if one.runs]
        for name, count in licenses_of(spec).items():
            used = sum(licenses_of(one).get(name, 0) for one in running)
            left = self.settings.licenses.get(name, 0) - used
            yield Limit(f"licence {name}", left, count, count)
        most = self.settings.most_jobs_of_user
        if most is not None:
            used = sum((one.user, one.qos) == (spec.user, spec.qos) for one in running)
            yield Limit(f"MaxJobsPU of user {spec.user} in QOS {spec.qos}", most - used, 1, 1)

    # The life cycle of jobs

    def submit(self, submission: Submission) -> JobRecord:
        """Create the record of a new job."""
        request = self._one_for_all(submission.request)
        submission = replace(submission, request=request)
        spec = JobSpec(
            key=str(self.next_id),
            array_id=self.next_id if submission.array else None,
            array_limit=submission.array_limit,
            name=submission.name,
            user=submission.user,
            account=submission.account,
            qos=submission.qos,
            partitions=submission.partitions,
            batch=submission.batch,
            requeue=submission.requeue,
            het=False,
            submit_s=self.now_s,
            time_limit_s=submission.time_limit_s,
            request=request,
            reservation=submission.reservation,
            licenses=submission.licenses,
            comment=submission.comment,
            admin_comment=submission.admin_comment,
        )
        conditions = tuple(
            Condition(kind, int(job_id))
            for kind, *job_ids in (part.split(":") for part in submission.dependency.split(","))
            for job_id in job_ids
        )
        record = JobRecord(
            raw_id=self.next_id,
            tasks=submission.array or (0,),
            submission=submission,
            spec=spec,
            conditions=conditions,
        )
        self.ask(record, required_node_list=refolded(submission.node_list))
        self.next_id += 1
        if submission.begin_in_s is not None:
            record.begin_s = self.now_s + submission.begin_in_s
        elif not (submission.held or record.conditions or submission.array):
            record.begin_s = self.now_s
        if submission.held:
            record.priority, record.reason = 0, HELD_BY_USER
        elif submission.priority is not None:
            record.priority, record.pinned = submission.priority, True
        else:
            record.priority = record.computed_priority
        self.records[record.raw_id] = record
        self.touch(record)
        return record

    def touch(self, record: JobRecord) -> None:
        """Mark a job as changed, so that it is shown anew and scheduled again."""
        record.changed()
        self.schedule_soon()

    def schedule_soon(self) -> None:
        """Have the scheduler run soon, after a change that may let a job start."""
        due_s = self.clock.in_s(self.settings.schedule_delay_s)
        if self.schedule_due_s is None or self.schedule_due_s > due_s:
            self.schedule_due_s = due_s

    def split_off(self, record: JobRecord, task: int) -> JobRecord:
        """Split one task off an array's pending record and return its record; the last task keeps
        the common record."""
        if len(record.tasks) == 1:
            return record
        split = copy(record)
        split.raw_id, split.tasks = self.next_id, (task,)
        self.next_id += 1
        record.tasks = tuple(number for number in record.tasks if number != task)
        self.records[split.raw_id] = split
        record.changed()
        split.changed()
        return split

    def start(self, record: JobRecord, allocation: Allocation) -> JobRecord:
        """Start a job, or the first task of an array's pending record."""
        record = self.split_off(record, record.tasks[0])
        record.state, record.reason = RUNNING, NO_REASON
        record.start_s, record.end_s = self.now_s, None
        record.suspended_s, record.suspended_since_s = 0.0, None
        record.allocation = allocation
        self._hold_on_nodes(record, -1)
        lasts_s = record.submission.duration_s
        ends_s = None if lasts_s is None else self.clock.in_s(lasts_s)
        self.runs[record.raw_id] = Run(self.now_s, ends_s)
        self.accounting.started(record)
        self.touch(record)
        return record

    def end(
        self,
        record: JobRecord,
        state: str,
        *,
        exit_code: int = 0,
        cancelled_by: int | None = None,
        reason: str = NO_REASON,
    ) -> None:
        """End the run of a job for good, in one of Slurm's final states."""
        self._stop(record, state, exit_code=exit_code, cancelled_by=cancelled_by)
        record.state, record.reason = state, reason
        self.touch(record)

    def requeue(self, record: JobRecord, state: str = "REQUEUED") -> None:
        """End the run of a job, which is pending again once its nodes have finished the epilog."""
        if record.runs:
            self._stop(record, state)
        record.restarts += 1
        record.state = PENDING
        if record.epilog_over_s is None:
            self._wait_again(record)
        self.touch(record)

    def hear(self, record: JobRecord) -> None:
        """Deliver a signal to a running job, whose script may requeue it for that."""
        after_s, run = record.submission.requeues_itself_in_s, self.runs[record.raw_id]
        if after_s is not None and run.requeues_s is None:
            run.requeues_s = self.clock.in_s(after_s)

    def _stop(
        self,
        record: JobRecord,
        state: str,
        *,
        exit_code: int = 0,
        cancelled_by: int | None = None,
    ) -> None:
        """End a run for slurmctld; its nodes are completing until its processes are gone."""
        # Slurm records the time of the suspension as the end of a suspended job.
        end_s = self.now_s if record.suspended_since_s is None else record.suspended_since_s
        self.accounting.ended(record, state, end_s, exit_code=exit_code, cancelled_by=cancelled_by)
        record.end_s, record.suspended_since_s = end_s, None
        record.ended_on, record.exit_code = tuple(record.allocation), exit_code
        self._hold_on_nodes(record, +1)
        record.completing = True
        by_itself = self.runs.pop(record.raw_id, None) is None or state in ("COMPLETED", "FAILED")
        dies_in_s = 0.0 if by_itself else record.submission.dies_in_s
        dies_in_s = min(dies_in_s, max(self.settings.kill_wait_s, 5.0))
        record.epilog_over_s = self.clock.in_s(dies_in_s + self.settings.epilog_s)

    def _wait_again(self, record: JobRecord) -> None:
        """Make a requeued job pending as if submitted now; it waits for Slurm's requeue delay, or
        longer if its begin time is later."""
        record.spec = replace(record.spec, submit_s=self.now_s)
        record.start_s = record.end_s = None
        if record.begin_s is None or record.begin_s <= self.now_s:
            record.begin_s = self.now_s + self.settings.requeue_delay_s + 1.0

    def _hold_on_nodes(self, record: JobRecord, sign: int) -> None:
        for name, amount in record.allocation.items():
            self.nodes[name].add(amount, sign)

    # Operations of users and administrators

    def cancel(self, record: JobRecord, by: int = ROOT_ID) -> None:
        """Cancel a job in any state."""
        if record.runs:
            self.end(record, "CANCELLED", cancelled_by=by)
        elif record.is_pending:
            # A job that still completes after a requeue keeps the end time of its last run.
            if not record.completing:
                record.end_s = self.now_s
                if len(record.tasks) == 1:
                    self.accounting.ended(record, "CANCELLED", self.now_s, cancelled_by=by)
            record.state = "CANCELLED"
            self.touch(record)

    def forget_tasks(self, record: JobRecord, tasks: Collection[int]) -> None:
        """Remove cancelled tasks from an array's pending record, as slurmctld does at once."""
        record.tasks = tuple(number for number in record.tasks if number not in tasks)
        self.touch(record)

    def hold(self, record: JobRecord, *, by_admin: bool) -> None:
        """Set priority 0, also for a running job, which would then wait after a requeue."""
        record.priority, record.pinned = 0, False
        record.reason = HELD_BY_ADMIN if by_admin else HELD_BY_USER
        if record.begin_s is not None and record.begin_s <= self.now_s:
            record.begin_s = None
        self.touch(record)

    def unpin(self, record: JobRecord) -> None:
        """Restore Slurm's own priority, which also releases a held job."""
        record.priority, record.pinned = record.computed_priority, False
        if record.is_pending or record.reason in HOLDS:
            record.reason = NO_REASON
        self.touch(record)

    def suspend(self, record: JobRecord) -> None:
        """Suspend a job: it keeps its nodes, its run time stops, and its priority becomes 0."""
        run = self.runs[record.raw_id]
        if run.ends_s is not None:
            run.left_s, run.ends_s = run.ends_s - self.clock.steady_s, None
        record.state, record.suspended_since_s, record.priority = SUSPENDED, self.now_s, 0
        self.accounting.suspended_or_resumed(record)
        self.touch(record)

    def resume(self, record: JobRecord) -> None:
        """Resume a suspended job. Slurm recomputes its priority and forgets any written one."""
        run = self.runs[record.raw_id]
        if run.left_s is not None:
            run.ends_s, run.left_s = self.clock.in_s(run.left_s), None
        record.suspended_s += self.now_s - (record.suspended_since_s or self.now_s)
        record.state, record.suspended_since_s = RUNNING, None
        if record.priority == 0:
            record.priority, record.pinned = record.computed_priority, False
        self.accounting.suspended_or_resumed(record)
        self.touch(record)

    def set_node(self, name: str, state: str, *, available: bool) -> None:
        """Drain a node, or return it to service."""
        self.nodes[name].node = replace(self.nodes[name].node, state=state, available=available)
        self.schedule_soon()

    def fail_node(self, name: str) -> None:
        """Take a node down; jobs on it are requeued if allowed, or end."""
        self.set_node(name, "DOWN", available=False)
        for record in list(self.records.values()):
            if record.runs and name in record.allocation:
                self.lose(record)

    def lose(self, record: JobRecord) -> None:
        """Handle a run that was lost with its node."""
        if record.spec.requeue and record.spec.batch:
            self.requeue(record, "NODE_FAIL")
        else:
            self.end(record, "NODE_FAIL")

    # Time

    def advance(self, seconds: float) -> None:
        """Let time pass; each event happens at its due time."""
        if self.clock.steady_s - self.saved.at_s >= self.settings.save_every_s:
            self.save_state()
        until_s = self.clock.in_s(seconds)
        while (due_s := self._next_s()) <= until_s:
            self.clock.move_to(due_s)
            self._happen()
        self.clock.move_to(until_s)

    def _next_s(self) -> float:
        """Return when the next event is due, by the steady clock."""
        times = [math.inf if self.schedule_due_s is None else self.schedule_due_s]
        for run in self.runs.values():
            times += (at_s for at_s in (run.ends_s, run.requeues_s) if at_s is not None)
        now_s = self.clock.now_s
        for record in self.records.values():
            if record.epilog_over_s is not None and self.hanging.isdisjoint(record.allocation):
                times.append(max(record.epilog_over_s, self.clock.steady_s))
            at_s = self._deadline_s(record)
            if at_s is not None:
                times.append(self.clock.steady_at(at_s))
        edges = (at for r in self.reservations.values() for at in (r.start_s, r.end_s))
        times += (self.clock.steady_at(at_s) for at_s in edges if at_s > now_s)
        return min(times)

    def _deadline_s(self, record: JobRecord) -> float | None:
        """Return when slurmctld next acts on a job, by slurmctld's clock."""
        if (
            record.state == RUNNING
            and record.spec.time_limit_s is not None
            and record.start_s is not None
        ):
            return record.start_s + record.suspended_s + record.spec.time_limit_s
        if record.has_ended and not record.completing and record.end_s is not None:
            return record.end_s + self.settings.min_job_age_s
        if record.is_pending and record.begin_s is not None and record.begin_s > self.clock.now_s:
            return record.begin_s
        return None

    def _happen(self) -> None:
        """Carry out all events that are due now."""
        steady_s, now_s = self.clock.steady_s, self.now_s
        for raw_id, run in list(self.runs.items()):
            if run.ends_s is not None and run.ends_s <= steady_s:
                self.finish(self.records[raw_id])
            elif run.requeues_s is not None and run.requeues_s <= steady_s:
                run.requeues_s = None
                if self.records[raw_id].spec.requeue:
                    self.requeued_themselves.append((self.records[raw_id].keys[0], run.start_s))
                    self.requeue(self.records[raw_id])
        for record in list(self.records.values()):
            over_s = math.inf if record.epilog_over_s is None else record.epilog_over_s
            if over_s <= steady_s and self.hanging.isdisjoint(record.allocation):
                record.completing, record.epilog_over_s = False, None
                record.allocation = {}
                if record.is_pending:
                    self._wait_again(record)
                self.touch(record)
                self.schedule_due_s = steady_s
            at_s = self._deadline_s(record)
            if at_s is None or at_s > self.clock.now_s:
                continue
            if record.state == RUNNING:
                self.end(record, "TIMEOUT", reason="TimeLimit")
            elif record.has_ended:
                del self.records[record.raw_id]
        begins = any(record.begin_s == now_s for record in self.pending())
        edges = (at for r in self.reservations.values() for at in (r.start_s, r.end_s))
        if begins or any(at_s == now_s for at_s in edges):
            self.schedule_due_s = steady_s
        if self.schedule_due_s is not None and self.schedule_due_s <= steady_s:
            self.schedule()

    def finish(self, record: JobRecord, exit_code: int | None = None) -> None:
        """End a job's script with its exit code."""
        code = record.submission.exit_code if exit_code is None else exit_code
        state = "FAILED" if code else "COMPLETED"
        self.end(record, state, exit_code=code, reason="NonZeroExitCode" if code else NO_REASON)

    def schedule(self) -> None:
        """Run one pass of the scheduler; another follows if it has started any job."""
        self.schedule_due_s = None
        scheduling.run(self)

    # Restart of slurmctld

    def save_state(self) -> None:
        """Save the state, which a killed slurmctld restores at its restart."""
        self.saved = Saved(
            self.clock.steady_s,
            tuple(map(copy, self.records.values())),
            self.next_id,
            tuple(self.reservations.values()),
            tuple(record.node for record in self.nodes.values()),
        )

    def lose_state(self) -> None:
        """Lose the saved state, as with StateSaveLocation: job ids begin again at the next restart.
        Accounting keeps its rows."""
        self.saved = Saved(self.clock.steady_s, nodes=self.saved.nodes)

    def restart(self) -> None:
        """Restart a killed slurmctld from its last saved state.

        A job that runs in that state but on no node is lost; a run on a node that does not belong
        to a running job in that state is killed.
        """
        self.records = {record.raw_id: copy(record) for record in self.saved.records}
        self.next_id = self.saved.next_id
        self.reservations = {one.name: one for one in self.saved.reservations}
        for node in self.saved.nodes:
            self.nodes[node.name].node = node
        for one in self.nodes.values():
            one.empty()
        for record in self.records.values():
            record.changed()
            if record.runs:
                self._hold_on_nodes(record, -1)
        # The nodes report their running jobs.
        running = {raw_id: record for raw_id, record in self.records.items() if record.runs}
        self.runs = {
            raw_id: run
            for raw_id, run in self.runs.items()
            if raw_id in running and running[raw_id].start_s == run.start_s
        }
        for raw_id, record in running.items():
            if raw_id not in self.runs:
                self.lose(record)
            elif record.state == RUNNING and (left_s := self.runs[raw_id].left_s) is not None:
                # Forgotten with its suspension; an operator lets the stopped processes go on.
                self.runs[raw_id].ends_s, self.runs[raw_id].left_s = self.clock.in_s(left_s), None
        self.schedule_soon()
