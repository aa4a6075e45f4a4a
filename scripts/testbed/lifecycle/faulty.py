"""A driver and a ledger that fail on demand and record what the controller sends.

Every effect of the controller is counted, each write separately, so that a fault can be injected
before or after each.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from slurm_tiresias.errors import LedgerError, SlurmUnreachableError
from slurm_tiresias.model import JobStatus
from slurm_tiresias.slurm.notation import node_names
from slurm_tiresias.slurm.protocol import (
    AccountedRun,
    Cluster,
    Observation,
    Requeue,
    Restart,
    Slurm,
    Update,
    Write,
    WriteFailure,
)
from slurm_tiresias.store.ledger import Ledger


class Killed(BaseException):
    """Kills the controller: none of its code may run after that."""


class Fault(enum.Enum):
    """A fault at an effect; it does nothing if it does not apply to that effect."""

    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"
    FAILS = "fails"
    """Not carried out, with an error: slurmctld is unreachable, or the disk is full."""
    ANSWER_LOST = "answer lost"
    """Carried out, with everything before it in the batch, but the controller gets an error."""
    REFUSED = "refused"
    STOPPED = "stopped before"
    """Another controller takes over meanwhile; then this one continues where it was."""


@dataclass(frozen=True, slots=True)
class Signalled:
    """A signal that a job received in the run that began at ``run_start_s``."""

    key: str
    signal: str
    run_start_s: float
    steady_s: float
    """When, by the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """A requeue that the controller sent and Slurm carried out."""

    key: str
    run_start_s: float
    """Start of the run that it ended."""
    at_s: float


ANYWHERE = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER, Fault.STOPPED)
REFUSAL = "Requested operation is presently disabled"


def not_answering() -> SlurmUnreachableError:
    """Return a new error each time: an exception keeps all frames it was raised through."""
    return SlurmUnreachableError("slurmctld does not answer", "Wait")


@dataclass
class FaultySlurm:
    """A wrapper around a driver. Effects are numbered from 0 in each cycle (``begin_cycle``)."""

    slurm: Slurm
    accounting: bool = True
    """False: the controller finds a cluster without slurmdbd."""
    fault: Fault | None = None
    fault_at: int = 0
    signals_refused: bool = False
    accounting_fails: bool = False
    before_requeue: Callable[[Requeue], None] = lambda _write: None
    """Called with every requeue before it is sent to Slurm."""
    restarted: Callable[[str, JobStatus | None], None] = lambda _key, _job: None
    """Called with every job that Slurm has restarted, and how it was before."""
    after_observation: Callable[[], None] = lambda: None
    """Called between the controller's observation and its writes."""
    stopped: Callable[[], None] = lambda: None
    """Called while the controller is stopped."""
    effects: int = 0
    passed: int = 0
    """How many effects the last cycle had."""
    seen: Observation | None = None
    """The controller's last observation."""
    requeued: list[Requeued] = field(default_factory=list)
    signalled: list[Signalled] = field(default_factory=list)
    lists: dict[str, set[str]] = field(default_factory=dict)
    """Every node list that the controller has written, by job."""
    sent: list[Write] = field(default_factory=list)
    """The writes that were sent to Slurm in this cycle."""
    hit: Fault | None = None
    """The fault that happened in this cycle."""

    def begin_cycle(self, fault: Fault | None = None, at: int = 0) -> None:
        """Reset the counters, and inject a fault at effect number ``at`` of the next actions."""
        self.fault, self.fault_at = fault, at
        self.effects = 0
        self.hit = None
        self.sent = []

    @contextmanager
    def effect(self, failure: Exception, *applies: Fault) -> Iterator[bool]:
        """Wrap one effect; yield whether to refuse it."""
        number, self.effects = self.effects, self.effects + 1
        fault = self.fault if number == self.fault_at else None
        if fault in ANYWHERE or fault in applies:
            self.hit = fault
        if fault is Fault.KILLED_BEFORE:
            raise Killed
        if fault is Fault.STOPPED:
            self.stopped()
        if fault is Fault.FAILS and fault in applies:
            raise failure
        yield fault is Fault.REFUSED and fault in applies
        if fault is Fault.KILLED_AFTER:
            raise Killed
        if fault is Fault.ANSWER_LOST and fault in applies:
            raise failure

    # The protocol

    def __getattr__(self, name: str) -> Any:
        """What has no faults is the driver's."""
        return getattr(self.slurm, name)

    def cluster(self) -> Cluster:
        return replace(self.slurm.cluster(), accounting=self.accounting)

    def observe(self) -> Observation:
        with self.effect(not_answering(), Fault.FAILS):
            self.seen = self.slurm.observe()
        self.after_observation()
        return self.seen

    def runs(self, keys: Collection[str], since_s: float) -> Sequence[AccountedRun]:
        # Not counted as an effect, because it runs in another thread, in no fixed order.
        if self.accounting_fails:
            raise not_answering()
        return self.slurm.runs(keys, since_s) if self.accounting else ()

    def write(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        failures: list[WriteFailure] = []
        faults = (Fault.FAILS, Fault.ANSWER_LOST, Fault.REFUSED)
        for write in writes:
            with self.effect(not_answering(), *faults) as refused:
                if refused:
                    failures.append(WriteFailure(write, f"{REFUSAL} for job {write.key}"))
                else:
                    failures += self._carried_out(write)
        return failures

    def _carried_out(self, write: Write) -> Sequence[WriteFailure]:
        if isinstance(write, Requeue):
            self.before_requeue(write)
        before, failures = self._job(write.key), self.slurm.write([write])
        self.sent.append(write)
        match write:
            case Requeue(key):
                after = self._job(key)
                if before and after and after.restarts > before.restarts:
                    at_s = self.slurm.observe().at_s
                    self.requeued.append(Requeued(key, before.start_s or 0.0, at_s))
            case Restart(key) if not failures:
                self.restarted(key, before)
            case Update(node_list=str(node_list)) if node_list:
                for key in node_names(write.key):
                    self.lists.setdefault(key, set()).add(node_list)
        return failures

    def _job(self, key: str) -> JobStatus | None:
        return next((job for job in self.slurm.observe().jobs if job.key == key), None)

    def signal(self, keys: Sequence[str], signal: str) -> Mapping[str, str]:
        with self.effect(not_answering(), Fault.FAILS, Fault.ANSWER_LOST, Fault.REFUSED) as refused:
            if refused or self.signals_refused:
                return {key: f"Kill job error on job id {key}: Access denied" for key in keys}
            refusals = self.slurm.signal(keys, signal)
            heard = (job for job in map(self._job, keys) if job and job.key not in refusals)
            steady_s = self.slurm.observe().steady_s
            self.signalled += (
                Signalled(job.key, signal, job.start_s or 0.0, steady_s) for job in heard
            )
            return refusals


class FaultyLedger(Ledger):
    """A ledger whose every commit is an effect."""

    slurm: FaultySlurm | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self.slurm is None:
            with super().transaction():
                yield
            return
        full = LedgerError(f"The ledger {self.path} cannot be used: disk full", "Make room")
        with self.slurm.effect(full, Fault.FAILS), super().transaction():
            yield


def told(write: Write) -> str:
    """Describe a write in a few words."""
    words = f"{type(write).__name__.lower()} {write.key}"
    if isinstance(write, Update):
        what = {name: getattr(write, name) for name in ("priority", "site_factor", "node_list")}
        words += f" { {n: v for n, v in what.items() if v is not None} }"
    return words
