"""The driver, and the side of the cluster on which users, administrators and chance act."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

from slurm_tiresias.model import Amount, JobSpec, JobStatus, Node
from slurm_tiresias.slurm import write_lines
from slurm_tiresias.slurm.in_memory import updates
from slurm_tiresias.slurm.in_memory.accounting import Accounting
from slurm_tiresias.slurm.in_memory.clock import Clock
from slurm_tiresias.slurm.in_memory.faults import Faults
from slurm_tiresias.slurm.in_memory.placing import NodeRecord
from slurm_tiresias.slurm.in_memory.records import SUSPENDED, JobRecord, Submission
from slurm_tiresias.slurm.in_memory.slurmctld import ROOT_ID, Settings, Slurmctld
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
    Write,
    WriteFailure,
)

VERSION = (22, 5, 8)
"""The release that it behaves like."""


@dataclass(frozen=True, slots=True)
class SentSignal:
    """A signal that a job was sent, and when by slurmctld's clock."""

    at_s: float
    key: str
    signal: str


def four_nodes() -> tuple[Node, ...]:
    """The nodes of the tests' real cluster: n1 to n4, four GPUs each."""
    total = Amount({"": 4}, 16, 8000)
    return tuple(Node(f"n{number}", total) for number in range(1, 5))


class InMemorySlurm:
    """A Slurm in memory. Implements ``protocol.Slurm``; not to be shared between threads, but for
    ``runs``.

    Every job is addressed by the key of Slurm's commands: ``12``, ``12_3``, ``12_[3-5]``. What a
    user or an administrator does returns "" or, where Slurm refuses, Slurm's words. Nothing happens
    by itself but in ``advance``.

    Parameters
    ----------
    nodes
        The nodes; their ``partitions`` are filled in.
    partitions
        Names of partitions, or partitions; each name stands for one of all nodes.
    settings
        What slurm.conf would say.
    clock
        Slurm's clock and the steady one.
    accounting
        Whether there is slurmdbd.
    lease
        Leave to write; without it, for ever.
    drives
        How many of a second kind of GRES nodes have, which the controller does not see.

    Attributes
    ----------
    faults
        What is to go wrong at the next calls.
    signals
        Every signal that has reached a job.
    writes
        How many writes were taken or refused.
    host
        The host of the slurmctld that acts; "" while none does.
    operator
        Whether the controller's user may operate.
    """

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        partitions: Iterable[str | Partition] = ("gpu", "other"),
        settings: Settings | None = None,
        clock: Clock | None = None,
        *,
        accounting: bool = True,
        lease: Lease | None = None,
        drives: Mapping[str, int] | None = None,
    ) -> None:
        known = tuple(nodes) or four_nodes()
        names = frozenset(node.name for node in known)
        found = [Partition(p, names, True) if isinstance(p, str) else p for p in partitions]
        self.clock = clock or Clock()
        self.faults = Faults()
        self.signals: list[SentSignal] = []
        self.writes = 0
        self.host = "head1"
        self.operator = True
        self._lease: Lease = lease or Unbounded()
        self._has_accounting = accounting
        self._accounting = Accounting(self.clock)
        records = {node.name: NodeRecord(node) for node in known}
        for name, count in (drives or {}).items():
            records[name].drives = count
        for record in records.values():
            record.empty()
        self._ctld = Slurmctld(
            self.clock,
            self._accounting,
            settings or Settings(),
            records,
            {one.name: one for one in found},
        )
        self._shown_nodes: tuple[Node, ...] = ()
        self._nodes_shown_of: tuple[object, ...] = ()
        self._ctld.save_state()

    def reached_by(self, lease: Lease) -> InMemorySlurm:
        """The same Slurm, as a controller with this lease reaches it."""
        other = copy(self)
        other._lease = lease
        return other

    # The driver

    @property
    def driver(self) -> Driver:
        """It stands for itself."""
        return Driver("in-memory")

    def cluster(self) -> Cluster:
        """The facts about the cluster."""
        self.faults.before("cluster")
        settings = self._ctld.settings
        return Cluster(
            name="in-memory",
            version=VERSION,
            priority_type="priority/multifactor",
            accounting=self._has_accounting,
            kill_wait_s=settings.kill_wait_s,
            requeue_delay_s=settings.requeue_delay_s,
            now_s=self.clock.now_s,
            output_appended=True,
        )

    def may_operate(self) -> bool:
        """As ``operator`` says."""
        return self.operator

    def acting_host(self) -> str:
        """As ``host`` says."""
        return self.host

    def observe(self) -> Observation:
        """All jobs, nodes and partitions; what has not changed since is the same object."""
        self.faults.before("observe")
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
        """Every run that accounting knows of by now, oldest first."""
        self.faults.before("runs")
        return self._accounting.runs(keys, since_s) if self._has_accounting else ()

    def dependency(self, key: str) -> str:
        """What a pending job still depends on: ``afterok:12(unfulfilled)``."""
        self.faults.before("dependency")
        return ",".join(map(str, self._record(key).conditions))

    def limits(self, jobs: Collection[JobSpec]) -> Mapping[str, Sequence[Limit]]:
        """By the key of each of these jobs, the limits that it shares with others."""
        self.faults.before("limits")
        return {job.key: tuple(self._ctld.limits_of(job)) for job in jobs}

    def write(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        """Carry out all writes, in order; return those that were refused.

        Raises ``ValueError`` where one can never be meant, ``LeaseLostError`` where the lease is
        over, and ``SlurmUnreachableError`` as ``faults`` has it.
        """
        self._lease.check()
        for write in writes:
            write_lines.lines(write)
        if not writes:
            return ()
        self.faults.before("write")
        done = self.faults.next_cut()
        failures = []
        for write in writes[:done]:
            self.writes += 1
            words = self.faults.refusal_of(write) or updates.apply(self._ctld, write)
            if words:
                failures.append(WriteFailure(write, words))
        if done is not None:
            self.faults.fail_next("write")
            self.faults.before("write")
        self.faults.after("write")
        return tuple(failures)

    def signal(self, keys: Sequence[str], signal: str) -> Mapping[str, str]:
        """Send a signal to running jobs; what does not run does not hear it."""
        self._lease.check()
        self.faults.before("signal")
        refused = self.faults.refused_signals(keys)
        running = {key for r in self._ctld.records.values() if r.runs for key in r.keys}
        self.signals += (
            SentSignal(self.clock.now_s, key, signal)
            for key in keys
            if key in running and key not in refused
        )
        self.faults.after("signal")
        return {key: words for key, words in refused.items() if key in running}

    # Users

    def submit(self, submission: Submission) -> str:
        """``sbatch``; the key of the job, or the number of the array."""
        return str(self._ctld.submit(submission).raw_id)

    def cancel(self, key: str, by: int = ROOT_ID) -> str:
        """``scancel``. Tasks that wait together with others are forgotten at once."""
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
        """``scontrol release``; an owner cannot release what an administrator holds."""
        act = updates.release if by_admin else updates.release_by_owner
        return updates.each(self._ctld, key, lambda record: act(self._ctld, record))

    def edit(
        self,
        key: str,
        *,
        priority: int | None = None,
        nice: int | None = None,
        requeue: bool | None = None,
        node_list: str | None = None,
        partitions: tuple[str, ...] | None = None,
        array_limit: int | None = None,
    ) -> str:
        """``scontrol update`` by the job's owner, of each given field in turn."""
        changes = {
            "priority": priority,
            "nice": nice,
            "requeue": requeue,
            "node_list": node_list,
            "partitions": partitions,
            "array_limit": array_limit,
        }
        answers = (
            updates.each(self._ctld, key, partial(updates.edit, self._ctld, name, value))
            for name, value in changes.items()
            if value is not None
        )
        return "; ".join(filter(None, answers))

    def requeue(self, key: str) -> str:
        """``scontrol requeue`` by a user or an administrator; reruns a job that has ended."""
        return updates.each(self._ctld, key, lambda record: updates.requeue(self._ctld, record))

    def finish(self, key: str, exit_code: int = 0) -> str:
        """The script of a running job ends now."""
        record = self._record(key)
        if not record.runs:
            return updates.FINISHED if record.has_ended else updates.IS_PENDING
        self._ctld.finish(record, exit_code)
        return ""

    # Administrators and nature

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
        """Nothing new starts on the node."""
        self._ctld.set_node(node, "DRAIN", available=False)

    def resume_node(self, node: str) -> None:
        """A drained node, or one that was down, is in service again."""
        self._ctld.set_node(node, "IDLE", available=True)

    def fail_node(self, node: str) -> None:
        """The node is down, and what ran there is lost."""
        self._ctld.fail_node(node)

    def reserve(self, name: str, nodes: str, start_in_s: float, duration_s: float) -> None:
        """Keep nodes (a hostlist) for jobs that name this reservation."""
        start_s = self._ctld.now_s + start_in_s
        self._ctld.reservations[name] = Reservation(
            name, frozenset(node_names(nodes)), start_s, start_s + duration_s
        )
        self._ctld.schedule_soon()

    def remove_reservation(self, name: str) -> None:
        """Give the nodes back to all."""
        del self._ctld.reservations[name]
        self._ctld.schedule_soon()

    def obstruct(self, key: str, reason: str) -> Sequence[str]:
        """Keep a job, and the tasks that wait together with it, from starting for a reason of
        Slurm's, such as ``Licenses``; "" frees them. Returns which jobs these are."""
        record = self._record(key)
        record.obstacle = reason
        self._ctld.schedule_soon()
        return record.keys

    def set_partition(self, name: str, nodes: str) -> None:
        """A partition has these nodes from now on."""
        names = frozenset(node_names(nodes))
        self._ctld.partitions[name] = replace(self._ctld.partitions[name], nodes=names)
        self._ctld.schedule_soon()

    def garble(self, key: str, why: str) -> Sequence[str]:
        """The row of a job cannot be read, until ``why`` is "". Returns whose row it is: tasks that
        wait together have one."""
        record = self._record(key)
        record.unreadable = why
        record.changed()
        return record.keys

    def advance(self, seconds: float) -> None:
        """Let time pass: runs end, nodes are cleaned up, delays run out, Slurm starts jobs."""
        self._ctld.advance(seconds)

    def schedule(self) -> None:
        """Let Slurm's scheduler look at the queue now."""
        self._ctld.schedule()

    def step_clock(self, seconds: float) -> None:
        """slurmctld's clock is set; nothing else notices."""
        self.clock.set_by(seconds)
        self._ctld.schedule_soon()

    def save_state(self) -> None:
        """What slurmctld knows now is what it comes back with when it is killed."""
        self._ctld.save_state()

    def restart(self, *, killed: bool = True) -> None:
        """slurmctld ends and comes back. After a kill it has forgotten all that has happened
        since it last saved its state (``Settings.save_every_s``, or ``save_state``), and the nodes
        tell it what runs."""
        if not killed:
            self._ctld.save_state()
        self._ctld.restart()

    @property
    def accounting_delay_s(self) -> float:
        """How late slurmdbd learns of what happens from now on."""
        return self._accounting.delay_s

    @accounting_delay_s.setter
    def accounting_delay_s(self, seconds: float) -> None:
        self._accounting.delay_s = seconds

    # Looked up

    def job(self, key: str) -> JobStatus:
        """What ``observe`` shows of one job; ``KeyError`` where Slurm does not know it."""
        for job in self._record(key).shown(self._ctld.now_s):
            if job.key == key:
                return job
        raise KeyError(key)

    def is_pinned(self, key: str) -> bool:
        """Whether the priority of a job was written, and is not computed."""
        return self._record(key).pinned

    def _record(self, key: str) -> JobRecord:
        for record in self._ctld.records.values():
            if key in record.keys:
                return record
        raise KeyError(key)

    def _nodes(self) -> tuple[Node, ...]:
        """The nodes with their states; the same objects while they stay as they are."""
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
