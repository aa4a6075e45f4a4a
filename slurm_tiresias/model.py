"""The vocabulary of the project: what is decided upon, and what a decision is.

Everything here is frozen and free of I/O. Units stand in the names: ``_s`` seconds, ``_gpu_s``
GPU-seconds, ``_mb`` mebibytes. Points in time are seconds since the Unix epoch.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

ANY_TYPE = ""
"""The GPU type of a request that takes any GPU, and of GPUs that Slurm lists without a type."""

GpuCounts = Mapping[str, int]
"""GPUs by type, e.g. ``{"a100": 4}``; the key ``ANY_TYPE`` counts untyped ones."""


@dataclass(frozen=True, slots=True)
class Amount:
    """GPUs by type, CPUs and memory: what a node has, or what a job holds or asks on one node."""

    gpus: GpuCounts = field(default_factory=dict)
    cpus: int = 0
    memory_mb: int = 0

    @property
    def gpu_count(self) -> int:
        return sum(self.gpus.values())


Allocation = Mapping[str, Amount]
"""What a job holds, or is to hold, on each of its nodes."""

NOWHERE: Allocation = MappingProxyType({})


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Request:
    """What a job asks for, reduced to equal chunks that may not be split over nodes.

    A job with a fixed shape (``--gres``, ``--gpus-per-node``) has one chunk a node. A job that
    only counts GPUs (``--gpus=N``) has N chunks of one GPU. A job with ``--gpus-per-task`` has
    one chunk a task. ``chunk`` is what each chunk takes; ``per_node`` comes on top, once on every
    node used (memory asked per node, say).
    """

    chunk: Amount
    chunks: int = 1
    per_node: Amount = Amount()
    max_chunks_per_node: int | None = None
    min_nodes: int = 1
    max_nodes: int | None = None
    may_be_one_task: bool = False
    """Slurm shows ``-n 1 --gpus=4``, which cannot span nodes, and ``--gpus=4``, which can, alike.
    Such a job is laid over several nodes only where no single one is large enough."""
    exclusive: bool = False
    features: str = ""
    required_nodes: frozenset[str] = frozenset()
    excluded_nodes: frozenset[str] = frozenset()
    reserved_nodes: frozenset[str] = frozenset()
    """Kept from the job for now: a reservation of them begins before it could end."""
    partitions: tuple[str, ...] = ()
    opaque: str = ""
    """sbatch's names for what is asked for beyond all this, between commas. Where such a job fits
    only Slurm can tell: no nodes are named for it, and what seems to fit is tried once."""

    @property
    def gpu_count(self) -> int:
        return self.chunks * self.chunk.gpu_count + self.min_nodes * self.per_node.gpu_count

    @property
    def shape(self) -> Hashable:
        """Two requests of one shape fit in the same places."""
        return (
            tuple(sorted(self.chunk.gpus.items())),
            self.chunk.cpus,
            self.chunk.memory_mb,
            self.chunks,
            tuple(sorted(self.per_node.gpus.items())),
            self.per_node.cpus,
            self.per_node.memory_mb,
            self.max_chunks_per_node,
            self.min_nodes,
            self.max_nodes,
            self.may_be_one_task,
            self.exclusive,
            self.features,
            self.required_nodes,
            self.excluded_nodes,
            self.reserved_nodes,
            self.partitions,
            self.opaque,
        )


@dataclass(frozen=True, slots=True)
class Node:
    """One compute node. ``available`` is false while Slurm would start nothing new on it.

    One that is ``powered_down`` Slurm boots for a job, which takes minutes. ``switch`` is the leaf
    switch it hangs on, empty where that is not known.
    """

    name: str
    total: Amount
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    available: bool = True
    state: str = "IDLE"
    switch: str = ""
    powered_down: bool = False


class JobState(enum.Enum):
    """What matters of Slurm's job states for a decision."""

    PENDING = "pending"
    RUNNING = "running"
    """Holds its allocation: running, suspended, configuring."""
    COMPLETING = "completing"
    """Its GPUs are free for Slurm's books, but its nodes start nothing until its epilog is over."""


class Reason(enum.Enum):
    """Why a job is where it is. The value is the code that people and programs see."""

    RUNS_ON = "runs-on"
    STARTS = "starts"
    STARTS_PREEMPTING = "starts-preempting"
    NOMINATED = "claimed"
    PREEMPTED = "preempted"
    VACATING = "vacating"
    COMPLETING = "completing"
    NO_ROOM = "no-room"
    GUARDED = "guarded"
    NEVER_FITS = "never-fits"
    NO_NODES = "no-nodes"
    RESERVED = "reserved"
    BACKS_OFF = "given-up"
    OVER_BUDGET = "over-budget"
    HELD = "held"
    SLURM_WAITS = "slurm-waits"
    SHARES_LIMIT = "shares-limit"
    UNMANAGED = "unmanaged"


class Protection(enum.Enum):
    """Why a running job may not be preempted now."""

    MIN_RUN = "minimum-run-time"
    MAX_PREEMPTIONS = "preempted-often-enough"
    MAX_VICTIMS = "victims-of-this-cycle"
    HELD = "held-or-suspended"
    PARTITION = "could-not-come-back"
    DEADLINE = "deadline"
    TRIED_FIRST = "higher-priority-tier"
    UNMANAGED = "unmanaged"
    SAME_TIER = "same-or-higher-tier"


class PlacementStyle(enum.Enum):
    """How a job's chunks are laid over nodes (paper page 491, section 3.3)."""

    CONSOLIDATE = "consolidate"
    SPREAD = "spread"
    RANDOM = "random"
    """Wherever there is room, as Tiresias without its profiler (Fig. 12): a yardstick of
    the simulator that no configuration can ask for."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What was asked for: one job, or one task of an array, as Slurm shows it.

    It stays the same object while nothing of it changes. Slurm sets ``submit_s`` anew at each
    requeue. ``required_node_list`` is as Slurm wrote it, to be given back as it was; empty where
    none is asked for. ``name``, ``comment``, ``admin_comment`` and the request's features are
    written by users: hostile. So are ``licenses``.
    """

    key: str
    """How Slurm's commands address it: ``123``, or ``123_4`` for a task of an array."""
    array_id: int | None
    array_limit: int | None
    """How many tasks of its array may run at once; None where there is no such bound."""
    name: str
    user: str
    account: str
    qos: str
    partitions: tuple[str, ...]
    batch: bool
    requeue: bool
    het: bool
    submit_s: float
    time_limit_s: float | None
    request: Request
    required_node_list: str = ""
    reservation: str = ""
    licenses: str = ""
    deadline_s: float | None = None
    """When Slurm ends the job whatever its state, and before which it must be able to end."""
    comment: str = ""
    admin_comment: str = ""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What Slurm says of a job now.

    ``state`` is None once the job has ended. ``raw_id`` is the number of its record in slurmctld;
    ``unsplit_array`` is true for a task that still sits in its array's common pending record: such
    tasks of one array differ in nothing but their number, and can be written to at once as
    ``123_[4-9]`` if all are named. ``start_s`` is None while it is pending and while it completes
    after a requeue, ``end_s`` until it has ended: a job that completes with an ``end_s`` does not
    come back, one without was requeued. ``eligible_s`` shows what ``Update.start_in_s`` has set.
    ``elapsed_s`` is the time that this run has lasted, without suspensions. Until its epilog is
    over a completing job's ``allocation`` names the nodes that are not done yet.
    """

    spec: JobSpec
    raw_id: int
    unsplit_array: bool
    state: JobState | None
    slurm_state: str
    reason: str
    priority: int
    restarts: int
    eligible_s: float | None
    start_s: float | None
    end_s: float | None
    elapsed_s: float
    allocation: Allocation
    unreadable: str = ""
    """What of it could not be read, in a few words; its request is then empty. Users choose some
    spellings, so one job that cannot be read must not keep the others from being observed."""
    key: str = field(init=False, repr=False, compare=False)
    """That of its spec, which a cycle asks of each job many times."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.spec.key)

    @property
    def held(self) -> bool:
        return self.state is JobState.PENDING and self.priority == 0


@dataclass(frozen=True, slots=True)
class JobAccount:
    """What only this program knows of a job: all that the ledger keeps of it but its runs.

    ``submitted_s`` is its first submission, ``queued_s`` when it last began to wait: then, or at
    the end of its last run. ``start_number`` and ``entry_number`` count first starts and tier
    entries over all jobs: they order jobs inside a priority band. ``promoted_at_gpu_s`` and
    ``promoted_at_executed_s`` are its totals at its last promotion. ``written_*`` is what this
    program last wrote to Slurm; ``own_nodes`` is the node list its user asked for, while
    ``written_nodes`` stands in its place.
    """

    key: str
    restarts: int
    submitted_s: float
    tier_entered_s: float
    queued_s: float
    entry_number: int
    born_after_s: float = 0.0
    """Accounting from before this belongs to an earlier job of the same id."""
    tier: int = 0
    first_started_s: float | None = None
    start_number: int | None = None
    promotions: int = 0
    promoted_at_gpu_s: float = 0.0
    promoted_at_executed_s: float = 0.0
    preemptions: int = 0
    preempted_by: str = ""
    preempted_at_s: float | None = None
    accounted_restarts: int = 0
    written_priority: int | None = None
    written_site_factor: int | None = None
    written_nodes: str = ""
    """All node lists written here since its own stood there, the last one last."""
    own_nodes: str = ""
    list_refused: bool = False
    """Slurm held the job for a node list that was written here: none is written any more."""
    ended_s: float | None = None
    user: str = ""
    name: str = ""
    """Written by its user: hostile."""
    account: str = ""
    partition: str = ""
    """Several, with commas between, while it waits for the first of them."""

    @staticmethod
    def opened(job: JobStatus, entry_number: int = 0) -> JobAccount:
        """That of a job of which nothing is known yet but what Slurm shows."""
        spec = job.spec
        return JobAccount(
            key=spec.key,
            restarts=job.restarts,
            submitted_s=spec.submit_s,
            tier_entered_s=spec.submit_s,
            queued_s=spec.submit_s,
            entry_number=entry_number,
            user=spec.user,
            name=spec.name,
            account=spec.account,
            partition=",".join(spec.partitions),
        )


@dataclass(frozen=True, slots=True)
class JobView:
    """One job (one task of an array) as the decision sees it: what Slurm says of it, what only
    this program knows, and what holds for this cycle only.

    ``attained_gpu_s`` counts GPUs x running seconds over all runs;
    ``attained_since_promotion_gpu_s`` and ``executed_since_promotion_s`` restart at a promotion.
    """

    status: JobStatus
    account: JobAccount
    request: Request
    """What is to be placed now: as it was asked for, but for node lists that were written here and
    nodes that are reserved."""
    managed: bool = True
    unmanaged_because: str = ""
    attained_gpu_s: float = 0.0
    attained_since_promotion_gpu_s: float = 0.0
    executed_since_promotion_s: float = 0.0
    inherited_gpu_s: float = 0.0
    """What counts beyond that: service of other jobs of its user or account
    (``policy.charge``)."""
    running_since_s: float | None = None
    """By the clock as it is set now."""
    protected_by: Protection | None = None
    not_eligible: str = ""
    """Slurm's own reason to keep it waiting (held, dependency, a limit)."""
    nominated_to: Allocation | None = None
    """GPUs set aside for it: a start that was asked of Slurm and is not yet seen."""
    preemptor: str = ""
    """The job for which it is being requeued right now; empty where it is not."""
    backs_off: bool = False
    """Its nomination expired: no job is preempted for it until the cluster changes."""
    in_vain: bool = False
    """Jobs were preempted for it then, and Slurm did not start it: it backs off until it asks for
    something else or one of its nodes changes."""
    cools_down: bool = False
    """Its nomination expired only just now: it is not nominated at all."""
    awaited_limit: str = ""
    """A limit that it shares with jobs that are about to start: its turn comes after that."""
    over_budget: bool = False
    """Its user's jobs have made others lose so much lately that no victim is named for it."""
    skew: float | None = None
    """Largest tensor over model size, where known (paper page 500, Table 6)."""
    style: PlacementStyle | None = None
    style_because: str = ""
    """By which rule and number the style was chosen, in a few words; may hold users' words."""
    remaining_s: float | None = None
    """Only a simulation knows it; only the clairvoyant baselines read it."""
    job_id: str = field(init=False, repr=False, compare=False)
    """This and the next two are those of its status, which every decision reads very often."""
    state: JobState = field(init=False, repr=False, compare=False)
    held: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "job_id", self.status.spec.key)
        object.__setattr__(self, "state", self.status.state)
        object.__setattr__(self, "held", self.status.held)

    @property
    def spec(self) -> JobSpec:
        return self.status.spec

    @property
    def allocation(self) -> Allocation:
        return self.status.allocation

    @property
    def user(self) -> str:
        return self.account.user

    @property
    def name(self) -> str:
        """Written by its user, as any text."""
        return self.account.name

    @property
    def submitted_s(self) -> float:
        return self.account.submitted_s

    @property
    def first_started_s(self) -> float | None:
        return self.account.first_started_s

    @property
    def tier_entered_s(self) -> float:
        return self.account.tier_entered_s

    @property
    def queued_s(self) -> float:
        return self.account.queued_s

    @property
    def preemptions(self) -> int:
        return self.account.preemptions

    @property
    def promotions(self) -> int:
        return self.account.promotions

    @property
    def only_idle(self) -> bool:
        """Whether it starts on idle GPUs or not at all: no job is preempted for it."""
        return self.backs_off or self.over_budget

    def waited_s(self, now_s: float) -> float:
        """How long it has waited, or did wait, since it last ran or was submitted."""
        until_s = self.running_since_s if self.state is JobState.RUNNING else None
        return max(0.0, (now_s if until_s is None else until_s) - self.account.queued_s)

    @property
    def gpus_held(self) -> int:
        return sum(amount.gpu_count for amount in self.allocation.values())

    @property
    def gpus_asked(self) -> int:
        return self.request.gpu_count

    @property
    def width(self) -> int:
        """GPUs: those held while it runs, those asked for otherwise."""
        return self.gpus_held if self.state is JobState.RUNNING else self.request.gpu_count


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decision may know, at one instant."""

    now_s: float
    nodes: tuple[Node, ...]
    jobs: tuple[JobView, ...]


class Action(enum.Enum):
    """What becomes of a job in this cycle."""

    RUN_ON = "run-on"
    START = "start"
    PREEMPT = "preempt"
    WAIT = "wait"
    LEAVE = "leave"
    """Not ours: never written to, never preempted."""


MAX_BLOCKERS = 8
"""How many of the jobs in its way a decision names."""


class Decision(NamedTuple):
    """What was decided for one job and why: all that ``explain`` needs.

    A tuple, for a decision is made for each of very many jobs in every cycle.

    ``tier`` counts from 0, the highest; None for jobs that are not managed. ``start_on`` is where
    it is to start, ``victims`` the jobs that make room, ``preempted_for`` the job it makes room
    for. ``blockers`` names jobs that hold what it needs and may not be preempted for it, with
    what protects each. The place of a job in the whole order is ``Plan.ranks``.
    """

    job_id: str
    action: Action
    reason: Reason
    detail: str = ""
    tier: int | None = None
    start_on: Allocation = NOWHERE
    style: PlacementStyle | None = None
    victims: tuple[str, ...] = ()
    preempted_for: str = ""
    blockers: tuple[tuple[str, Protection], ...] = ()
    promoted: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision for every job of a snapshot, by job id in the order they were ranked; those
    that are not managed come last."""

    decisions: Mapping[str, Decision]

    @property
    def ranks(self) -> Mapping[str, int]:
        """The place in the whole order, from 0, of every managed job."""
        managed = (d.job_id for d in self.decisions.values() if d.tier is not None)
        return {job_id: rank for rank, job_id in enumerate(managed)}

    @property
    def starts(self) -> tuple[Decision, ...]:
        return tuple(d for d in self.decisions.values() if d.action is Action.START)

    @property
    def preemptions(self) -> tuple[Decision, ...]:
        return tuple(d for d in self.decisions.values() if d.action is Action.PREEMPT)

    @property
    def promotions(self) -> tuple[str, ...]:
        return tuple(d.job_id for d in self.decisions.values() if d.promoted)
