"""The interface between the rest of the program and Slurm, independent of the driver.

Two drivers for a real Slurm implement it: one uses Slurm's commands (``commands.py``), the other
uses pyslurm as well (``pyslurm_driver.py``). Tests have a third, which simulates Slurm in memory.
All return the same frozen observations and take the same writes. They report jobs as
``model.JobStatus``.
"""

from __future__ import annotations

import math
import re
import signal as signals
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurm_tiresias.errors import SlurmUnreachableError, TiresiasError
from slurm_tiresias.model import JobSpec, JobStatus, Node
from slurm_tiresias.slurm.release import Version
from slurm_tiresias.steady_clock import steady_s

NOT_PASSED_ON = frozenset({signals.SIGURG, signals.SIGWINCH})
"""Signals that processes without a handler ignore, and that srun does not pass on to its tasks.
``scancel --full`` signals only the script and its children (seen on 22.05), so that the tasks are
signalled separately, by a scancel without it."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. ``up`` is false if it starts no jobs.

    A bound of None means unlimited; ``accounts`` or ``qos`` of None admits all but the denied ones.
    ``most_cpus_per_node`` bounds the CPUs that all its jobs together may use on one node
    (MaxCPUsPerNode). ``topology`` names a topology of topology.yaml; "" is the cluster's own.
    ``gpu_weights`` are the TRESBillingWeights of GPUs by type; ``ANY_TYPE`` is that of all.
    """

    name: str
    nodes: frozenset[str]
    up: bool
    priority_tier: int = 1
    most_nodes: int | None = None
    longest_s: float | None = None
    most_cpus_per_node: int | None = None
    accounts: frozenset[str] | None = None
    denied_accounts: frozenset[str] = frozenset()
    qos: frozenset[str] | None = None
    denied_qos: frozenset[str] = frozenset()
    topology: str = ""
    gpu_weights: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def is_choosy(self) -> bool:
        """Whether there are jobs that name the partition and that it would not start."""
        bounds = (self.most_nodes, self.longest_s, self.accounts, self.qos)
        denies = self.denied_accounts or self.denied_qos
        return not self.up or bool(denies) or any(bound is not None for bound in bounds)

    def why_refused(self, spec: JobSpec) -> str:
        """Return why a job with this spec would not start here, in a few words; "" if it would."""
        account, qos = spec.account, spec.qos
        checks = (
            (not self.up, "starts no jobs now"),
            (
                _exceeds(spec.request.min_nodes, self.most_nodes),
                f"takes {self.most_nodes} nodes at most",
            ),
            (_exceeds(spec.time_limit_s, self.longest_s), "has a shorter MaxTime"),
            (not _lets_in(account, self.accounts, self.denied_accounts), "refuses its account"),
            (not _lets_in(qos, self.qos, self.denied_qos), "refuses its QOS"),
        )
        return next((f"partition {self.name} {why}" for applies, why in checks if applies), "")


def _exceeds(asked: float | None, bound: float | None) -> bool:
    return asked is not None and bound is not None and asked > bound


def _lets_in(name: str, allowed: frozenset[str] | None, denied: frozenset[str]) -> bool:
    # Without accounting a job has neither account nor QOS, and Slurm checks neither.
    return not name or (name not in denied and (allowed is None or name in allowed))


@dataclass(frozen=True, slots=True)
class Reservation:
    """A current or future reservation of whole nodes.

    A ``magnetic`` reservation attracts eligible jobs that name no reservation. It is listed even
    if it reserves no whole node; ``nodes`` is then empty.
    """

    name: str
    nodes: frozenset[str]
    start_s: float
    end_s: float
    magnetic: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that several jobs share (licences, a QOS, …), and how much of it one job takes.

    ``left`` is the unused part. ``takes_at_most`` is infinity if the job's part is not known in
    advance. Limits with the same name are the same limit.
    """

    name: str
    left: float
    takes_at_least: float
    takes_at_most: float

    @property
    def is_reached(self) -> bool:
        """Whether too little of the limit is left for the job."""
        return self.takes_at_least > self.left


@dataclass(frozen=True, slots=True)
class Observation:
    """One consistent reading of the cluster.

    ``at_s`` is slurmctld's clock when the reading began; ``steady_s`` is this host's
    ``steady_clock`` at the same moment.
    """

    at_s: float
    jobs: tuple[JobStatus, ...]
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    reservations: tuple[Reservation, ...] = ()
    steady_s: float = field(default_factory=steady_s)


@dataclass(frozen=True, slots=True)
class AccountedRun:
    """One run of a job, from one row of accounting. ``end_s`` is None while it runs.

    ``start_s`` is None if the job ended while pending, or if slurmdbd has lost the start of a short
    run. ``exit_code`` is Slurm's ``code:signal``;
    ``cancelled_by`` is the id of the user who cancelled the job.
    """

    key: str
    start_s: float | None
    end_s: float | None
    elapsed_s: float
    gpus: int
    state: str
    submit_s: float | None = None
    exit_code: str = ""
    cancelled_by: int | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """Facts about the cluster that are read once, at start."""

    name: str
    version: Version
    priority_type: str
    accounting: bool
    kill_wait_s: float
    requeue_delay_s: float
    """How long Slurm itself makes a requeued job wait: cred_expire, or requeue_delay."""
    now_s: float
    jobs_are_private: bool = False
    """Whether users may see only their own jobs (PrivateData)."""
    output_appended: bool = False
    """Whether a restarted job appends to its output files (JobFileAppend), unless submitted with
    --open-mode."""
    slurm_conf: str = ""
    """The slurm.conf that slurmctld reads, on its host."""


@dataclass(frozen=True, slots=True)
class Update:
    """Changes to one pending job, in one request. The priority of a running job can change too.

    ``key`` may name all tasks of an array's pending record (``123_[4-9]``), which stay one record.
    Naming only some of them splits each into its own record; ``123`` alone means every task,
    including running ones. A task that has started meanwhile still takes the priority.

    ``node_list`` "" removes the node list; None leaves it unchanged. It is written to each task
    separately, which splits the record, and it resets the accrue time and thus Slurm's age factor.
    ``start_in_s`` sets StartTime that far from now. With either, Slurm refuses the whole request
    if the job is not pending. ``excluded`` replaces the nodes that the job must not use.
    """

    key: str
    priority: int | None = None
    site_factor: int | None = None
    node_list: str | None = None
    start_in_s: int | None = None
    excluded: str | None = None


@dataclass(frozen=True, slots=True)
class Restart:
    """Requeue a job that has failed. Never send it for another job: whatever its state, it runs
    again."""

    key: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """Requeue a running job; a job that no longer runs is left alone.

    ``allow`` first sets Requeue=1, in case the owner has forbidden requeues since the job started.
    """

    key: str
    allow: bool = False


@dataclass(frozen=True, slots=True)
class Unpin:
    """Return a job's priority to Slurm's priority plugin, which recomputes it at once.

    Never send it for a held job (priority 0): it would release the job.
    """

    key: str


@dataclass(frozen=True, slots=True)
class SetNode:
    """Set the weight of a node (``key``), drain it with a reason, or else return it to service."""

    key: str
    drain: str = ""
    weight: int | None = None


Write = Update | Requeue | Restart | Unpin | SetNode


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """A write that Slurm refused, with Slurm's message.

    Some tasks of an array's record may have accepted it; the message names those that did not.
    ``has_ended`` is true if Slurm refused only because the job had ended.
    """

    write: Write
    message: str

    @property
    def has_ended(self) -> bool:
        return all(map(says_that_job_ended, self.message.split("; ")))


class UnfinishedWriteError(SlurmUnreachableError):
    """Slurm answered only the first ``answered`` of some writes, and refused ``refused`` of these.

    Of the others some may have been carried out.
    """

    def __init__(
        self, because: TiresiasError, answered: int, refused: Sequence[WriteFailure]
    ) -> None:
        super().__init__(because.what, because.remedy)
        self.answered = answered
        self.refused = tuple(refused)


_JOB_ENDED = re.compile(
    r"Job has already finished|Job/step already completing or completed|Invalid job id specified"
)


def says_that_job_ended(complaint: str) -> bool:
    """Whether the message says that the job has ended."""
    return _JOB_ENDED.search(complaint) is not None


class Lease(Protocol):
    """Permission to write to Slurm for a limited time. Times are in ``CLOCK_BOOTTIME``."""

    def check(self) -> float:
        """Return when the lease ends; raise ``LeaseLostError`` if it has ended."""
        ...

    def renew(self) -> None:
        """Extend the lease if that is due; raise ``LeaseLostError`` if it has ended."""
        ...


class Unbounded:
    """The lease of a controller without standbys: it never ends."""

    def check(self) -> float:
        return math.inf

    def renew(self) -> None:
        """Nothing to do."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver in use. ``because`` says why pyslurm is not used, if it was tried."""

    name: str = "commands"
    because: str = ""


class Slurm(Protocol):
    """All operations on Slurm that this program uses.

    Every method may raise ``SlurmUnreachableError``, ``SlurmPermissionError``,
    ``SlurmAnswerError`` or, if only pyslurm is allowed, ``BindingError``; partial answers are never
    returned. Methods that change anything raise ``LeaseLostError`` if the controller's lease has
    ended.
    """

    @property
    def driver(self) -> Driver:
        """The driver now in use; pyslurm may be abandoned for the commands at run time."""
        ...

    def cluster(self) -> Cluster:
        """The facts about the cluster that do not change while slurmctld runs."""
        ...

    def may_operate(self) -> bool:
        """Whether this user may set the priority of any job and requeue any."""
        ...

    def acting_host(self) -> str:
        """The host of the active slurmctld, as slurm.conf names it; "" if none answers."""
        ...

    def observe(self) -> Observation:
        """Read all jobs that slurmctld remembers (ended ones too), all nodes, all partitions."""
        ...

    def runs(self, keys: Collection[str], since_s: float) -> Sequence[AccountedRun]:
        """Return the runs of some jobs from accounting (``sacct -D``); callable from any thread.

        Parameters
        ----------
        keys
            Job ids; ``12_3`` for a task of an array.
        since_s
            Epoch time; jobs that had ended before it are not looked for.

        Returns
        -------
        Sequence[AccountedRun]
            Oldest first; a job that ended while pending has a row without a start. Empty
            without accounting.
        """
        ...

    def dependency(self, key: str) -> str:
        """The dependency of a pending job, as Slurm writes it; "" if it has none."""
        ...

    def exit_codes(self, keys: Collection[str]) -> Mapping[str, str]:
        """Return the exit codes of ended jobs as Slurm writes them (``code:signal``), by job;
        without those that slurmctld has forgotten."""
        ...

    def limits(self, jobs: Collection[JobSpec]) -> Mapping[str, Sequence[Limit]]:
        """Return the enforced limits that these jobs share with other jobs.

        They are read once after each ``observe``.

        Returns
        -------
        Mapping[str, Sequence[Limit]]
            By job key: its licences, and the limits of its QOS, its account and its user.
        """
        ...

    def write(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        """Send all writes, in order, within one time limit; return those that Slurm refused.

        Raises ``SlurmPermissionError`` if all were refused for lack of rights, and
        ``UnfinishedWriteError`` if Slurm did not answer all of them.
        """
        ...

    def signal(self, keys: Sequence[str], signal: str) -> Mapping[str, str]:
        """Send a signal to every process of some running jobs.

        Returns
        -------
        Mapping[str, str]
            Slurm's message by key of each refused job; jobs that have ended are left out.
        """
        ...


@dataclass(frozen=True, slots=True)
class Commands:
    """The paths of Slurm's commands, each replaceable."""

    squeue: str = "squeue"
    scontrol: str = "scontrol"
    sacct: str = "sacct"
    scancel: str = "scancel"
    sacctmgr: str = "sacctmgr"
    sprio: str = "sprio"
    timeout_s: float = 30.0
    environment: dict[str, str] = field(default_factory=dict)
