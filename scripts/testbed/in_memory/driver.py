"""The driver of the in-memory Slurm, and the operations of users, administrators and faults."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from scripts.testbed.in_memory import updates
from scripts.testbed.in_memory.accounting import Accounting
from scripts.testbed.in_memory.clock import Clock
from scripts.testbed.in_memory.placing import NodeRecord
from scripts.testbed.in_memory.records import LAUNCH_FAILED, SUSPENDED, JobRecord, Submission
from scripts.testbed.in_memory.slurmctld import ROOT_ID, Settings, Slurmctld
from slurm_tiresias.errors import SlurmUnreachableError
from slurm_tiresias.model import Amount, JobSpec, JobStatus, Node
from slurm_tiresias.slurm import write_lines
from slurm_tiresias.slurm.notation import node_names
from slurm_tiresias.slurm.protocol import (
    AccountedRun,
    Cluster,
    Driver,
    Lease,
    Limit,
    Observation,
    Partition,
    Reservation,
    Unbounded,
    UnfinishedWriteError,
    Write,
    WriteFailure,
)

VERSION = (22, 5, 8)
"""The release whose behaviour is modelled."""


@dataclass(frozen=True, slots=True)
class SentSignal:
    """A signal sent to a job; ``at_s`` is by slurmctld's clock."""

    at_s: float
    key: str
    signal: str


FOUR_NODES = tuple(Node(f"n{number}", Amount({"": 4}, 16, 8000)) for number in range(1, 5))
"""The nodes of the tests' real cluster."""


class InMemorySlurm:
    """A Slurm in memory. Implements ``protocol.Slurm``. Not thread-safe, except for ``runs``.

    Jobs are addressed by the keys of Slurm's commands: ``12``, ``12_3``, ``12_[3-5]``. Operations
    of users and administrators return "" or, if Slurm refuses, its message. Time passes only in
    ``advance``.

    Parameters
    ----------
    nodes
        The nodes; their ``partitions`` are filled in.
    partitions
        Partitions, or names of partitions with all nodes.
    settings
        The settings of slurm.conf.
    clock
        Slurm's clock and the steady one.
    drives
        By node, the number of a second kind of GRES, which the controller does not see.

    Attributes
    ----------
    accounting
        slurmdbd.
    breaks_off_after
        How many of the next writes are carried out before slurmctld is down; None for all.
    refusals
        Slurm's message for the next write for a job or node, by its key.
    signals
        Every signal that has reached a job.
    writes
        The number of writes carried out or refused.
    """

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        partitions: Iterable[str | Partition] = ("gpu", "other"),
        settings: Settings | None = None,
        clock: Clock | None = None,
        drives: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        known = tuple(nodes) or FOUR_NODES
        names = frozenset(node.name for node in known)
        found = [Partition(p, names, True) if isinstance(p, str) else p for p in partitions]
        self.clock = clock or Clock()
        self.breaks_off_after: int | None = None
        self.refusals: dict[str, str] = {}
        self.signals: list[SentSignal] = []
        self.writes = 0
        self._lease: Lease = Unbounded()
        self.accounting = Accounting(self.clock)
        records = {node.name: NodeRecord(node, drives=drives.get(node.name, 0)) for node in known}
        for record in records.values():
            record.empty()
        self._ctld = Slurmctld(
            self.clock,
            self.accounting,
            settings or Settings(),
            records,
            {one.name: one for one in found},
        )
        self._shown_nodes: tuple[Node, ...] = ()
        self._nodes_shown_of: tuple[object, ...] = ()
        self._ctld.save_state()

    def reached_by(self, lease: Lease) -> InMemorySlurm:
        """Return a driver of the same Slurm for a controller with this lease."""
        other = copy(self)
        other._lease = lease
        return other

    # The driver

    @property
    def driver(self) -> Driver:
        """The driver's name."""
        return Driver("in-memory")

    def cluster(self) -> Cluster:
        """The facts about the cluster."""
        settings = self._ctld.settings
        return Cluster(
            name="in-memory",
            version=VERSION,
            priority_type="priority/multifactor",
            accounting=True,
            kill_wait_s=settings.kill_wait_s,
            requeue_delay_s=settings.requeue_delay_s,
            now_s=self.clock.now_s,
            output_appended=True,
        )

    def may_operate(self) -> bool:
        """Return that the controller's user has operator rights."""
        return True

    def acting_host(self) -> str:
        """Return the host of the active slurmctld."""
        return "head1"

    def observe(self) -> Observation:
        """Return all jobs, nodes and partitions; unchanged ones are the same objects as before."""
        now_s = self._ctld.now_s
        jobs: list[JobStatus] = []
        for record in self._ctld.records.values():
            jobs += record.shown(now_s)
        return Observation(
            at_s=self.clock.now_s,
            jobs=tuple(jobs),
            nodes=self._nodes(),
            partitions=tuple(self._ctld.partitions.values()),
            reservations=tuple(self._ctld.reservations.values()),
            steady_s=self.clock.steady_s,
        )

    def runs(self, keys: Collection[str], since_s: float) -> Sequence[AccountedRun]:
        """Return the runs that accounting knows by now, oldest first."""
        return self.accounting.runs(keys, since_s)

    def dependency(self, key: str) -> str:
        """Return a pending job's remaining dependency: ``afterok:12(unfulfilled)``."""
        return ",".join(map(str, self._record(key).conditions))

    def exit_codes(self, keys: Collection[str]) -> Mapping[str, str]:
        """Return the exit codes of the jobs' last runs."""
        return {key: f"{self._record(key).exit_code}:0" for key in keys}

    def limits(self, jobs: Collection[JobSpec]) -> Mapping[str, Sequence[Limit]]:
        """Return by job key the limits that each of these jobs shares with others."""
        return {job.key: tuple(self._ctld.limits_of(job)) for job in jobs}

    def write(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        """Carry out all writes, in order; return those that were refused.

        Raises ``ValueError`` if one is invalid, ``LeaseLostError`` if the lease has ended, and
        ``UnfinishedWriteError`` after ``breaks_off_after`` of them.
        """
        self._lease.check()
        for write in writes:
            write_lines.lines(write)
        if not writes:
            return ()
        done, self.breaks_off_after = self.breaks_off_after, None
        failures: list[WriteFailure] = []
        for write in writes[:done]:
            self.writes += 1
            words = self.refusals.pop(write.key, "") or updates.apply(self._ctld, write)
            if words:
                failures.append(WriteFailure(write, words))
        if done is not None:
            down = SlurmUnreachableError("slurmctld is down: injected by a test", "wait for it")
            raise UnfinishedWriteError(down, done, failures)
        return tuple(failures)

    def signal(self, keys: Sequence[str], signal: str) -> Mapping[str, str]:
        """Send a signal to running jobs; other jobs are ignored."""
        self._lease.check()
        running = {key: r for r in self._ctld.records.values() if r.runs for key in r.keys}
        for key in keys:
            if key in running:
                self.signals.append(SentSignal(self.clock.now_s, key, signal))
                self._ctld.hear(running[key])
        return {}

    # Users

    def submit(self, submission: Submission) -> str:
        """``sbatch``: return the key of the job, or the id of the array."""
        return str(self._ctld.submit(submission).raw_id)

    def cancel(self, key: str, by: int = ROOT_ID) -> str:
        """``scancel``. Some tasks of an array's pending record are forgotten at once."""
        names = set(node_names(key) if key.endswith("]") else [key])
        found = [r for r in self._ctld.records.values() if not names.isdisjoint(r.names)]
        for record in found:
            named = {task for task in record.tasks if f"{record.spec.array_id}_{task}" in names}
            if named and len(named) < len(record.tasks):
                self._ctld.forget_tasks(record, named)
            else:
                self._ctld.cancel(record, by)
        return "" if found else f"{updates.INVALID_ID} for job {key}"

    def hold(self, key: str, *, by_admin: bool = False) -> str:
        """``scontrol hold`` by an administrator, or by the job's owner."""
        return updates.each(
            self._ctld, key, lambda record: updates.hold(self._ctld, record, by_admin=by_admin)
        )

    def release(self, key: str, *, by_admin: bool = False) -> str:
        """``scontrol release``; an owner cannot release a job held by an administrator."""
        act = updates.release if by_admin else updates.release_by_owner
        return updates.each(self._ctld, key, lambda record: act(self._ctld, record))

    def edit(self, key: str, **change: Any) -> str:
        """``scontrol update`` of one field by the job's owner (``updates.edit``)."""
        ((field, value),) = change.items()
        return updates.each(self._ctld, key, partial(updates.edit, self._ctld, field, value))

    def requeue(self, key: str) -> str:
        """``scontrol requeue`` by a user or an administrator; reruns a job that has ended."""
        return updates.each(self._ctld, key, lambda record: updates.requeue(self._ctld, record))

    def finish(self, key: str, exit_code: int = 0) -> str:
        """End the script of a running job now."""
        record = self._record(key)
        if not record.runs:
            return updates.FINISHED if record.has_ended else updates.IS_PENDING
        self._ctld.finish(record, exit_code)
        return ""

    # Administrators and faults

    def suspend(self, key: str) -> str:
        """``scontrol suspend`` of a running job."""
        record = self._record(key)
        if not record.runs:
            return updates.FINISHED if record.has_ended else updates.IS_PENDING
        if record.state != SUSPENDED:
            self._ctld.suspend(record)
        return ""

    def resume(self, key: str) -> str:
        """``scontrol resume`` of a suspended job."""
        record = self._record(key)
        if record.state != SUSPENDED:
            return updates.IS_PENDING if record.is_pending else updates.NOT_SUSPENDED
        self._ctld.resume(record)
        return ""

    def drain(self, node: str) -> None:
        """Drain the node, so that no new job starts on it."""
        self._ctld.set_node(node, "DRAIN", available=False)

    def resume_node(self, node: str) -> None:
        """Return a drained or down node to service."""
        self._ctld.set_node(node, "IDLE", available=True)

    def fail_node(self, node: str) -> None:
        """Take the node down, so that its runs are lost."""
        self._ctld.fail_node(node)

    def fail_launch(self, key: str) -> None:
        """Let the launch of a job fail, as after an error of the prolog: Slurm requeues the job,
        holds it and drains the node."""
        record = self._record(key)
        (node, *_) = record.allocation
        self._ctld.requeue(record)
        record.priority, record.pinned, record.reason = 0, False, LAUNCH_FAILED
        self.drain(node)

    def let_epilogs_hang(self, node: str, *, hang: bool) -> None:
        """Let no epilog on a node end from now on, or let them end again."""
        (self._ctld.hanging.add if hang else self._ctld.hanging.discard)(node)

    def reserve(self, name: str, nodes: str, start_in_s: float, duration_s: float) -> None:
        """Reserve nodes (a hostlist) for jobs that name this reservation."""
        start_s = self._ctld.now_s + start_in_s
        self._ctld.reservations[name] = Reservation(
            name, frozenset(node_names(nodes)), start_s, start_s + duration_s
        )
        self._ctld.schedule_soon()

    def remove_reservation(self, name: str) -> None:
        """Remove a reservation."""
        del self._ctld.reservations[name]
        self._ctld.schedule_soon()

    def obstruct(self, key: str, reason: str) -> Sequence[str]:
        """Give Slurm a reason, such as ``Licenses``, not to start a job and the tasks in the same
        record; "" removes it. Returns the keys of these jobs."""
        record = self._record(key)
        record.obstacle = reason
        self._ctld.schedule_soon()
        return record.keys

    def set_partition(self, name: str, nodes: str) -> None:
        """Change the nodes of a partition."""
        names = frozenset(node_names(nodes))
        self._ctld.partitions[name] = replace(self._ctld.partitions[name], nodes=names)
        self._ctld.schedule_soon()

    def garble(self, key: str, why: str) -> Sequence[str]:
        """Make a job's record unreadable, or readable again if ``why`` is "". Returns the keys of
        all tasks in that record."""
        record = self._record(key)
        record.unreadable = why
        record.changed()
        return record.keys

    def advance(self, seconds: float) -> None:
        """Let time pass: runs end, epilogs finish, delays expire, Slurm starts jobs."""
        self._ctld.advance(seconds)

    def schedule(self) -> None:
        """Run Slurm's scheduler now."""
        self._ctld.schedule()

    def step_clock(self, seconds: float) -> None:
        """Set slurmctld's clock by some seconds."""
        self.clock.set_by(seconds)
        self._ctld.schedule_soon()

    def save_state(self) -> None:
        """Save slurmctld's state, which it restores after a kill."""
        self._ctld.save_state()

    def lose_state(self) -> None:
        """Kill slurmctld and restart it without its saved state; slurmdbd keeps its own."""
        self._ctld.lose_state()
        self._ctld.restart()

    def restart(self, *, killed: bool = True) -> None:
        """Restart slurmctld. After a kill it has lost all changes since it last saved its state
        (``Settings.save_every_s``, or ``save_state``), and the nodes report what runs."""
        if not killed:
            self._ctld.save_state()
        self._ctld.restart()

    # Queries of tests

    @property
    def requeued_themselves(self) -> Sequence[tuple[str, float]]:
        """The runs, by job and start time, whose scripts have requeued their job for a signal."""
        return self._ctld.requeued_themselves

    def job(self, key: str) -> JobStatus:
        """Return one job as ``observe`` shows it; raise ``KeyError`` if Slurm does not know it."""
        for job in self._record(key).shown(self._ctld.now_s):
            if job.key == key:
                return job
        raise KeyError(key)

    def _record(self, key: str) -> JobRecord:
        for record in self._ctld.records.values():
            if key in record.keys:
                return record
        raise KeyError(key)

    def _nodes(self) -> tuple[Node, ...]:
        """Return the nodes with their states; the same objects while nothing changes."""
        completing = self._ctld.completing_nodes()
        shown_of = tuple(
            (one.node, one.is_idle, name in completing) for name, one in self._ctld.nodes.items()
        )
        seen = (*shown_of, *self._ctld.partitions.values())
        if seen != self._nodes_shown_of:
            self._nodes_shown_of = seen
            self._shown_nodes = tuple(self._shown_node(*one) for one in shown_of)
        return self._shown_nodes

    def _shown_node(self, node: Node, idle: bool, completing: bool) -> Node:
        state = node.state
        if state != "DOWN":
            words = ["IDLE" if idle else "MIXED", "COMPLETING" if completing else ""]
            state = "+".join(filter(None, [*words, "DRAIN" if state == "DRAIN" else ""]))
        mine = (
            one.name for one in self._ctld.partitions.values() if one.up and node.name in one.nodes
        )
        return replace(node, state=state, partitions=frozenset(mine))
