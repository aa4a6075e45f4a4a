"""The data types of the project: jobs, nodes, requests, allocations, snapshots and decisions.

Everything here is frozen and free of I/O. Names end in their unit: ``_s`` seconds, ``_gpu_s``
GPU-seconds, ``_mb`` mebibytes. Points in time are seconds since the Unix epoch.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

ASK_SIGNAL: Final = "URG"
"""Asks a victim to save: one of ``job.requests.SAVE_SIGNALS``. A process that does not handle it
ignores it."""

ANY_TYPE = ""
"""The GPU type of requests that accept any type, and of GPUs that Slurm lists without one."""

GpuCounts = Mapping[str, int]
"""GPUs by type, e.g. ``{"a100": 4}``; the key ``ANY_TYPE`` counts untyped ones."""


@dataclass(frozen=True, slots=True)
class Amount:
    """GPUs by type, CPUs and memory that a node has, or that a job holds or requests on one."""

    gpus: GpuCounts = field(default_factory=dict)
    cpus: int = 0
    memory_mb: int = 0

    @property
    def gpu_count(self) -> int:
        return sum(self.gpus.values())


def weighed(gpus: GpuCounts, weights: Mapping[str, float]) -> float:
    """Return what these GPUs count for; types without a weight count fully."""
    return sum(count * weights.get(gpu_type, 1.0) for gpu_type, count in gpus.items())


Allocation = Mapping[str, Amount]
"""What a job holds, or will hold, on each of its nodes, by node name."""

NOWHERE: Allocation = MappingProxyType({})


def weighed_gpus(allocation: Allocation, weights: Mapping[str, float]) -> float:
    """Return what the GPUs of an allocation count for."""
    return sum(weighed(amount.gpus, weights) for amount in allocation.values())


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Request:
    """What a job requests, as equal chunks that cannot be split across nodes.

    A job with a fixed shape (``--gres``, ``--gpus-per-node``) has one chunk per node, a job with
    ``--gpus=N`` has N chunks of one GPU, a job with ``--gpus-per-task`` one chunk per task.
    ``chunk`` is what each chunk takes; ``per_node`` is added once for every node used (for example
    memory requested per node).
    """

    chunk: Amount
    chunks: int = 1
    per_node: Amount = Amount()
    max_chunks_per_node: int | None = None
    min_nodes: int = 1
    max_nodes: int | None = None
    may_be_one_task: bool = False
    """Slurm shows ``-n 1 --gpus=4``, which cannot span nodes, and ``--gpus=4``, which can, alike.
    Such a job is spread over several nodes only if no single node is large enough."""
    exclusive: bool = False
    features: str = ""
    required_nodes: frozenset[str] = frozenset()
    excluded_nodes: frozenset[str] = frozenset()
    reserved_nodes: frozenset[str] = frozenset()
    """Nodes the job cannot use now: a reservation of them begins before the job could end."""
    partitions: tuple[str, ...] = ()
    segment: int = 0
    """With topology/block: the nodes of each segment, which lies in one block. 0: no segments."""
    most_switches: int = 0
    """With topology/tree: the most leaf switches (``--switches``). 0: any number."""
    whole_blocks: bool = False
    """With topology/block: no other job may run in its blocks (``--exclusive=topo``)."""
    opaque: str = ""
    """Comma-separated sbatch options in the request that this model does not cover. Only Slurm can
    tell where such a job fits: it gets no node list, and a start that seems to fit is tried
    once."""
    gpus_vary: bool = False
    """Only Slurm can tell how many GPUs the job gets: no job is preempted for it."""
    cpus_vary: bool = False
    """Slurm can divide the tasks among nodes in other ways than these chunks do: a job whose CPUs
    seem to fit nowhere may still start."""

    @property
    def gpu_count(self) -> int:
        return self.chunks * self.chunk.gpu_count + self.min_nodes * self.per_node.gpu_count

    def weighed_gpus(self, weights: Mapping[str, float]) -> float:
        """Return what its GPUs count for."""
        in_chunks = self.chunks * weighed(self.chunk.gpus, weights)
        return in_chunks + self.min_nodes * weighed(self.per_node.gpus, weights)

    @property
    def shape(self) -> Hashable:
        """A key of all that decides where the request fits: equal shapes fit in the same places."""
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
            self.segment,
            self.most_switches,
            self.whole_blocks,
            self.opaque,
            self.gpus_vary,
            self.cpus_vary,
        )


@dataclass(frozen=True, slots=True)
class Node:
    """One compute node. ``available`` is false while Slurm starts no new jobs on it.

    Slurm boots a ``powered_down`` node when it starts a job there, which takes minutes. ``switch``
    is the node's leaf switch, or "" if unknown. ``blocks`` are the blocks it is in, smallest first,
    as (size in nodes, name).
    """

    name: str
    total: Amount
    partitions: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    available: bool = True
    state: str = "IDLE"
    switch: str = ""
    blocks: tuple[tuple[int, str], ...] = ()
    powered_down: bool = False
    weight: int = 1
    """Slurm prefers nodes of less weight."""


class JobState(enum.Enum):
    """A live job's state, reduced from Slurm's states to what decisions need."""

    PENDING = "pending"
    RUNNING = "running"
    """Holds its allocation: running, suspended, configuring."""
    COMPLETING = "completing"
    """Slurm counts its GPUs as free, but its nodes start no job until its epilog has finished."""


class Reason(enum.Enum):
    """Why a job is in its present situation. The value is the code in reports and JSON."""

    RUNS_ON = "runs-on"
    STARTS = "starts"
    STARTS_PREEMPTING = "starts-preempting"
    NOMINATED = "nominated"
    PREEMPTED = "preempted"
    VACATING = "vacating"
    COMPLETING = "completing"
    NO_ROOM = "no-room"
    PROTECTED = "protected"
    NEVER_FITS = "never-fits"
    NO_NODES = "no-nodes"
    RESERVED = "reserved"
    BACKS_OFF = "backs-off"
    OVER_BUDGET = "over-budget"
    FAILED_BEFORE = "failed-before"
    IDLE_ONLY = "idle-only"
    HELD = "held"
    SLURM_WAITS = "slurm-waits"
    SHARES_LIMIT = "shares-limit"
    IDLE_GPUS = "idle-gpus"
    HUNG = "hung"
    UNMANAGED = "unmanaged"


class Protection(enum.Enum):
    """Why a running job may not be preempted now."""

    MIN_RUN = "minimum-run-time"
    MAX_VICTIMS = "victims-of-this-interval"
    HELD = "held-or-suspended"
    PARTITION = "could-not-come-back"
    DEADLINE = "deadline"
    TRIED_FIRST = "higher-priority-tier"
    SAVE_DUE = "save-due"
    REDOING_WORK = "redoing-lost-work"
    INTERACTIVE = "interactive"
    NO_REQUEUE = "cannot-be-requeued"
    UNMANAGED = "unmanaged"
    NEAR_TIER = "near-or-higher-tier"


class Lane(enum.StrEnum):
    """By which rules a job waits and runs (``core/features/interactive.py``)."""

    PREEMPTIBLE = ""
    """Ranked by its service, preempts and is preempted: all jobs that Slurm can requeue."""
    INTERACTIVE = "interactive"
    """A job at a prompt, within its user's bound: first in the top tier, never preempted."""
    IDLE_ONLY = "idle-only"
    """Any other job that cannot be requeued: it never preempts and is never preempted."""


class PlacementStyle(enum.Enum):
    """How a job's chunks are placed on nodes (paper page 491, section 3.3)."""

    CONSOLIDATE = "consolidate"
    SPREAD = "spread"
    RANDOM = "random"
    """Any nodes with room, as in Tiresias without its profiler (Fig. 12): a simulator baseline that
    the configuration does not offer."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The submission of one job, or of one task of an array, as Slurm shows it.

    It stays the same object while nothing in it changes. Slurm resets ``submit_s`` at each
    requeue. ``required_node_list`` is verbatim from Slurm, so that it can be restored; "" if the
    job requires no nodes. Users write ``name``, ``comment``, ``admin_comment``, ``licenses`` and
    the request's features: treat them as hostile.
    """

    key: str
    """The job id in Slurm's commands: ``123``, or ``123_4`` for a task of an array."""
    array_id: int | None
    array_limit: int | None
    """How many tasks of its array may run at once; None if unlimited."""
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
    """When Slurm ends the job in any state. Slurm starts it only if it can end before this."""
    comment: str = ""
    admin_comment: str = ""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The current state of a job in Slurm.

    ``state`` is None once the job has ended. ``raw_id`` is the number of its record in slurmctld.
    ``unsplit_array`` is true for a task that is still in its array's common pending record: such
    tasks differ only in their number, and one write to ``123_[4-9]`` reaches them all if all are
    named. ``start_s`` is None while the job is pending or completes after a requeue. ``end_s`` is
    None until the job has ended: a completing job with an ``end_s`` does not come back, one without
    was requeued. ``eligible_s`` shows what ``Update.start_in_s`` has set. ``elapsed_s`` is the
    length of this run without suspensions. The ``allocation`` of a completing job names the nodes
    whose epilog has not finished.
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
    """What could not be read, in a few words; the request is then empty. Users write some of these
    values, so one unreadable job must not keep the others from being observed."""
    ended_on: tuple[str, ...] = ()
    """The nodes of the last run of a job that has ended."""
    key: str = field(init=False, repr=False, compare=False)
    """The key of its spec, copied here because each cycle reads it many times."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.spec.key)

    @property
    def held(self) -> bool:
        return self.state is JobState.PENDING and self.priority == 0


class ProgressSource(enum.StrEnum):
    """How a job's progress is known."""

    REPORTS = "reports"
    """The program itself, through the job library."""
    OUTPUT = "output"
    """Extracted from the program's output."""
    COMMENT = "comment"
    """The program itself, through the job's comment."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A likely time in seconds, and the range that holds it in nine cases of ten."""

    likely_s: float
    least_s: float
    most_s: float

    def times(self, steps: float) -> Estimate:
        return Estimate(self.likely_s * steps, self.least_s * steps, self.most_s * steps)


class SlowestRank(NamedTuple):
    """The slowest process of a job, by what its processes report."""

    rank: int
    node: str
    step_s: float
    """How long a step takes it, without waiting for others."""
    slower_by: float
    """By which share that is longer than usual."""
    of: int
    """How many processes report."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A job's progress, as reported by its user's program: it may be wrong, by mistake or on
    purpose.

    Times are by Slurm's clock. ``restarts`` identifies the run that reported it; that run is over
    if the job was requeued since.
    """

    restarts: int
    source: ProgressSource
    state: str
    """One of ``job.record.STATES``."""
    first_step: int
    step: int
    total: int | None
    reported_s: float
    """When the job reached ``step``."""
    advanced_s: float
    """When its steps were last seen to increase."""
    quiet_after_s: float
    """How long a pause between steps is unusual for it."""
    saved_step: int | None = None
    saved_s: float | None = None
    resumed_step: int | None = None
    per_step: Estimate | None = None
    """The duration of one of the remaining steps."""
    lost: bool = False
    """Whether the run continues, but its node has reported nothing for minutes."""
    first_step_s: float | None = None
    """When this run completed its first step; None if unknown."""
    save_every_s: float | None = None
    """The usual time between two of its saves; None before it has saved twice or announced the
    interval."""
    first_s: float | None = None
    """When this run first reported: at ``first_step``."""
    asked_s: float | None = None
    """When its program last received a request to save or to leave."""
    saving_s: float | None = None
    """When the save that ended at ``saved_s`` began; None if unknown."""
    listens: bool = False
    """Whether it saves on request (``job.requests``)."""
    answered_s: float | None = None
    """When the last request came that was answered by a save which began after it."""
    heard_s: float = math.inf
    """When its node last told of it, even if nothing had changed."""
    longest_gap_s: float = 0.0
    """The longest time between two of its steps in this run, as far as it was not announced."""
    gaps: int = 0
    """How many of them were seen."""
    busy_until_s: float = -math.inf
    """When the last phase without steps that it has announced ended, or ends at the latest."""
    phase: str = ""
    """What it called this phase."""
    dumps: bool = False
    """Whether it prints its stacks when it is signalled (``job.requests.DUMP_SIGNAL``)."""
    slowest: SlowestRank | None = None
    """The process that is slower than the others, if any is."""
    longest_step_s: float = 0.0
    """The longest time that a step took, on average between two reports, in this run."""

    @property
    def finished(self) -> bool:
        return self.step == self.total or self.state == "done"

    @property
    def printed_its_end(self) -> bool:
        """Whether a count that was found in the output has ended: it need not have been that of the
        whole training, so it does not show when the job ends."""
        return self.finished and self.source is ProgressSource.OUTPUT

    def remaining(self, from_step: int) -> Estimate | None:
        """The duration of the steps from this one on; None if unknown."""
        if self.total is None or self.per_step is None or self.printed_its_end:
            return None
        return self.per_step.times(max(0, self.total - from_step))

    def quiet_since_s(self, now_s: float) -> float | None:
        """Since when the run has made no step, if that is unusually long; None otherwise."""
        if self.finished or self.lost or self.silent_s(now_s) <= self.quiet_after_s:
            return None
        return self.advanced_s

    def silent_s(self, now_s: float) -> float:
        """For how long it has made no step, as far as its node has told, and beside phases that it
        has announced."""
        return min(now_s, self.heard_s) - max(self.advanced_s, self.busy_until_s)


class WorkAtStake(NamedTuple):
    """What a preemption of a running job would lose, in seconds of running on all of its GPUs."""

    unsaved_since_s: float
    """What it has done since then is not saved."""
    most_unsaved_s: float = math.inf
    """Upper bound on how much of that is lost; for jobs that do not report their saves, the usual
    loss of their program if it is known."""
    restart_s: float = 0.0
    """From its next start to its first new step."""
    save_due_s: float | None = None
    """When its next save is expected; None if unknown."""

    def lost_s(self, now_s: float) -> float:
        """Return the running time that a preemption at ``now_s`` would waste."""
        unsaved_s = min(max(0.0, now_s - self.unsaved_since_s), self.most_unsaved_s)
        return unsaved_s + self.restart_s


USUAL_STAKE = WorkAtStake(unsaved_since_s=-math.inf, most_unsaved_s=300.0, restart_s=60.0)
"""What is assumed of a job that reports, where it does not tell, until a preemption was measured on
this site. A silent job counts until then with its whole run: the site may have no programs that
save. From then on it counts with the median of those that report, so that silence does not pay."""


@dataclass(frozen=True, slots=True)
class ProgramCosts:
    """What a preemption of one program (a user's jobs of one name) costs: running time in seconds,
    as measured at its preemptions, shrunk towards the site's median while they are few."""

    restart_s: float
    """From a start to the first new step."""
    unsaved_s: float
    """The work that a preemption loses, which must be repeated."""
    save_every_s: float | None = None
    """The usual time between two saves; None if unknown."""
    measured: int = 0
    """How many preemptions of the program itself were measured."""
    saved_when_asked: float = 0.0
    """The share of them in which the job saved after its checkpoint signal."""
    lost_all_in_a_row: int = 0
    """How many of its latest preemptions in a row lost all work of the run."""


class ProgramHabit(NamedTuple):
    """The longest pauses that earlier runs of one program (a user's jobs of one name) went on
    after."""

    furthest_step: int
    """None of what follows tells anything of later steps."""
    gap_s: float = 0.0
    gap_steps: float = 0.0
    """The same in usual steps of the run."""
    startups: int = 0
    """How many runs have told when they began and when they made their first step."""
    startup_s: float = 0.0
    """The longest time between the two."""

    @staticmethod
    def of(progress: JobProgress) -> ProgramHabit:
        """Return what one run shows, by its last report."""
        step_s = progress.per_step.likely_s if progress.per_step else 0.0
        began_s, first_s = progress.first_s, progress.first_step_s
        startup_s = None if began_s is None or first_s is None else first_s - began_s
        return ProgramHabit(
            progress.step,
            progress.longest_gap_s,
            progress.longest_gap_s / step_s if step_s else 0.0,
            int(startup_s is not None),
            startup_s or 0.0,
        )

    def joined(self, other: ProgramHabit) -> ProgramHabit:
        """Return what both show."""
        return ProgramHabit(
            max(self.furthest_step, other.furthest_step),
            max(self.gap_s, other.gap_s),
            max(self.gap_steps, other.gap_steps),
            self.startups + other.startups,
            max(self.startup_s, other.startup_s),
        )


class PastLosses(NamedTuple):
    """What earlier runs of a job and of its program show about how long it must be protected."""

    program_lost: int = 0
    """How many of the last preemptions of its program in a row lost all work of the run."""
    stuck_runs: int = 0
    """How many of its last runs in a row saved nothing: the next run began no further than the one
    before."""
    redoing_until_s: float | None = None
    """The latest time until which its run counts as redoing lost work; None if it does not."""


NO_PAST_LOSSES = PastLosses()

STUCK_RUNS = 2
"""A job whose last runs, this many in a row, saved nothing cannot save within its minimum run
time."""


class NodeUse(NamedTuple):
    """What the sampler of one node reports about one run of a job; times are Unix times."""

    at_s: float
    busy: int
    """How many of its GPUs on that node are busy now."""
    idle_since_s: float | None
    """Since when none of them has been busy; None while one is."""
    sampled_s: float
    """For how long the run has been sampled."""
    busy_gpu_s: float
    """The busy time summed over its GPUs."""
    low_since_s: float | None = None
    """Since when each of them has been idle or drawn little power; None if one has worked, or may
    have."""
    power: float | None = None
    """The most that one of its busy GPUs draws, as a share of its limit; None if unknown."""


class Claim(NamedTuple):
    """What a job's reports are taken to say about its service (``core/features/claims.py``)."""

    total_gpu_s: float
    """The service that it will have attained when it ends."""
    promised_gpu_s: float
    """The service that it promised not to exceed: beyond this its reports no longer count."""


@dataclass(frozen=True, slots=True)
class JobAccount:
    """What only this program knows about a job: all that the ledger keeps except its runs.

    ``submitted_s`` is its first submission; ``queued_s`` is when it last began to wait, at
    submission or at the end of its last run. ``start_number`` and ``entry_number`` count first
    starts and tier entries over all jobs; they order jobs inside a priority band.
    ``promoted_at_gpu_s`` and ``promoted_at_executed_s`` are its totals at its last promotion.
    ``written_*`` is what this program last wrote to Slurm; ``own_nodes`` is the node list its user
    requested, kept while ``written_nodes`` replaces it.
    """

    SHIFTED: ClassVar = ("queued_s",)
    """The times that a step of slurmctld's clock shifts, also of the records of ``lifecycle``."""

    key: str
    restarts: int
    submitted_s: float
    tier_entered_s: float
    queued_s: float
    entry_number: int
    born_after_s: float = 0.0
    """Accounting rows submitted before this belong to an earlier job with the same id: the first
    submission, or earlier if the clock was set back since. 0.0 if the job was first seen after a
    requeue, until accounting has its first run."""
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
    """All node lists written since the user's own list was in place, the latest last."""
    own_nodes: str = ""
    list_refused: bool = False
    """Slurm held the job because of a node list written by this program: no more are written."""
    ended_s: float | None = None
    user: str = ""
    name: str = ""
    """Written by its user: hostile."""
    account: str = ""
    partition: str = ""
    """Comma-separated if it waits for the first of several."""
    time_limit_s: float | None = None
    claimed_gpu_s: float | None = None
    promised_gpu_s: float | None = None
    """The two numbers of its ``Claim``; None before its first report is taken."""
    lane: Lane = Lane.PREEMPTIBLE
    """While it runs or after its end, the lane in which its last run started."""
    idle_requeues: int = 0
    """How often in a row it was requeued for its idle GPUs, without having used one in between."""
    idle_signalled_run: int | None = None
    """The restarts of the run that was last signalled for its idle GPUs; None if none was."""
    failed_run: int | None = None
    """The restarts of the last run whose failure was judged; None if none was."""
    is_restarted: bool = False
    """Whether it is to be restarted after that failure."""
    failures_in_a_row: int = 0
    """How many of its last runs in a row failed without progress."""
    failed_step: int | None = None
    """The furthest step of its failed runs; None if they did not report steps."""
    avoided_nodes: str = ""
    """The nodes of its last run that failed or hung; it does not start there again if others will
    do."""
    own_excluded: str | None = None
    """The nodes that its user excludes, kept while others are excluded too; None if none are."""
    written_excluded: str = ""
    """The excluded nodes that this program last wrote."""
    handed_back: bool = False
    """Whether an administrator has given it back to Slurm, until it is to be managed again."""
    boosted_until_s: float | None = None
    """Until when an administrator boosts it; None if none does."""
    hung_requeues: int = 0
    """How often in a row it was requeued because it hung, without having got any further."""
    hung_signalled_run: int | None = None
    """The restarts of the run that was last signalled before such a requeue; None if none was."""
    hung_run: int | None = None
    """The restarts of the run that was last found to hang; None if that proved wrong."""
    hung_step: int = 0
    """The steps that this run had done."""
    hung_furthest_step: int = 0
    """The most steps that a run had done which was found to hang."""
    dumped_run: int | None = None
    """The restarts of the run that was last told to print its stacks."""

    @staticmethod
    def opened(job: JobStatus, entry_number: int = 0) -> JobAccount:
        """Return the account of a job that this program sees for the first time."""
        spec = job.spec
        return JobAccount(
            key=spec.key,
            restarts=job.restarts,
            submitted_s=spec.submit_s,
            tier_entered_s=spec.submit_s,
            queued_s=spec.submit_s,
            entry_number=entry_number,
            born_after_s=0.0 if job.restarts else spec.submit_s,
            user=spec.user,
            name=spec.name,
            account=spec.account,
            partition=",".join(spec.partitions),
            time_limit_s=spec.time_limit_s,
        )

    @property
    def is_preemptible(self) -> bool:
        """Whether it can be preempted at all: it is in no lane."""
        return self.lane is Lane.PREEMPTIBLE

    @property
    def claim(self) -> Claim | None:
        if self.claimed_gpu_s is None or self.promised_gpu_s is None:
            return None
        return Claim(self.claimed_gpu_s, self.promised_gpu_s)


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event of a job, or with an empty ``job_id`` of the controller.

    Events of jobs: demoted, promoted, preempted, requeued, node-failed, repaired, backed-off,
    list-refused, signal-refused, no-net-progress, gpus-idle, idle-signalled, idle-requeued,
    idle-spared, hung (a verdict, with its evidence), hung-false (it made a step afterwards),
    hung-dumped, hung-signalled, hung-requeued, restarted or not-restarted (after a failure), failed
    (Slurm refused a write) and so on. Events of the controller: paused, resumed, handed-back,
    node-suspected, node-drained, node-cleared.
    """

    at_s: float
    kind: str
    job_id: str
    other: str
    text: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a job; ``end_s`` is None while it runs or until its end is known."""

    key: str
    start_s: float
    end_s: float | None
    elapsed_s: float
    gpus: int
    confirmed: bool
    """Whether Slurm has given the final elapsed time."""
    redone_s: float = 0.0
    """How long it was protected because it redid lost work."""
    idle_gpu_s: float = 0.0
    """Idle time summed over its GPUs, as far as the nodes reported it."""
    clock_set_by_s: float = 0.0
    """How far Slurm's clock was set during the run; ``elapsed_s`` is without that."""
    idle_s: float = 0.0
    """For how long the job had used none of its GPUs when this run was last seen, in this run and
    those before. 0 once that time has ended a run, or the next run has used a GPU."""
    clock_set_since_s: float = 0.0
    """How far Slurm's clock was set after the run."""
    nodes: str = ""
    """Its nodes, separated by commas."""
    outcome: str = ""
    """How it ended, as Slurm calls it (``COMPLETED``, ``FAILED``, ``NODE_FAIL``, ...); "" while it
    runs, and if it was requeued for another reason or that is unknown."""
    step_s: float | None = None
    """The duration of one of its steps; None if it did not report any."""
    hung_s: float = 0.0
    """For how long it had hung when it was last seen; 0 once it has made a step."""
    false_verdicts: int = 0
    """How often it was found to hang and made a step afterwards."""
    weight: float = 1.0
    """What each of its GPUs counts for on average (``policy.gpu_weights``)."""

    @property
    def began_s(self) -> float:
        """When it started, by the clock as it is set now: a later run may have an earlier start."""
        return self.start_s + self.clock_set_by_s + self.clock_set_since_s

    @property
    def attained_gpu_s(self) -> float:
        return self.elapsed_s * self.gpus * self.weight


def last_ended(runs: Iterable[RunRecord]) -> RunRecord | None:
    """Return the last of a job's runs that has ended; None if none has."""
    ended = (run for run in runs if run.end_s is not None)
    return max(ended, key=lambda run: run.began_s, default=None)


class RecentVictims(NamedTuple):
    """Preempted jobs that still count for ``victim_rate.MAX_VICTIMS``, and when the
    present interval ends."""

    jobs: int = 0
    until_s: float = -math.inf


class Action(enum.Enum):
    """What happens to a job in this cycle."""

    RUN_ON = "run-on"
    START = "start"
    PREEMPT = "preempt"
    WAIT = "wait"
    LEAVE = "leave"
    """Not managed: never written to, never preempted."""


MAX_BLOCKERS = 8
"""How many blocking jobs a decision names at most."""


class Decision(NamedTuple):
    """What was decided for one job and why: all that ``explain`` needs.

    A tuple for speed: every cycle makes one for each of very many jobs.

    ``tier`` counts from 0, the highest; None for unmanaged jobs. ``start_on`` is where the job must
    start, ``victims`` are the jobs preempted for it, ``preempted_for`` is its preemptor.
    ``blockers`` are jobs that hold what it needs but may not be preempted for it, each with its
    protection. A job's place in the whole order is in ``Plan.ranks``.
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
    """The decision for every job of a snapshot, by job id in rank order; unmanaged jobs come
    last."""

    decisions: Mapping[str, Decision]

    @property
    def ranks(self) -> Mapping[str, int]:
        """The place of every managed job in the whole order, from 0."""
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


@dataclass(frozen=True)
class PublishedHung:
    """A running job that is found to hang."""

    since_s: float
    """When it made its last step, or the last phase without steps that it announced ended."""
    allowed_s: float
    """The longest pause that would have been usual for it."""
    gpus: int
    requeued: bool
    """Whether it is being requeued for that."""
    busy: int | None = None
    """How many of its GPUs are busy, without doing work; None if they are not sampled."""
    power: float | None = None
    """The most that one of them draws, as a share of its limit; None if unknown."""


@dataclass(frozen=True)
class PublishedGpuUse:
    """A running job's GPU use as it is published, from the samples of all of its nodes."""

    gpus: int
    busy: int
    """How many of them are busy now."""
    idle_since_s: float | None
    """Since when all of them have been idle; None while one is busy."""
    idle_long: bool
    """Whether that is so long that the job is flagged."""
    ranks_last: bool
    """Whether the job is therefore preempted before all others."""
    held_idle_gpu_s: float
    """How long this run has held idle GPUs, summed over GPUs."""
    leaves_at_s: float | None = None
    """When it is preempted for its idle GPUs even if no job waits, unless it uses a GPU before;
    None if it is not."""
    kept_because: str = ""
    """Why it is not preempted for them although the site wants that: ``signalled-in-this-run``,
    ``requeued-often-enough``, or "" if nothing or another rule forbids it."""
