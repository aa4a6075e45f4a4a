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
        )


@dataclass(frozen=True, slots=True)
class Node:
    """One compute node. ``available`` is false while Slurm would start nothing new on it.

    ``switch`` is the leaf switch it hangs on, empty where that is not known.
    """

    name: str
    total: Amount
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    available: bool = True
    state: str = "IDLE"
    switch: str = ""


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
    CLAIMED = "claimed"
    PREEMPTED = "preempted"
    VACATING = "vacating"
    COMPLETING = "completing"
    NO_ROOM = "no-room"
    GUARDED = "guarded"
    NEVER_FITS = "never-fits"
    NO_NODES = "no-nodes"
    RESERVED = "reserved"
    GIVEN_UP = "given-up"
    OVER_BUDGET = "over-budget"
    HELD = "held"
    SLURM_WAITS = "slurm-waits"
    UNMANAGED = "unmanaged"


class Guard(enum.Enum):
    """Why a running job may not be preempted now."""

    MIN_RUN = "minimum-run-time"
    MAX_PREEMPTIONS = "preempted-often-enough"
    MAX_VICTIMS = "victims-of-this-cycle"
    HELD = "held-or-suspended"
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
class Job:
    """One job (one task of an array) as the decision sees it.

    ``attained_gpu_s`` counts GPUs x running seconds over all incarnations;
    ``attained_since_promotion_gpu_s`` and ``executed_since_promotion_s`` restart at a promotion.
    ``not_eligible`` is Slurm's own reason to keep it waiting (held, dependency, a limit).
    """

    job_id: str
    state: JobState
    request: Request
    submitted_s: float
    managed: bool = True
    unmanaged_because: str = ""
    user: str = ""
    name: str = ""
    """Written by its user, as any text."""
    attained_gpu_s: float = 0.0
    attained_since_promotion_gpu_s: float = 0.0
    executed_since_promotion_s: float = 0.0
    inherited_gpu_s: float = 0.0
    """What counts beyond that: service of other jobs of its user or account
    (``policy.charge``)."""
    first_started_s: float | None = None
    tier_entered_s: float | None = None
    queued_s: float | None = None
    """When it last began to wait: submission (None), or the end of its last incarnation."""
    running_since_s: float | None = None
    allocation: Allocation = field(default_factory=dict)
    protected_by: Guard | None = None
    preemptions: int = 0
    promotions: int = 0
    held: bool = False
    not_eligible: str = ""
    claim: Allocation | None = None
    """A start that has been asked of Slurm and not yet seen: these GPUs are as good as taken."""
    vacating_for: str = ""
    """The job for which it is being requeued right now; empty where it is not."""
    given_up: bool = False
    """It was claimed for and did not start: no victim is named for it until the cluster changes."""
    over_budget: bool = False
    """Its user's jobs have made others lose so much lately that no victim is named for it."""
    resting: bool = False
    """It gave a claim back only just now: it is not claimed for at all."""
    skew: float | None = None
    """Largest tensor over model size, where known (paper page 500, Table 6)."""
    style: PlacementStyle | None = None
    style_because: str = ""
    """By which rule and number the style was chosen, in a few words; may hold users' words."""
    remaining_s: float | None = None
    """Only a simulation knows it; only the clairvoyant baselines read it."""

    @property
    def only_idle(self) -> bool:
        """Whether it starts on idle GPUs or not at all: no job is preempted for it."""
        return self.given_up or self.over_budget

    def waited_s(self, now_s: float) -> float:
        """How long it has waited, or did wait, since it last ran or was submitted."""
        since_s = self.submitted_s if self.queued_s is None else self.queued_s
        until_s = self.running_since_s if self.state is JobState.RUNNING else None
        return max(0.0, (now_s if until_s is None else until_s) - since_s)

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
    jobs: tuple[Job, ...]


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
    blockers: tuple[tuple[str, Guard], ...] = ()
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
