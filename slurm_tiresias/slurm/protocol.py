"""What the rest of the program may ask of Slurm, whichever driver answers.

Two drivers of a real Slurm stand behind this Protocol: its own commands (``commands.py``), and the
pyslurm binding beside them (``pyslurm_driver.py``). A third has a Slurm in memory (``in_memory``).
All return the same frozen observations and take the same writes; what they show of a job is
``model.JobStatus``.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slurm_tiresias.model import JobSpec, JobStatus, Node
from slurm_tiresias.slurm.release import Version


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. ``up`` is false where it starts nothing.

    None: no bound, and every account or QOS may use it but those that it denies.
    ``most_cpus_per_node`` is what all its jobs together may have of a node (MaxCPUsPerNode).
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

    @property
    def is_choosy(self) -> bool:
        """Whether it would not start every job that names it."""
        bounds = (self.most_nodes, self.longest_s, self.accounts, self.qos)
        denies = self.denied_accounts or self.denied_qos
        return not self.up or bool(denies) or any(bound is not None for bound in bounds)

    def why_refused(self, spec: JobSpec) -> str:
        """Why no job that asks for this would be started here, in a few words; "" if it would."""
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
    """Without accounting a job has neither account nor QOS, and Slurm looks at neither."""
    return not name or (name not in denied and (allowed is None or name in allowed))


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are kept whole for others, from a time on or already.

    A ``magnetic`` one takes in jobs that may use it and name no reservation. It is listed even if
    it keeps no node whole.
    """

    name: str
    nodes: frozenset[str]
    start_s: float
    end_s: float
    magnetic: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """Something of which all jobs that share it may have only so much together, and one job's part.

    ``left`` is how much of it is not in use. How much a job takes is not always known: then
    ``takes_at_most`` is infinity. Limits of one name are the same.
    """

    name: str
    left: float
    takes_at_least: float
    takes_at_most: float

    @property
    def is_reached(self) -> bool:
        """Whether too little of it is left for the job."""
        return self.takes_at_least > self.left


@dataclass(frozen=True, slots=True)
class Observation:
    """One consistent reading of the cluster.

    ``at_s`` is slurmctld's clock when the reading began, ``steady_s`` the monotonic clock of this
    host at the same moment: however long the reading took, the two belong together.
    """

    at_s: float
    jobs: tuple[JobStatus, ...]
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    reservations: tuple[Reservation, ...] = ()
    steady_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class AccountedRun:
    """One row of accounting: one stretch of running of one job. ``end_s`` None: it still runs.

    ``start_s`` is None of a job that ended while it waited. ``exit_code`` is Slurm's
    ``code:signal``, and ``cancelled_by`` the id of the user who cancelled it.
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
    """What must be known of the cluster once, at start."""

    name: str
    version: Version
    priority_type: str
    accounting: bool
    kill_wait_s: float
    requeue_delay_s: float
    """How long Slurm makes a requeued job wait by itself: cred_expire, or requeue_delay."""
    now_s: float
    jobs_are_private: bool = False
    """Whether users may see their own jobs only (PrivateData)."""
    output_appended: bool = False
    """Whether a job that starts again adds to its output files (JobFileAppend), where it was
    submitted with no --open-mode of its own."""


@dataclass(frozen=True, slots=True)
class Update:
    """Changes to one pending job (priority also to a running one), in one request.

    ``key`` may be all tasks of an array's pending record (``123_[4-9]``): they stay one record.
    Fewer of them are split off, each into a record of its own; ``123`` alone means every task,
    running ones too. A task that has started meanwhile takes the priority.

    ``node_list`` "" takes a list away; None leaves what is there. It is written to each task
    singly, which splits the record, and it resets the accrue time, hence Slurm's own age factor.
    ``start_in_s`` sets StartTime that far from now. With either, the whole request is refused on
    a job that is not pending.
    """

    key: str
    priority: int | None = None
    site_factor: int | None = None
    node_list: str | None = None
    start_in_s: int | None = None


@dataclass(frozen=True, slots=True)
class Requeue:
    """Requeue a running job; a job that no longer runs is left alone.

    ``allow`` first lets Slurm requeue it, where its owner has forbidden that since it started.
    """

    key: str
    allow: bool = False


@dataclass(frozen=True, slots=True)
class Unpin:
    """Give the priority of a job back to Slurm's own plugin, which computes it anew at once.

    It would also let go a held job (priority 0): never send it for one.
    """

    key: str


Write = Update | Requeue | Unpin


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """One write that Slurm refused, with Slurm's own words.

    Of an array's record some tasks may have taken it: the words name those that did not.
    ``has_ended``: only because the job was over by then.
    """

    write: Write
    message: str

    @property
    def has_ended(self) -> bool:
        return all(map(says_that_job_ended, self.message.split("; ")))


_JOB_ENDED = re.compile(
    r"Job has already finished|Job/step already completing or completed|Invalid job id specified"
)


def says_that_job_ended(complaint: str) -> bool:
    """Whether Slurm refused something only because the job is over."""
    return _JOB_ENDED.search(complaint) is not None


class Lease(Protocol):
    """Leave to change anything in Slurm, as long as it lasts. Times are of ``CLOCK_BOOTTIME``."""

    def check(self) -> float:
        """Until when anything may be changed; ``LeaseLostError`` where that is over."""
        ...

    def renew(self) -> None:
        """Make it last longer, where that is due; ``LeaseLostError`` where it is over."""
        ...


class Unbounded:
    """The lease of a controller without standbys: it lasts."""

    def check(self) -> float:
        return math.inf

    def renew(self) -> None:
        """Nothing to do."""


@dataclass(frozen=True, slots=True)
class Driver:
    """How Slurm is reached. ``because`` says why not through pyslurm, where that was tried."""

    name: str = "commands"
    because: str = ""


class Slurm(Protocol):
    """The whole of what this program asks of Slurm.

    Every method may raise ``SlurmUnreachableError``, ``SlurmPermissionError``,
    ``SlurmAnswerError`` or, where only pyslurm will do, ``BindingError``; none returns half an
    answer. Whatever changes anything raises ``LeaseLostError`` where the controller's lease is
    over.
    """

    @property
    def driver(self) -> Driver:
        """What answers; a driver may have to be given up for another while it works."""
        ...

    def cluster(self) -> Cluster:
        """The facts about the cluster that do not change while slurmctld runs."""
        ...

    def may_operate(self) -> bool:
        """Whether this user may set the priority of any job and requeue any."""
        ...

    def acting_host(self) -> str:
        """The host of the slurmctld that acts, as slurm.conf names it; "" where none answers."""
        ...

    def observe(self) -> Observation:
        """All jobs that slurmctld remembers (ended ones too), all nodes, all partitions."""
        ...

    def runs(self, keys: Collection[str], since_s: float) -> Sequence[AccountedRun]:
        """The runs of some jobs, by accounting (``sacct -D``); may be called from any thread.

        Parameters
        ----------
        keys
            Job ids; ``12_3`` for a task of an array.
        since_s
            Only jobs that were still alive at this epoch time are looked for.

        Returns
        -------
        Sequence[AccountedRun]
            Oldest first; a job that ended while it waited has a row without a start. Empty
            without accounting.
        """
        ...

    def dependency(self, key: str) -> str:
        """What a pending job depends on, in Slurm's own words; "" where that is nothing."""
        ...

    def limits(self, jobs: Collection[JobSpec]) -> Mapping[str, Sequence[Limit]]:
        """The limits that these jobs share with others, as far as Slurm enforces them.

        Returns
        -------
        Mapping[str, Sequence[Limit]]
            By job key: its licences, and the limits of its QOS, its account and its user.
        """
        ...

    def write(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        """Send all writes, in order, in one go; return those that Slurm refused."""
        ...

    def signal(self, keys: Sequence[str], signal: str) -> Mapping[str, str]:
        """Send a signal to every process of some running jobs.

        Returns
        -------
        Mapping[str, str]
            Slurm's words for each job for which it refused; jobs that have ended are left out.
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
