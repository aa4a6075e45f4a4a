"""The file that the controller publishes each cycle, for ``status`` and ``explain``.

It is written completely and renamed into place, so a reader never sees half a cycle. The schema is
part of the interface: fields are added, not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from slurm_tiresias import json_codec
from slurm_tiresias.atomic_write import write_atomically
from slurm_tiresias.errors import NotRunningError
from slurm_tiresias.model import (
    ASK_SIGNAL,
    EventRecord,
    PublishedGpuUse,
    PublishedHung,
)
from slurm_tiresias.status.ask import START_IT, ask

SCHEMA = 1
FILE_NAME = "state.json"
VIEW = "view"
"""The request of users who may not read the file (``privacy.py``)."""

STALE_AFTER_INTERVALS = 3
STALE_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class PublishedTier:
    """One tier: jobs whose attained service lies in [``from_gpu_s``, ``to_gpu_s``)."""

    tier: int
    from_gpu_s: float
    to_gpu_s: float | None
    running_jobs: int
    running_gpus: int
    pending_jobs: int
    pending_gpus: int


@dataclass(frozen=True, slots=True)
class PublishedGpus:
    """GPUs of the nodes of the managed partitions. ``down`` ones are on unavailable nodes."""

    total: int
    managed: int
    others: int
    idle: int
    down: int


@dataclass(frozen=True, slots=True)
class Blocker:
    """A running job whose GPUs another job needs, and why it may not be preempted for that job.

    ``until_s`` is when this protection ends by itself; None if it does not.
    """

    job_id: str
    protection: str
    until_s: float | None


ENFORCE = "enforce"
STOPPED = "stopped"
"""The mode that a controller publishes when it stops."""


@dataclass
class PublishedProgress:
    """The progress of a job, as it reports it (``source``: reports, output or comment).

    It was at ``step`` of ``total`` at ``reported_s``. ``remaining_*_s`` is how long it takes from
    the state's ``at_s`` on, or, for a job that waits, once it runs again from its last save: the
    likely time, and the range that holds it in nine cases of ten. Time in which the job may wait is
    not included. None is unknown. ``quiet_since_s``: since when it has made no step, if that is
    unusually long. ``lost``: its node has reported nothing for minutes.
    """

    source: str
    state: str
    step: int
    total: int | None
    reported_s: float
    remaining_s: float | None
    remaining_least_s: float | None
    remaining_most_s: float | None
    eta_s: float | None
    """When a running job is likely to end, if nothing makes it wait."""
    step_s: float | None
    saved_step: int | None
    saved_s: float | None
    resumed_step: int | None
    quiet_since_s: float | None
    lost: bool
    save_takes_s: float | None = None
    """How long its last save took, as far as it has reported that."""
    longest_step_s: float | None = None
    """The longest time that a step has taken, on average between two reports."""
    slowest_rank: int | None = None
    """The process of the job that is slower than the others; None if none is, or that is
    unknown."""
    slowest_node: str = ""
    slower_by: float | None = None
    """By which share its steps take longer than usual, without waiting for others."""
    reporting_ranks: int | None = None


@dataclass
class PublishedEstimate:
    """The service that a job still needs, if that was or could have been estimated."""

    source: str
    """``reports`` or ``history``."""
    remaining_gpu_s: float | None
    """The service by which the job is ranked; None if the source does not count."""
    why_not: str = ""
    """Why the source does not count, in words; "" if it does."""

    @property
    def is_guess(self) -> bool:
        """Whether it comes from other jobs, not from the job itself."""
        return self.source == "history"


@dataclass
class PublishedStart:
    """When a waiting job is expected to start, as times.

    It starts between ``least_s`` and ``most_s`` in nine cases of ten, and between ``quarter_s`` and
    ``most_of_half_s`` in half of them. A time is None if it is later than can be said, or if
    ``why_not`` says why no range is known. Without ``likely_s``, the job probably does not start
    before ``beyond_s``.
    """

    made_s: float
    """When this was computed."""
    arrivals_days: float
    """From how many days the jobs that are still to be submitted were drawn; 0: none were."""
    beyond_s: float
    least_s: float | None = None
    quarter_s: float | None = None
    likely_s: float | None = None
    most_of_half_s: float | None = None
    most_s: float | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class PublishedCoverage:
    """Of the latest ranges of starts that were given: how many have turned out, and which shares of
    the outer and of the inner ones held."""

    ranges: int
    outer: float
    inner: float


@dataclass
class PublishedJob:
    """One job in one cycle. ``action`` and ``reason`` are codes of ``model.Action`` and ``Reason``.

    Name, user, account and partition come from Slurm: hostile until made printable. The class is
    not frozen, since that takes four times as long to create, once per job and cycle, and has no
    slots, since with them orjson takes twice as long; still, instances are not changed once
    published.
    """

    job_id: str
    name: str
    user: str
    account: str
    partition: str
    state: str
    slurm_state: str
    slurm_reason: str
    managed: bool
    tier: int | None
    rank: int | None
    gpus: int
    attained_gpu_s: float
    attained_since_promotion_gpu_s: float
    waited_s: float
    running_since_s: float | None
    submitted_s: float
    first_started_s: float | None
    restarts: int
    preemptions: int
    preempted_by: str
    preempted_at_s: float | None
    promotions: int
    nodes: str
    style: str
    action: str
    reason: str
    detail: str
    start_on: str
    victims: tuple[str, ...]
    preempted_for: str
    blockers: tuple[Blocker, ...]
    placement: str = ""
    """How the job is placed when it starts; ``placement_because``: by which rule and number."""
    placement_because: str = ""
    signal: str = ""
    """The signal sent before preemption to save its state, without SIG; ``grace_s``: how long
    before."""
    grace_s: float = 0.0
    inherited_gpu_s: float = 0.0
    """Service that counts for its tier beyond what it attained since its last promotion."""
    would: str = ""
    """What the controller would do with the job, in words, if it does not act and Slurm does
    something else. ``action``, ``reason`` and related fields are not carried out then."""
    slurm_place: int | None = None
    """The job's place, from 0, by Slurm's priority among the waiting jobs of its partition; None if
    it is held or does not wait."""
    left_to_slurm: str = ""
    """Why its nodes are left to Slurm, in words; "" if they may be named."""
    begins_s: float | None = None
    """The time before which Slurm does not start the job (``--begin``)."""
    progress: PublishedProgress | None = None
    """Its progress; None if it has reported none."""
    min_run_s: float = 0.0
    """How long it is not preempted after a start; longer than the site's after preemptions."""
    stuck_runs: int = 0
    """How many of its last runs in a row saved nothing; ``model.STUCK_RUNS`` are cause for
    alarm."""
    program_lost: int = 0
    """How many of the latest consecutive preemptions of its user's jobs of this name lost all
    work."""
    drilled: bool = False
    """Whether it may be preempted sooner than others because its program has passed a drill."""
    estimate: PublishedEstimate | None = None
    """The service that it still needs; None if there is no estimate, so that it is ranked by
    attained service."""
    lane: str = ""
    """``interactive`` for a job at a prompt that goes first, ``idle-only`` for another job that
    cannot be preempted, else ""."""
    """Its position relative to the bound on its slowdown; None without one."""
    gpu_use: PublishedGpuUse | None = None
    """Its GPU use; None if it does not run or its GPU use is unknown."""
    idle_requeues: int = 0
    """How often in a row it was requeued for idle GPUs and has used none since."""
    failures_in_a_row: int = 0
    """How many of its last runs, or of its program, failed without progress, while it waits."""
    hung: PublishedHung | None = None
    """Why it seems to hang; None if it does not."""
    ranks_last: bool = False
    """Whether it is preempted before all others and waits behind them, since its GPUs are idle, or
    were when it was requeued."""
    start: PublishedStart | None = None
    """When it is expected to start; None if it does not wait for GPUs, or nothing was computed."""
    alarm: str = ""
    """What needs its user's attention, in a few words; "" if nothing. Here and in ``says``,
    ``{1.5 moment}`` is a time, ``{1.5 duration}`` are seconds, ``{1.5 gpu_hours}`` GPU-seconds."""
    says: tuple[str, ...] = ()
    """What else the controller says of it, in sentences."""

    @property
    def saves(self) -> bool:
        """Whether it is known to save: it has, or it is asked to before a preemption."""
        progress = self.progress
        has_saved = progress is not None and (progress.saved_s is not None or progress.resumed_step)
        return bool(has_saved) or self.signal == ASK_SIGNAL


@dataclass(slots=True)
class PublishedHold:
    """The GPUs of one node held by a running job; ``tier`` is None for an unmanaged job.

    If jobs are private, all holds of other users' jobs are merged into one without ``job_id`` and
    tier.
    """

    job_id: str
    gpus: int
    tier: int | None


@dataclass(slots=True)
class PublishedNode:
    """A node of the managed partitions that has GPUs; ``state`` is Slurm's."""

    name: str
    gpus: int
    available: bool
    state: str
    held: tuple[PublishedHold, ...]
    runs: int = 0
    """Runs that ended there in the last day; the next three are of these too."""
    early_failures: int = 0
    speed: float | None = None
    """The usual speed of steps, as a share of their speed elsewhere; None if unknown."""
    idle_gpu_s: float = 0.0
    suspicion: float = 0.0
    by_chance: float = 1.0
    """How many nodes of the cluster would look as bad in a day if all were healthy."""
    is_suspect: bool = False
    """Whether it is used only if no other node suffices."""
    evidence: str = ""
    """The evidence against it, in a few words."""


@dataclass(frozen=True, slots=True)
class PublishedStandby:
    """A controller that stands by. ``wanted``: slurmctld acts on its host."""

    host: str
    pid: int
    wanted: bool


@dataclass(frozen=True, slots=True)
class PublishedState:
    """What the controller publishes of itself and the cluster after one cycle.

    ``mode`` is enforce, shadow, paused, or stopped after a clean end. ``failures`` counts the
    failed cycles since the last successful one and ``error`` says why; ``at_s`` is the time of the
    last successful cycle. ``failed_cycles`` counts all failed cycles since ``started_s``, by
    ``TiresiasError.kind``; ``next_try_s`` is None unless the last cycle failed. ``term`` is 0 if no
    other controller may stand by.
    """

    schema: int
    cluster: str
    slurm_version: str
    version: str
    driver: str
    pid: int
    mode: str
    policy: str
    order: str
    interval_s: float
    started_s: float
    cycle: int
    at_s: float
    took_s: float
    failures: int
    error: str
    gpus: PublishedGpus
    tiers: tuple[PublishedTier, ...]
    jobs: tuple[PublishedJob, ...]
    events: tuple[EventRecord, ...]
    only_of: str = ""
    """The user whose jobs these are, if jobs are private and not all are shown; else ""."""
    host: str = ""
    failed_cycles: Mapping[str, int] = field(default_factory=dict)
    last_failure_s: float | None = None
    next_try_s: float | None = None
    warning: str = ""
    """A problem that does not make cycles fail."""
    term: int = 0
    standbys: tuple[PublishedStandby, ...] = ()
    output_appended: bool | None = None
    """Whether restarted jobs append to their output files by default; None if unknown."""
    charge: str = "job"
    """``policy.charge``."""
    nodes: tuple[PublishedNode, ...] = ()
    starts_held: PublishedCoverage | None = None
    """None before the first forecast."""
    driver_because: str = ""
    """Why the driver is not pyslurm, if that was tried."""

    @property
    def acts(self) -> bool:
        """Whether the controller carries out its decisions; not in shadow mode, for example."""
        return self.mode == ENFORCE

    def is_stale(self, now_s: float) -> bool:
        """Whether the last successful cycle is so long ago that something must be wrong."""
        longest_s = STALE_AFTER_INTERVALS * self.interval_s + STALE_GRACE_S
        return self.mode != STOPPED and now_s - self.at_s > longest_s


def write(state: PublishedState, state_dir: Path, *, private: bool = False) -> None:
    """Replace the published state, readable by all users or, if ``private``, by the owner only."""
    text = json_codec.dumps(state)
    write_atomically(state_dir / FILE_NAME, text, 0o600 if private else 0o644)


def read(state_dir: Path, answer_s: float | None = None) -> PublishedState:
    """Read the last published state, or as much of it as this user may see.

    ``answer_s``: how long to wait for a controller that must be asked; by default ``ask.ANSWER_S``.
    Raises ``NotRunningError`` if nothing is published, and ``RefusedError`` if the controller
    refuses.
    """
    path = state_dir / FILE_NAME
    try:
        text = path.read_bytes()
    except PermissionError:
        return ask(state_dir, VIEW, SCHEMA, partial(json_codec.build, PublishedState), answer_s)
    except OSError as error:
        raise NotRunningError(
            f"No controller has published anything in {state_dir} ({error.strerror or error})",
            START_IT,
        ) from error
    try:
        raw = json_codec.loads(text)
        if raw["schema"] != SCHEMA:
            raise ValueError("another schema")
        return json_codec.build(PublishedState, raw)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotRunningError(
            f"{path} is not a state of this version, or is damaged",
            "A controller rewrites it in each cycle; check that one of this version runs",
        ) from error
