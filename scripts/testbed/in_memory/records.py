"""slurmctld's record of a job, and how a driver shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scripts.testbed.in_memory.extras import NONE, Extras
from slurm_tiresias.model import Allocation, Amount, JobSpec, JobState, JobStatus, Request

NO_REASON = "None"
PENDING, RUNNING, SUSPENDED = "PENDING", "RUNNING", "SUSPENDED"
ALIVE = frozenset({PENDING, RUNNING, SUSPENDED})
HELD_BY_USER, HELD_BY_ADMIN, BAD_CONSTRAINTS = "JobHeldUser", "JobHeldAdmin", "BadConstraints"
LAUNCH_FAILED = "launch failed requeued held"
HOLDS = frozenset({HELD_BY_USER, HELD_BY_ADMIN, BAD_CONSTRAINTS, LAUNCH_FAILED})
"""The reasons of jobs with priority 0."""

HIGHEST_PRIORITY = 4294967295
NO_REQUEST = Request(Amount())


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission: the options of ``sbatch``, and how the job will behave.

    Parameters
    ----------
    request
        The request. Its ``partitions`` and ``required_nodes`` are set from the fields here.
    duration_s
        How long each run lasts; None: until it is ended.
    exit_code
        The exit code of the script; if not 0, the job is FAILED.
    dies_in_s
        How long it continues after SIGTERM; Slurm kills it after KillWait.
    requeues_itself_in_s
        How long after any other signal its script runs ``scontrol requeue``; None: it does not.
    array, array_limit
        The numbers of its tasks, and how many may run at once (``--array=0-5%2``).
    dependency
        As in sbatch: ``afterok:12:13,afterany:14``; also ``after`` and ``afternotok``.
    begin_in_s
        ``--begin=now+N``.
    priority
        Pinned at submission, as etc/job_submit.lua does; None: Slurm's own.
    own_priority
        The priority that Slurm's plugin computes, before SiteFactor.
    extras
        Its requests beyond ``request``. The controller sees only ``request.opaque`` of them.
    """

    request: Request
    user: str = "ann"
    account: str = "lab"
    qos: str = "normal"
    partitions: tuple[str, ...] = ("gpu",)
    name: str = "train"
    duration_s: float | None = None
    exit_code: int = 0
    dies_in_s: float = 0.0
    requeues_itself_in_s: float | None = None
    array: tuple[int, ...] = ()
    array_limit: int | None = None
    dependency: str = ""
    begin_in_s: float | None = None
    held: bool = False
    node_list: str = ""
    time_limit_s: float | None = None
    requeue: bool = True
    batch: bool = True
    comment: str = ""
    admin_comment: str = ""
    reservation: str = ""
    licenses: str = ""
    priority: int | None = None
    own_priority: int = 1
    extras: Extras = NONE


@dataclass(frozen=True, slots=True)
class Condition:
    """One job of a dependency. ``failed``: whether it can never be satisfied."""

    kind: str
    job_id: int
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.kind}:{self.job_id}({'failed' if self.failed else 'unfulfilled'})"


@dataclass(slots=True, eq=False)
class JobRecord:
    """One record of slurmctld: a job, a task of an array, or all tasks that have not been split off
    yet (several ``tasks``).

    ``state`` is Slurm's base state; ``completing`` is true from the end of a run, or its requeue,
    until the epilog has finished (``epilog_over_s``, steady clock). ``pinned``: the priority was
    set, not computed. ``obstacle`` is a reason not to start the job although GPUs are idle.
    """

    raw_id: int
    tasks: tuple[int, ...]
    submission: Submission
    spec: JobSpec
    """The current spec; for an array its key is that of the whole array."""
    state: str = PENDING
    completing: bool = False
    reason: str = NO_REASON
    priority: int = 1
    pinned: bool = False
    site_factor: int = 0
    nice: int = 0
    restarts: int = 0
    begin_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    suspended_since_s: float | None = None
    suspended_s: float = 0.0
    allocation: Allocation = field(default_factory=dict)
    epilog_over_s: float | None = None
    conditions: tuple[Condition, ...] = ()
    obstacle: str = ""
    unreadable: str = ""
    ended_on: tuple[str, ...] = ()
    exit_code: int = 0
    excluded: frozenset[str] | None = None
    """The excluded nodes since they were changed; None while they are those of the submission."""
    _shown: tuple[JobStatus, ...] = ()
    _specs: tuple[JobSpec, dict[str, JobSpec]] | None = None
    """The spec, and the derived specs of its tasks by key."""
    _is_stale: bool = True

    @property
    def is_pending(self) -> bool:
        """Whether Slurm's base state is PENDING, also while it completes after a requeue."""
        return self.state == PENDING

    @property
    def runs(self) -> bool:
        return self.state in (RUNNING, SUSPENDED)

    @property
    def has_ended(self) -> bool:
        return self.state not in ALIVE

    @property
    def computed_priority(self) -> int:
        """The priority that Slurm's plugin computes."""
        priority = self.submission.own_priority + self.site_factor - self.nice
        return max(1, min(priority, HIGHEST_PRIORITY))

    @property
    def keys(self) -> tuple[str, ...]:
        """The ids in Slurm's commands of the job, or of each of its tasks."""
        array_id = self.spec.array_id
        if array_id is None:
            return (self.spec.key,)
        return tuple(f"{array_id}_{task}" for task in self.tasks)

    @property
    def names(self) -> tuple[str, ...]:
        """Its keys, and the key of its array."""
        return self.keys if self.spec.array_id is None else (*self.keys, self.spec.key)

    def elapsed_s(self, now_s: float) -> float:
        """Return the length of its current or last run without suspensions, in seconds."""
        if self.start_s is None or self.is_pending:
            return 0.0
        until_s = self.end_s if self.end_s is not None else self.suspended_since_s
        return max(0.0, (now_s if until_s is None else until_s) - self.start_s - self.suspended_s)

    def changed(self) -> None:
        """Mark what was shown as outdated; call this after every change."""
        self._is_stale = True

    def shown(self, now_s: float) -> tuple[JobStatus, ...]:
        """Return what a driver shows; the same objects as before if nothing has changed.

        For a running job only ``elapsed_s`` is updated.
        """
        if self._is_stale:
            self._shown = self._made(now_s)
            self._is_stale = False
        elif self.state == RUNNING:
            elapsed_s = self.elapsed_s(now_s)
            if self._shown[0].elapsed_s != elapsed_s:
                self._shown = (replace(self._shown[0], elapsed_s=elapsed_s),)
        return self._shown

    def _made(self, now_s: float) -> tuple[JobStatus, ...]:
        started = self.state != PENDING and self.start_s is not None
        state = JobState.COMPLETING if self.completing else _JOB_STATES.get(self.state)
        # The common pending record of an array's tasks.
        unsplit = self.raw_id == self.spec.array_id and self.is_pending
        specs = self._specs_of_tasks()
        first = JobStatus(
            spec=specs[0],
            raw_id=self.raw_id,
            unsplit_array=unsplit and not self.completing,
            state=state,
            slurm_state="COMPLETING" if self.completing else self.state,
            reason=self.reason,
            priority=self.priority,
            restarts=self.restarts,
            eligible_s=self.begin_s,
            start_s=self.start_s if started else None,
            end_s=self.end_s if self.has_ended else None,
            elapsed_s=self.elapsed_s(now_s),
            allocation=self.allocation,
            unreadable=self.unreadable,
            ended_on=self.ended_on if state is None and self.start_s is not None else (),
        )
        return (first, *(replace(first, spec=spec) for spec in specs[1:]))

    def _specs_of_tasks(self) -> list[JobSpec]:
        """Return the spec of each job of this record; the same objects while unchanged."""
        asked = replace(self.spec, request=NO_REQUEST) if self.unreadable else self.spec
        if asked.array_id is None:
            return [asked]
        if self._specs is None or self._specs[0] is not asked:
            self._specs = asked, {}
        known = self._specs[1]
        for key in self.keys:
            if key not in known:
                known[key] = replace(asked, key=key)
        return [known[key] for key in self.keys]


_JOB_STATES: Mapping[str, JobState] = {
    PENDING: JobState.PENDING,
    RUNNING: JobState.RUNNING,
    SUSPENDED: JobState.RUNNING,
}
